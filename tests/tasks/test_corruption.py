import numpy as np
import pytest
from scipy import stats
from support.task_facts import equal, target_of, text_of

from mecheval.tasks.documents import FIRST_SYMBOL, NO_ANSWER
from mecheval.tasks.recall import Recall
from mecheval.tasks.treecall import Treecall

TASKS = {
    "recall": Recall(pairs=6, vocab=64),
    "varied": Recall(pairs=6, min_pairs=2, vocab=16, queries=2),
    "reverse": Recall(pairs=6, vocab=32, query="value"),
    "mqar": Recall(pairs=4, vocab=32, queries=3, slots=8, gaps=0.01, filler=3),
    "crowded": Recall(pairs=4, vocab=8),
    "parent": Treecall(),
    "sibling": Treecall(query="sibling"),
    "child": Treecall(query="child", head="left"),
    "grandparent": Treecall(query="grandparent"),
    "few": Treecall(terminals=4),
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
every_role = pytest.mark.parametrize("role", ["key", "value", "query"])
every_kind = pytest.mark.parametrize("kind", ["resample", "swap"])


def right_answers(task, docs, i):
    """The answers to row i, found by reading the document."""
    tokens = docs.tokens[i, : docs.lengths[i]].tolist()
    divider = tokens.index(2)
    found = []
    for query in docs.tokens[i, docs.queries[i]].tolist():
        places = [j for j in range(1, divider) if tokens[j] == query]
        if isinstance(task, Recall):
            side = -1 if task.query == "value" else 1
            places = [j for j in places if j % 2 == (0 if task.query == "value" else 1)]
            found.append(tokens[places[-1] + side] if places else NO_ANSWER)
        else:
            target = (
                target_of(places[-1], docs.parents[i, : docs.lengths[i]].tolist(), task.query)
                if places
                else -1
            )
            found.append(tokens[target] if target >= 0 else NO_ANSWER)
    return found


@every_task
def test_a_clean_documents_answers_are_the_right_ones(task):
    docs = task.documents(0, "test", 0, 200)
    assert docs.answers.tolist() == [right_answers(task, docs, i) for i in range(200)]
    assert np.array_equal(task.answers(docs), docs.answers)


@every_task
@every_role
@every_kind
def test_answers_are_worked_out_anew_and_survivors_are_not_usable(task, role, kind):
    docs = task.documents(0, "test", 0, 300)
    twins = task.corrupt(docs, role, 0, kind)
    after = [right_answers(task, twins.documents, i) for i in range(300)]
    assert twins.documents.answers.tolist() == after
    survived = np.array(
        [new[0] == old for new, old in zip(after, docs.answer.tolist(), strict=True)]
    )
    assert not (twins.usable & survived).any()
    if kind == "resample":
        unchanged = (twins.documents.tokens == docs.tokens).all(axis=1)
        assert (twins.usable | survived | unchanged).all()
    else:
        assert (twins.documents.answer[twins.usable] != NO_ANSWER).all()


@every_task
@every_role
def test_a_resampled_token_is_of_its_class_and_not_in_the_document_if_possible(task, role):
    docs = task.documents(0, "test", 0, 300)
    twins = task.corrupt(docs, role, 0).documents
    symbols = set(task.symbols(role))
    for i in range(300):
        at = int(docs.roles[role][i])
        tokens = docs.tokens[i].tolist()
        new, old = int(twins.tokens[i, at]), tokens[at]
        assert new != old
        assert new in symbols
        assert old in symbols
        assert new not in tokens or symbols <= set(tokens)
        assert [j for j in range(len(tokens)) if twins.tokens[i, j] != tokens[j]] == [at]


@every_task
@pytest.mark.parametrize("role", ["key", "value"])
def test_a_swap_exchanges_two_tokens(task, role):
    docs = task.documents(0, "test", 0, 300)
    twins = task.corrupt(docs, role, 0, "swap")
    assert twins.usable.mean() > 0.3
    for i in np.flatnonzero(twins.usable):
        changed = np.flatnonzero(docs.tokens[i] != twins.documents.tokens[i])
        assert len(changed) == 2
        assert docs.roles[role][i] in changed
        assert docs.tokens[i, changed].tolist() == twins.documents.tokens[i, changed].tolist()[::-1]


@every_task
@every_role
@every_kind
def test_the_corruption_of_a_document_depends_on_nothing_else(task, role, kind):
    docs = task.documents(0, "test", 0, 60)
    whole = task.corrupt(docs, role, 3, kind)
    some = np.array([40, 3, 17])
    alone = task.corrupt(docs[some], role, 3, kind)
    assert equal(alone.documents, whole.documents[some])
    assert alone.usable.tolist() == whole.usable[some].tolist()
    assert text_of(task.corrupt(docs, role, 4, kind).documents) != text_of(whole.documents)


def test_roles_lengths_numbers_and_trees_stay():
    docs = TASKS["parent"].documents(0, "test", 0, 50)
    twins = TASKS["parent"].corrupt(docs, "key", 0).documents
    assert all(np.array_equal(docs.roles[role], twins.roles[role]) for role in docs.roles)
    assert np.array_equal(docs.lengths, twins.lengths)
    assert np.array_equal(docs.index, twins.index)
    assert np.array_equal(docs.parents, twins.parents)


def test_a_replacement_is_drawn_uniformly():
    task = Recall(pairs=2, vocab=16)
    docs = task.documents(0, "train", 0, 60_000)
    new = task.corrupt(docs, "key", 0).documents.at("key") - FIRST_SYMBOL
    assert stats.chisquare(np.bincount(new, minlength=8)).pvalue > 1e-3


@pytest.mark.parametrize("kind", ["resample", "swap"])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
def test_no_documents_have_no_twins(task, kind):
    twins = task.corrupt(task.documents(0, "test", 5, 5), "key", 0, kind)
    assert len(twins.documents) == len(twins.usable) == 0


def test_only_one_symbol_leaves_nothing_to_corrupt():
    task = Recall(pairs=1, vocab=2)
    docs = task.documents(0, "test", 0, 5)
    for role in ("key", "value", "query"):
        for kind in ("resample", "swap"):
            assert not task.corrupt(docs, role, 0, kind).usable.any()


def test_a_surviving_answer_is_as_common_as_the_paper_had_it():
    """Corrupting an ATR key left the answer right in 4–14 % of documents, over ten grammars."""
    shares = []
    for seed in range(10):
        task = Treecall(grammar_seed=seed)
        shares.append(1 - task.corrupt(task.documents(0, "test", 0, 1000), "key", 0).usable.mean())
    assert min(shares) > 0.02
    assert max(shares) < 0.16
