"""A task in words: the tokens at its roles are the words of its symbols, and nothing else moves."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from support.lexicons import Small, Symbols, tokenizer

from mecheval.core.errors import InvalidInput
from mecheval.tasks import tasks
from mecheval.tasks.check import check_task
from mecheval.tasks.compose import Compose
from mecheval.tasks.corruption import corrupt
from mecheval.tasks.documents import NO_ANSWER
from mecheval.tasks.overwrite import Overwrite
from mecheval.tasks.recall import Recall
from mecheval.tasks.rendering import Template
from mecheval.tasks.sample import sample
from mecheval.tasks.spans import Spans
from mecheval.tasks.treecall import Treecall
from mecheval.tasks.word_lists import NOUNS
from mecheval.tasks.word_task import word_task
from mecheval.tasks.words import Words

KINDS = ("byte_level", "metaspace")
TEMPLATES = ("bare", "rows", "lines", "sentence", "plain", " {key} likes {value}!")
TASKS = (
    Recall(pairs=4),
    Recall(pairs=3, passes=2),
    Recall(pairs=4, min_pairs=2, queries=2),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("inner", TASKS, ids=str)
def test_the_token_at_a_role_is_the_word_of_its_symbol(kind, template, inner):
    task = word_task(inner, Small(kind), "nouns", template)
    docs, lead = task.documents(0, "test", 0, 24), 1
    for row in range(len(docs)):
        text = task.text(docs, row)
        found = tokenizer(kind).encode(text)
        assert found.ids == docs.tokens[row, lead : docs.lengths[row]].tolist()
        for role, inner_role in (("key", "key"), ("value", "value"), ("query_key", "query")):
            symbol = docs.symbols.at(inner_role)[row]
            start, end = found.offsets[docs.roles[role][row] - lead]
            assert text[start:end].strip() == task.words[symbol - 3], role
        assert task.words[docs.symbols.answer[row] - 3] == task.word(int(docs.answer[row]))
    assert (docs.roles["next_key"] == docs.roles["value"] + 1).all()
    assert (docs.queries.max(axis=1) == docs.lengths - 1).all()
    assert (docs.queries[:, 0] == docs.roles["query"]).all()
    assert (docs.at("value") == docs.answer).all()
    assert (docs.at("key") == docs.at("query_key")).all()


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_answer_is_what_the_tokenizer_makes_of_the_text_that_goes_on(template):
    task = word_task(Recall(pairs=3), Small(), "names", template)
    docs = task.documents(0, "test", 0, 12)
    for row in range(len(docs)):
        text = f"{task.text(docs, row)} {task.word(int(docs.answer[row]))}"
        assert task.lexicon.encode(text) == [*docs.tokens[row, 1:].tolist(), docs.answer[row]]


@pytest.mark.parametrize("inner", TASKS, ids=str)
@pytest.mark.parametrize(("role", "kind"), [("key", "resample"), ("value", "swap")])
def test_a_corruption_changes_the_words_of_its_symbols_and_nothing_else(inner, role, kind):
    task = word_task(inner, Small(), "nouns", "sentence")
    docs = task.documents(0, "test", 0, 24)
    twins = task.corrupt(docs, role, 0, kind)
    symbols = task.inner.corrupt(docs.symbols, role, 0, kind)
    assert (twins.documents.lengths == docs.lengths).all()
    assert twins.usable.tolist() == symbols.usable.tolist()
    changed = (twins.documents.tokens != docs.tokens).sum(axis=1)
    in_symbols = (symbols.documents.tokens != docs.symbols.tokens).sum(axis=1)
    assert changed.tolist() == in_symbols.tolist()
    assert in_symbols.min() > 0
    for row, answer in enumerate(symbols.documents.answer.tolist()):
        found = int(twins.documents.answer[row])
        assert (found == NO_ANSWER) == (answer == NO_ANSWER)
        if answer != NO_ANSWER:
            assert task.word(found) == task.words[answer - 3]


def test_documents_depend_on_their_number_alone_and_on_no_instance():
    tasks = [word_task(Recall(pairs=3, min_pairs=2), Small(), "nouns", shots=1) for _ in range(2)]
    whole = tasks[0].documents(3, "dev", 0, 20)
    for number in (0, 7, 19):
        alone = tasks[1].documents(3, "dev", number, number + 1)
        assert alone.flat.tolist() == whole[number : number + 1].flat.tolist()
    rows = np.array([4, 2])
    assert whole[rows].symbols.index.tolist() == [4, 2]
    assert tasks[0].key == tasks[1].key != replace(tasks[0], shots=0).key


def test_the_words_are_the_same_task_for_every_list_and_template():
    read = []
    for words, template in (("nouns", "rows"), ("names", "lines"), ("random", "plain")):
        task = word_task(Recall(pairs=3, vocab=30), Small(), words, template)
        docs = task.documents(0, "test", 0, 9)
        symbol = {token: 3 + number for number, token in enumerate(task.word_tokens)}
        read.append([[symbol[t] for t in row if t in symbol] for row in docs.tokens.tolist()])
    symbols = Recall(pairs=3, vocab=30).documents(0, "test", 0, 9).tokens.tolist()
    assert read == [[[s for s in row if s > 2] for row in symbols]] * 3


@pytest.mark.parametrize("template", ["bare", "rows", "plain"])
def test_a_task_in_words_keeps_the_contract_of_a_task(template):
    check_task(word_task(Recall(pairs=3), Small(), "nouns", template), documents=48)


def test_shots_show_other_pairs_and_stay_when_a_key_is_corrupted():
    task = word_task(Recall(pairs=4, passes=2), Small(), "nouns", "rows", shots=2)
    docs = task.documents(0, "test", 0, 20)
    plain = replace(task, shots=0).documents(0, "test", 0, 20)
    assert docs.tokens.shape[1] == plain.tokens.shape[1] + 2 * 3
    for row in range(20):
        head, shown = task.text(docs, row), plain.tokens.shape[1] - 2
        assert head.startswith(task.text(plain, row).rsplit(" ", 1)[0])
        lines = head.splitlines()
        assert {*lines[8:10]} <= {*lines[:8]}
        assert len({*lines[8:10]}) == 2
        assert not any(line.startswith(lines[-1] + " ") for line in lines[8:10])
    twins = task.corrupt(docs, "key").documents
    assert (twins.tokens[:, shown:] == docs.tokens[:, shown:]).all()


def test_a_task_without_pairs_is_written_as_words_in_a_row():
    task = word_task(Treecall(terminals=20), Small(), "nouns", "plain")
    docs = task.documents(0, "test", 0, 30)
    assert len({*docs.lengths.tolist()}) > 3
    assert docs.symbols.lengths.max() <= docs.lengths.max() <= task.max_len
    for row in range(30):
        words = [task.words[symbol - 3] for symbol in docs.symbols.tokens[row] if symbol > 2]
        assert task.text(docs, row).replace("?", "").split() == words


@pytest.mark.parametrize(
    ("inner", "role", "kind"),
    [
        (Overwrite(pairs=4, updates=2, queries=4, vocab=8), "old_key", "resample"),
        (Overwrite(pairs=4, updates=2, queries=4, vocab=8), "key", "resample"),
        (Recall(pairs=4, vocab=8), "key", "resample"),
        (Recall(pairs=4, vocab=8, passes=2), "key", "resample"),
    ],
    ids=str,
)
def test_a_corrupted_document_shows_the_same_shots(inner, role, kind):
    """Even if the new key is one of the document's: where a word has changed, so has its symbol."""
    task = word_task(inner, Small(), "nouns", "bare", shots=2)
    docs = task.documents(0, "test", 0, 200)
    twins = task.corrupt(docs, role, 0, kind).documents
    changed = (twins.tokens != docs.tokens).sum(axis=1)
    in_symbols = (twins.symbols.tokens != docs.symbols.tokens).sum(axis=1)
    assert changed.tolist() == in_symbols.tolist()


