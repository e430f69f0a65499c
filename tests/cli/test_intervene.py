"""`mecheval intervene` on a model that recalls by induction, and on a run."""

import json
import re

import numpy as np
import pytest
from support import known_models
from support.fault_injection import TASKS, small

from mecheval.cli import main
from mecheval.interventions.grid import MEMORY
from mecheval.interventions.interchange import interchange
from mecheval.interventions.positions import every_position
from mecheval.runs.finished import Run
from mecheval.runs.run import run
from mecheval.tasks.sample import sample

TASK = "recall:pairs=4,vocab=16"
METRICS = ["likelihood", "accuracy", "logit", "kl", "share"]


@pytest.fixture
def induction(tmp_path, monkeypatch):
    """Return the folder of a run whose model stores keys in layer 0 and finds them in layer 1."""
    experiment = small(task=TASK)
    monkeypatch.setattr(Run, "load_model", lambda run: known_models.induction())
    monkeypatch.setattr(Run, "experiment", experiment)
    monkeypatch.setattr(Run, "outcome", {"steps": 7})
    monkeypatch.setenv("COLUMNS", "120")
    return str(tmp_path)


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Return a run on trees, in which many corruptions keep the answer."""
    return run(small(task=TASKS[1], train_steps=2), tmp_path_factory.mktemp("runs"))


def shown(capsys, *arguments):
    assert main(["intervene", *map(str, arguments)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def heat_map(out):
    """Return the tokens in order, and by site the cells below them."""
    tokens, cells = [], {}
    for block in re.split(r"\n\n", out)[1:-1]:
        lines = [line for line in block.splitlines() if not line.startswith("document")]
        tokens += lines[0].split()
        for line in lines:
            if line.startswith(("blocks", "embed", "final")):
                site, *row = line.split()
                cells.setdefault(site, []).extend(row)
    return tokens, cells


@pytest.mark.slow
@pytest.mark.parametrize("width", [120, 60, 40])
def test_the_heat_map_of_a_document_shows_the_key_then_the_value_then_the_query(
    width, induction, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", str(width))
    out = shown(capsys, induction, "--document", 3)
    (record,) = sample(small(task=TASK).task, 1, 0, "test", 3)
    assert f"document 3 → {record.answer}; corrupted → none" in out
    assert all(len(line) <= width for line in out.splitlines())
    tokens, cells = heat_map(out)
    assert tokens == record.tokens
    for site, role in (
        ("blocks.0.block_in", "key"),
        ("blocks.1.block_in", "value"),
        ("blocks.1.block_out", "query"),
    ):
        assert len(cells[site]) == len(record.tokens)
        assert [i for i, cell in enumerate(cells[site]) if cell.endswith("*")] == [
            record.roles[role]
        ], site
        assert cells[site][record.roles[role]] in ("99%*", "100%*")
    changed = [b for a, b in zip(record.tokens, record.corrupted.tokens, strict=True) if a != b]
    assert re.findall(r"^corrupted +(\S+)$", out, flags=re.MULTILINE) == changed


def test_a_terminal_with_colours_shades_what_is_back(induction, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    assert main(["intervene", induction, "--document", "3", "--site", "blocks.1.block_in"]) == 0
    (row,) = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("blocks.1.block_in")
    ]
    assert re.findall(r"\x1b\[[0-9;]*48;2;0;130;50m([^\x1b]*)", row) in (["99%*"], ["100%*"])


def test_for_programs_every_position_is_a_row_and_the_document_is_beside(induction, capsys):
    found = json.loads(
        shown(capsys, induction, "--document", 3, "--site", "blocks.1.block_in", "--json")
    )
    task = small(task=TASK).task
    assert found["document"] == sample(task, 1, 0, "test", 3)[0].to_dict()
    rows = [row for row in found["rows"] if row["metric"] == "likelihood" and row["site"]]
    docs = task.documents(0, "test", 3, 4)
    assert [row["role"] for row in rows] == every_position(docs)
    assert {(row["n"], row["split"], row["corrupted"]) for row in rows} == {(1, "test", "key")}
    grid = interchange(
        known_models.induction(),
        task,
        ["blocks.1.block_in"],
        every_position(docs),
        start=3,
        documents=1,
    )
    assert [row["value"] for row in rows] == [
        float(values["likelihood"][0]) for values in grid.cells.values()
    ]


@pytest.mark.parametrize("metric", METRICS)
def test_a_grid_shows_the_metric_that_is_asked_for(metric, induction, capsys):
    out = shown(
        capsys, induction, "--metric", metric, "--site", "blocks.1.block_in", "--documents", 16
    )
    rows = json.loads(
        shown(capsys, induction, "--json", "--site", "blocks.1.block_in", "--documents", 16)
    )["rows"]
    (value,) = [row["value"] for row in rows if (row["metric"], row["role"]) == (metric, "value")]
    cells = next(line for line in out.splitlines() if line.startswith("blocks.1.block_in")).split()
    assert cells[2] == (f"{value:.2f}*" if metric in ("logit", "kl") else f"{value:.1%}*")
    assert f"\n{metric}" in out
    assert [cell.endswith("*") for cell in cells[1:]] == [False, True, False, False, False]


def test_after_a_swap_the_answer_of_the_corrupted_document_is_shown(induction, capsys):
    asked = ["--kind", "swap", "--site", "blocks.1.block_in", "--documents", 16]
    out = shown(capsys, induction, "--metric", "counterfactual", *asked)
    assert re.search(
        r"likelihood of the corrupted document's answer: clean \d\.\d% \[.*, corrupt (99|100)\.\d%",
        out,
    )
    rows = json.loads(shown(capsys, induction, *asked, "--json"))["rows"]
    assert "counterfactual" in {row["metric"] for row in rows}


def test_a_place_that_no_document_has_is_null_and_a_dash(induction, capsys):
    asked = [
        induction,
        "--role",
        "query+1",
        "--role",
        "value",
        "--site",
        "blocks.1.block_in",
        "--documents",
        8,
    ]
    found = json.loads(shown(capsys, *asked, "--json"), parse_constant=pytest.fail)
    (row,) = [
        row for row in found["rows"] if (row["role"], row["metric"]) == ("query+1", "likelihood")
    ]
    assert (row["value"], row["low"], row["high"], row["n"]) == (None, None, None, 0)
    assert re.search(r"blocks\.1\.block_in +– +\d", shown(capsys, *asked))


def test_a_document_that_keeps_its_answer_is_refused_with_those_that_do_not(trees, capsys):
    task = small(task=TASKS[1]).task
    usable = task.corrupt(task.documents(0, "test", 0, 40), "key", 0).usable
    kept = int(np.flatnonzero(~usable)[-1])
    assert main(["intervene", str(trees.folder), "--document", str(kept)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    numbers = [int(number) for number in re.findall(r"one of ([\d, ]+)$", line)[0].split(", ")]
    assert line.startswith(
        f"error: document={kept} keeps its answer when its key is corrupted; choose one of "
    )
    assert set(numbers) & set(range(40)) == {
        i for i in range(kept - 10, 40) if i < kept + 10 and usable[i]
    }
    assert main(["intervene", str(trees.folder), "--document", str(numbers[0])]) == 0
    tokens, _ = heat_map(capsys.readouterr().out)
    assert tokens == sample(task, 1, 0, "test", numbers[0])[0].tokens


def test_a_terminal_sees_how_far_it_is(induction, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("mecheval.terminal.grid_view.REFRESH_SECONDS", 0.0)
    assert main(["intervene", induction, "--documents", "8", "--json"]) == 0
    captured = capsys.readouterr()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", captured.err)
    assert f"{TASK} · attention" in plain
    percents = [int(number) for number in re.findall(r"(\d+)%", plain)]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert len(set(percents)) > 10, "not only at the end"
    assert re.search(r"\d:\d\d:\d\d", plain), "the time left"
    json.loads(captured.out)


def test_memory_is_in_megabytes(induction, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "mecheval.interventions.grid_eval.interchange",
        lambda *given, memory, **others: (
            asked.append(memory) or interchange(*given, memory=memory, **others)
        ),
    )
    found = [
        shown(capsys, induction, "--documents", 8, *memory) for memory in ((), ("--memory", 3))
    ]
    assert asked == [MEMORY, 3 * 2**20]
    assert found[0] == found[1]
