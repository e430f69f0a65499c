"""What holds for every task with roles of its own, over settings drawn at random."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import solve
from support.task_facts import assert_drawn_alike, equal, text_of

from mecheval import LanguageModel, ModelConfig
from mecheval.cli import main
from mecheval.interventions.grid import GridOptions
from mecheval.interventions.grid_eval import evaluate_grid
from mecheval.plugins import build_task
from mecheval.tasks import tasks
from mecheval.tasks.chance import chance
from mecheval.tasks.check import check_task
from mecheval.tasks.corruption import corrupt
from mecheval.tasks.dataset_stats import describe
from mecheval.tasks.documents import NO_ANSWER
from mecheval.tasks.sample import sample
from mecheval.tasks.task import spec_of


@st.composite
def overwrite(draw):
    half = draw(st.integers(2, 60))
    pairs = draw(st.integers(1, min(half, 20)))
    counts = {name: draw(st.integers(1, pairs)) for name in ("updates", "queries")}
    return {"vocab": 2 * half, "pairs": pairs, **counts}


@st.composite
def compose(draw):
    grid = draw(st.integers(2, 5))
    third = draw(st.integers(grid**2, 40))
    return {"grid": grid, "queries": draw(st.integers(1, grid**2)), "vocab": 3 * third}


@st.composite
def hops(draw):
    nodes = draw(st.integers(2, 30))
    return {
        "nodes": nodes,
        "min_nodes": draw(st.none() | st.integers(2, nodes)),
        "hops": draw(st.integers(1, 9)),
        "queries": draw(st.integers(1, 6)),
        "vocab": draw(st.integers(nodes, 60)),
    }


@st.composite
def spans(draw):
    half = draw(st.integers(1, 20))
    sizes = [draw(st.integers(1, min(half, 4))) for _ in range(2)]
    return {
        "pairs": draw(st.integers(1, 12)),
        "key_tokens": sizes[0],
        "value_tokens": sizes[1],
        "min_tokens": draw(st.integers(1, min(sizes))),
        "vocab": 2 * half,
    }


@st.composite
def copy(draw):
    limits = {"count": (1, 12), "blanks": (0, 30), "vocab": (2, 20)}
    return {name: draw(st.integers(*limit)) for name, limit in limits.items()}


@st.composite
def track(draw):
    return {"group": draw(st.sampled_from(["Z60", "A5", "S3"])), "length": draw(st.integers(2, 40))}


@st.composite
def hop_induction(draw):
    hops, letters = draw(st.integers(1, 6)), draw(st.integers(2, 9))
    return {"hops": hops, "letters": letters, "length": draw(st.integers(4 * letters + hops, 60))}


@st.composite
def ngram(draw):
    order, vocab = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    shortest = 8 * vocab + vocab**order // 2  # shorter ones may be refused
    return {"order": order, "vocab": vocab, "length": draw(st.integers(shortest, shortest + 50))}


SETTINGS = {
    "overwrite": overwrite(),
    "compose": compose(),
    "hops": hops(),
    "spans": spans(),
    "copy": copy(),
    "track": track(),
    "hop_induction": hop_induction(),
    "ngram": ngram(),
}
every_task = pytest.mark.parametrize("name", SETTINGS)
splits = st.sampled_from(["train", "dev", "test"])


def drawn(data, name):
    return tasks.get(name)(**data.draw(SETTINGS[name]))


@every_task
@given(st.data(), splits, st.integers(0, 2**40))
@settings(max_examples=10)
def test_compiled_documents_are_those_of_the_plain_twin(name, data, split, start):
    assert_drawn_alike(drawn(data, name), 1, split, start, start + 4)


@pytest.mark.slow
@every_task
@given(st.data(), splits, st.integers(0, 2**40))
@settings(max_examples=200)
def test_many_compiled_documents_are_those_of_the_plain_twin(name, data, split, start):
    assert_drawn_alike(drawn(data, name), 1, split, start, start + 4)


@every_task
@given(st.data(), splits, st.integers(0, 2**40))
@settings(max_examples=8)
def test_a_plain_solver_answers_every_document_and_every_twin(name, data, split, start):
    assert_answered(drawn(data, name), split, start)


@pytest.mark.slow
@every_task
@given(st.data(), splits, st.integers(0, 2**40))
@settings(max_examples=150)
def test_a_plain_solver_answers_many_documents_and_twins(name, data, split, start):
    assert_answered(drawn(data, name), split, start)


def assert_answered(task, split, start):
    docs = task.documents(0, split, start, start + 5)
    assert docs.lengths.max() <= task.max_len
    assert docs.flat.min() > 0
    assert docs.flat.max() < task.vocab_size
    assert docs.answers.min() > 0
    assert (docs.queries[:, 0] == docs.roles["query"]).all()
    assert docs.answers.tolist() == [solve(task, docs, i) for i in range(5)]
    assert np.array_equal(task.answers(docs), docs.answers)
    for role in task.variables:
        for kind in ("resample", "swap"):
            assert_honest(task, docs, role, kind)


def assert_honest(task, docs, role, kind):
    """The answers of a twin are worked out anew, and it is usable if the first one has changed."""
    twins = task.corrupt(docs, role, 3, kind)
    after = [solve(task, twins.documents, i) for i in range(len(docs))]
    assert twins.documents.answers.tolist() == after, (role, kind)
    first = np.array([answers[0] for answers in after])
    changed = (twins.documents.tokens != docs.tokens).any(axis=1) & (first != docs.answer)
    assert (twins.usable == (changed & ((kind != "swap") | (first != NO_ANSWER)))).all()
    if kind == "resample":
        symbols = task.symbols(role)
        assert np.isin(docs.at(role), symbols).all()
        assert np.isin(twins.documents.at(role), symbols).all()
        assert ((twins.documents.at(role) != docs.at(role)) | (len(symbols) == 1)).all()
    some = np.arange(len(docs))[::-2]
    alone = task.corrupt(docs[some], role, 3, kind)
    assert equal(alone.documents, twins.documents[some])


@every_task
@given(st.data())
@settings(max_examples=4)
def test_a_task_with_any_setting_passes_its_check(name, data):
    task = drawn(data, name)
    if len(set(text_of(task.documents(0, "test", 0, 200)))) > 100:  # else splits may coincide
        check_task(task, documents=40)


@every_task
@given(st.data(), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), splits), max_size=6))
@settings(max_examples=5)
def test_a_block_is_cut_anywhere_and_drawn_in_any_order(name, data, blocks):
    task = drawn(data, name)
    whole = {split: task.documents(7, split, 0, 80) for split in ("train", "dev", "test")}
    for start, length, split in blocks:
        block = task.documents(7, split, start, start + length)
        assert equal(block, whole[split][start : start + length])


@every_task
@given(st.data())
@settings(max_examples=8)
def test_a_task_is_read_back_from_its_spec_without_defaults(name, data):
    task = drawn(data, name)
    assert build_task(str(spec_of(name, task))) == task
    assert str(spec_of(name, tasks.get(name)())) == name
    options = dict(spec_of(name, task).options)
    assert all(
        value != field.default
        for field in fields(task)
        for n, value in options.items()
        if n == field.name
    )


@every_task
def test_no_documents_have_no_twins(name):
    task = build_task(name)
    none = task.documents(0, "test", 5, 5)
    assert len(none) == len(corrupt(task, none, task.variables[0]).usable) == 0


@every_task
def test_every_view_of_a_task_knows_it(name):
    task = build_task(f"{name}_quick")
    (record,) = sample(task, 1)
    assert set(task.variables) <= record.roles.keys()
    assert record.answers == [record.answer, *record.answers[1:]]
    facts = describe(task, train=200, evaluation=100)
    assert 0 <= facts.splits[0].answer_survived_key_corruption < 100
    levels = chance(task)
    assert 0 < levels.any_value < 1
    assert 0 < levels.in_document <= 1
    assert "key" not in docs_roles(task) or levels.best < 0.7


def docs_roles(task):
    return task.documents(0, "test", 0, 1).roles


@every_task
def test_a_sample_shows_every_role_and_corrupts_the_first_variable(name, capsys):
    task = build_task(f"{name}_quick")
    assert main(["sample", f"{name}_quick", "-n", "2"]) == 0
    shown = capsys.readouterr().out
    assert f"{task.variables[0]} corrupted by resample" in shown
    legend = shown.partition("\n")[2].partition("document 0")[0]
    assert docs_roles(task).keys() <= {*legend.split()}
    assert "<table" in sample(task, 1)._repr_html_()
    roles = set(task.documents(0, "test", 0, 1).to_frame()["role"].dropna())
    assert {"query"} <= roles <= docs_roles(task).keys()


@every_task
def test_a_grid_is_measured_at_the_roles_of_the_task(name):
    task = build_task(f"{name}_quick")
    config = ModelConfig("attention", d_model=8, max_len=task.max_len)
    model = LanguageModel(config, task.vocab_size)
    found = evaluate_grid(model, task, GridOptions(documents=40))
    assert found.grid.corrupted == task.variables[0]
    roles = {row.role for row in found.rows(0)} - {None}
    assert roles == docs_roles(task).keys() - {"bos"}
    verdict_needs = {"key", "value", "next_key", "query"}
    expected = verdict_needs <= roles and task.variables[0] == "key"
    assert (found.verdict is not None) == expected


@every_task
def test_usable_twins_are_common_for_some_variable_by_either_kind(name):
    task = build_task(f"{name}_quick")
    docs = task.documents(0, "test", 0, 300)
    for kind in ("resample", "swap"):
        shares = [task.corrupt(docs, role, 0, kind).usable.mean() for role in task.variables]
        assert max(shares) > 0.5, (kind, shares)