def test_a_shot_shows_the_value_that_is_right():
    inner = Overwrite(pairs=4, updates=3, queries=1)
    task = word_task(inner, Small(), "nouns", "rows", shots=3)
    docs = task.documents(0, "test", 0, 100)
    for row in range(100):
        lines = task.text(docs, row).splitlines()
        right = dict(line.split() for line in lines[:7])
        shots = dict(line.split() for line in lines[7:10])
        assert shots.items() <= right.items()
        assert len(shots) == 3
        assert lines[10].strip() not in shots


@pytest.mark.parametrize("nouns", [40, 62])
def test_a_task_gets_as_many_words_as_it_can_divide_into_its_classes(nouns):
    task = word_task(Compose(), Small(), NOUNS[:nouns], "plain")
    assert task.inner.vocab % 6 == 0
    assert 0 <= nouns - len(task.words) <= nouns - task.inner.vocab < 12


@pytest.mark.parametrize("kind", ["resample", "swap"])
def test_a_task_in_words_is_corrupted_as_any_other(kind):
    task = word_task(Recall(pairs=3), Small(), "nouns")
    docs = task.documents(0, "test", 0, 5)
    ours, own = corrupt(task, docs, "key", 1, kind), task.corrupt(docs, "key", 1, kind)
    assert ours.documents.flat.tolist() == own.documents.flat.tolist()
    assert ours.usable.tolist() == own.usable.tolist()


