"""A corruption that is registered by name is like a built-in one, or refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from support.fault_injection import small
from support.known_models import induction

from mecheval import (
    CheckFailed,
    Corrupted,
    InvalidInput,
    Recall,
    corrupt,
    interchange,
    register_corruption,
    replace_tokens,
    sample,
)
from mecheval.cli import main
from mecheval.runs.finished import Run

TASK = Recall(pairs=4, vocab=16)
FILE = """
import numpy as np
from mecheval import register_corruption, replace_tokens

@register_corruption("neighbour")
def neighbour(task, docs, role, seed):
    "Take the next symbol of the same class."
    symbols, tokens = task.symbols(role), docs.tokens.copy()
    following = (docs.at(role) + 1 - symbols.start) % len(symbols) + symbols.start
    np.put_along_axis(tokens, docs.roles[role][:, None], following[:, None], axis=1)
    return replace_tokens(task, docs, tokens)
"""


def neighbour(task, docs, role, seed):
    """Take the next symbol of the same class."""
    symbols, tokens = task.symbols(role), docs.tokens.copy()
    following = (docs.at(role) + 1 - symbols.start) % len(symbols) + symbols.start
    np.put_along_axis(tokens, docs.roles[role][:, None], following[:, None], axis=1)
    return replace_tokens(task, docs, tokens)


@pytest.fixture
def docs(own_names):
    return TASK.documents(0, "test", 0, 40)


def test_a_registered_corruption_is_reached_by_its_name_everywhere(docs):
    register_corruption("neighbour")(neighbour)
    twins = TASK.corrupt(docs, "key", kind="neighbour")
    symbols = TASK.symbols("key")
    moved = (twins.documents.at("key") - docs.at("key")) % len(symbols)
    assert (moved == 1).all()
    assert (sample(TASK, 1, kind="neighbour")[0].corrupted.ids) == twins.documents.tokens[
        0
    ].tolist()
    grid = interchange(induction(), TASK, ["blocks.1.block_in"], kind="neighbour", documents=40)
    assert len(grid.clean["likelihood"]) == twins.usable.sum() > 20
    share = {row.role: row.value for row in grid.rows(metrics=["share"])}
    assert share["value"] > 0.9 > 0.1 > share["divider"]


def test_the_counterfactual_is_read_where_every_twin_has_an_answer(docs):
    @register_corruption("other_question")
    def other_question(task, docs, role, seed):
        asked = np.where(docs.roles["key"] == 1, 3, 1)[:, None]
        tokens = docs.tokens.copy()
        tokens[:, -1:] = np.take_along_axis(docs.tokens, asked, axis=1)
        return replace_tokens(task, docs, tokens)

    grid = interchange(induction(), TASK, ["blocks.1.block_in"], kind="other_question")
    assert grid.corrupt["counterfactual"].mean() > 0.9
    register_corruption("neighbour")(neighbour)
    grid = interchange(induction(), TASK, ["blocks.1.block_in"], kind="neighbour")
    assert "counterfactual" not in grid.corrupt


def shorter(task, docs, role, seed):
    return Corrupted(docs[:-1], np.ones(len(docs) - 1, bool))


def moved_roles(task, docs, role, seed):
    twins = neighbour(task, docs, role, seed)
    roles = {**docs.roles, "value": docs.roles["value"] + 1}
    return replace(twins, documents=replace(twins.documents, roles=roles))


def beyond_the_vocabulary(task, docs, role, seed):
    tokens = docs.tokens.copy()
    tokens[:, 1] = task.vocab_size
    return replace_tokens(task, docs, tokens)


def strange_answer(task, docs, role, seed):
    twins = neighbour(task, docs, role, seed)
    answers = np.full_like(docs.answers, -7)
    return replace(twins, documents=replace(twins.documents, answers=answers))


def unchanged(task, docs, role, seed):
    return Corrupted(docs, np.ones(len(docs), bool))


def among_others(task, docs, role, seed):
    tokens = docs.tokens.copy()
    tokens[:, 1] = 3 + (np.random.default_rng(len(docs)).integers(0, 8, len(docs)))
    return replace_tokens(task, docs, tokens)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda task, docs, role, seed: docs, "must return Corrupted"),
        (shorter, "must not change the index of documents"),
        (moved_roles, "must not change the roles of documents"),
        (beyond_the_vocabulary, "must return tokens from 0 and below vocab_size=19"),
        (strange_answer, "must return answers from -1"),
        (unchanged, "kept its tokens or its answer must not be usable"),
        (among_others, "must treat documents independently"),
    ],
)
def test_a_corruption_that_breaks_its_contract_is_refused(function, problem, docs):
    register_corruption("broken")(function)
    with pytest.raises(CheckFailed, match=problem):
        corrupt(TASK, docs, "key", kind="broken")


def test_names_are_unique_and_unknown_ones_refused(docs):
    with pytest.raises(InvalidInput, match="name='swap' is taken by another corruption"):
        register_corruption("swap")(neighbour)
    with pytest.raises(InvalidInput, match="kind=neighbor must be one of resample, swap"):
        corrupt(TASK, docs, "key", kind="neighbor")


def test_a_task_without_answers_is_told_what_it_lacks(docs):
    class Bare:
        vocab_size = 19

    with pytest.raises(InvalidInput, match=r"Bare must have answers\(docs\)"):
        replace_tokens(Bare(), docs, docs.tokens)


def test_the_command_line_knows_a_corruption_in_a_file(docs, tmp_path, monkeypatch, capsys):
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    monkeypatch.setattr(Run, "load_model", lambda run: induction())
    monkeypatch.setattr(Run, "experiment", small(task="recall:pairs=4,vocab=16"))
    monkeypatch.setattr(Run, "outcome", {"steps": 7})
    asked = ["--kind", "neighbour", "--plugin", str(file)]
    command = ["intervene", str(tmp_path), "--site", "blocks.1.block_in", *asked]
    assert main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["role"] for row in rows if row["metric"] == "share"} >= {"key", "value"}
    assert main([*command, "--metric", "counterfactual"]) == 2
    assert "leaves documents without an answer" in capsys.readouterr().err
    assert main(["list", "corruptions", "--plugin", str(file)]) == 0
    out = capsys.readouterr().out
    assert "neighbour" in out
    assert "Take the next symbol of the same class." in out