OTHERS = ["overwrite", "compose", "hops", "copy", "spans", "track", "ngram", "hop_induction"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_tasks_have_their_own_roles_and_variables_in_words(name):
    inner = tasks.build(f"{name}_quick")
    task = word_task(inner, Small(), "random", "plain")
    docs = task.documents(0, "test", 0, 10)
    assert {*docs.symbols.roles} < {*docs.roles}
    for role in {*docs.symbols.roles} - {"bos", "divider", "next_key", "query"}:
        for row, symbol in enumerate(docs.symbols.at(role).tolist()):
            if symbol > 2:  # it may be the divider
                assert task.word(int(docs.at(role)[row])) == task.words[symbol - 3], role
    if "next_key" in docs.roles:  # after the token of the symbol before it
        before = (docs.symbols.tokens > 2) & (
            np.arange(docs.symbols.tokens.shape[1]) < docs.symbols.roles["next_key"][:, None]
        )
        assert (docs.roles["next_key"] == before.sum(axis=1) + len(task.lexicon.bos)).all()
    for variable in task.variables:
        twins = task.corrupt(docs, variable)
        symbols = task.inner.corrupt(docs.symbols, variable)
        assert twins.usable.tolist() == symbols.usable.tolist()


def test_in_symbols_that_are_words_a_task_is_itself():
    inner = Recall(pairs=3, vocab=16, passes=2)
    numbers = tuple(range(3, 19))
    task = Words(inner, Symbols(19), Template("", " ?"), tuple(map(str, numbers)), numbers)
    ours, theirs = (t.documents(0, "test", 0, 20) for t in (task, inner))
    assert ours.flat.tolist() == theirs.flat.tolist()
    assert ours.answers.tolist() == theirs.answers.tolist()
    for role, at in theirs.roles.items():
        assert ours.roles[role].tolist() == at.tolist(), role
    for kind in ("resample", "swap"):
        twins = task.corrupt(ours, "key", 5, kind), inner.corrupt(theirs, "key", 5, kind)
        assert twins[0].documents.flat.tolist() == twins[1].documents.flat.tolist()


def test_a_document_is_shown_with_a_sign_for_what_is_no_word():
    (record,) = sample(word_task(Recall(pairs=2), Small(), "nouns", "rows"), 1)
    assert record.tokens[3] == "⏎"
    assert record.answer == record.tokens[record.roles["value"]]


@dataclass(frozen=True)
class Merging(Small):
    """In a text of several words it reads one of them with what follows as one token."""

    word: str = ""

    def encode(self, text):
        tokens = super().encode(text)
        (token,) = super().encode(f" {self.word}")
        if len({*tokens}) < 5 or token not in tokens[:-1]:
            return tokens
        at = tokens.index(token)
        return [*tokens[:at], self.vocab_size - 1, *tokens[at + 2 :]]


def test_a_document_that_is_read_as_other_tokens_is_refused():
    task = word_task(Recall(pairs=4, vocab=8), Small(), "nouns", "bare")
    merging = replace(task, lexicon=Merging(word=task.words[-1]))  # every value is in a document
    with pytest.raises(InvalidInput, match="is read as other tokens than its words are alone"):
        merging.documents(0, "test", 0, 1)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"words": "verbs"}, "no words 'verbs' (known: ids, names, nouns, numbers, random)"),
        ({"template": "{key}"}, "template='{key}' must be {key}, then {value}, then at least a"),
        ({"template": " {value} {key}."}, "must be {key}, then {value}"),
        ({"template": " {key} {value}"}, "must be {key}, then {value}"),
        ({"shots": -1}, "shots=-1 must be at least 0"),
        ({"shots": 4}, "shots=4 must be below the pairs of every document"),
        (
            {"words": ["apple", "army", "artist"]},
            "words=your list: the tokenizer has 3 of them as single tokens, which are too few: "
            "pairs=4 must be at most 1",
        ),
        (
            {"inner": Recall(pairs=4, vocab=500)},
            "words=nouns: the tokenizer has 120 of them as single tokens; the task needs 500, "
            "a word for each of its symbols",
        ),
        (
            {"inner": Treecall()},
            "the template needs pairs, each a key and its value; use template=plain",
        ),
        ({"inner": Recall(pairs=4, query="value")}, "the template needs pairs"),
        (
            {"inner": Spans(min_tokens=2)},
            "the template has no place for a value that is fed; use template=plain",
        ),
        (
            {"template": "plain", "shots": 2},
            "shots=2 needs a template of pairs; use another than plain",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(options, line):
    given = {"inner": Recall(pairs=4), "words": "nouns", "template": "bare", "shots": 0} | options
    with pytest.raises(InvalidInput) as error:
        word_task(given.pop("inner"), Small(), **given).documents(0, "test", 0, 4)
    assert line in str(error.value)
    assert len(error.value.problems) == 1


def test_documents_that_have_lost_their_symbols_are_not_corrupted():
    task = word_task(Recall(pairs=3), Small(), "nouns")
    docs = task.documents(0, "test", 0, 3)
    with pytest.raises(InvalidInput, match="draw them with documents"):
        task.corrupt(docs.with_tokens(docs.tokens), "key")
