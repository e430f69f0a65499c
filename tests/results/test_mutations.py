"""A seeded part of the damage to folders that `make torture` does at length."""

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import mutate, mutations
from support.bounded import End
from support.made_runs import behaviour, experiment, finished, sweep

SCRIPT = Path(mutate.__file__)


@pytest.mark.slow
def test_no_damaged_folder_crashes_a_command_or_is_left_out_without_a_word():
    command = [sys.executable, SCRIPT, "--cases", "6", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert json.loads(done.stdout)["problems"] == []


@pytest.fixture
def case(tmp_path):
    damage = mutations.Damage("truncated", "rows.jsonl", certain=True)
    return mutate.Case(0, "runs", tmp_path / "runs", tmp_path / "runs" / "one", damage)


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (("results", "runs"), End(0, b"[]", b"", 0.1)),
        (("keep", "runs"), End(0, b'{"runs": 3}', b"", 0.1)),
        (("results", "runs"), End(1, b"[]", b"error: some run is damaged", 0.1)),
        (("runs", "runs"), End(0, b'[{"status": "done"}]', b"", 0.1)),
        (("runs", "runs"), End(0, b'[{"status": "done"}, {"status": "done"}]' * 1, b"", 0.1)),
    ],
)
def test_a_run_that_is_left_out_without_a_word_is_noticed(case, words, end):
    assert mutate.omissions(case, words, end)


def test_an_answer_about_fewer_runs_is_noticed(case):
    case = replace(case, damage=replace(case.damage, certain=False))
    words, end = ("report", "runs"), b'{"done": 3, "diverged": 0, "failed": 0, "missing": 0}'
    assert not mutate.omissions(case, words, End(0, end, b"", 0.1), expected=3)
    (problem,) = mutate.omissions(case, words, End(0, end, b"", 0.1), expected=4)
    assert problem.text == "3 runs are counted of 4"
    assert not mutate.omissions(case, words, End(0, end, b"warning: one is", 0.1), expected=4)


@pytest.mark.parametrize("name", ["sweep", "figure", "claims", "compare", "keep", "report"])
def test_a_damaged_plan_that_is_not_named_is_noticed(name, case):
    damage = mutations.Damage("truncated", "sweep.json", certain=True)
    plan = replace(case, kind="plan", target=case.folder, damage=damage)
    assert mutate.omissions(plan, (name, "runs"), End(0, b"{}", b"", 0.1))
    assert mutate.omissions(plan, (name, "runs"), End(3, b"", b"error: no", 0.1))
    named = End(3, b"", b"error: runs/sweep.json is damaged", 0.1)
    assert not mutate.omissions(plan, (name, "runs"), named)


def test_a_table_that_drops_a_damaged_run_is_found(tmp_path, monkeypatch):
    """Planted: nobody says that a run is damaged."""
    experiments = [experiment(name, seed=seed) for name in ("mamba", "h3") for seed in (0, 1, 2)]
    folder = sweep(tmp_path / "sweep", "demo", experiments, lambda _: behaviour(0.9, 0.8))
    target = min(path for path in folder.iterdir() if path.is_dir())
    damage = mutations.damage_file(random.Random(1), target / "rows.jsonl")
    case = mutate.Case(0, "sweep", folder, target, damage)
    monkeypatch.setattr(mutate.Case, "commands", lambda case: [WORDS])
    ((_, end, problems),) = mutate.carry_out(case, {})
    assert (end.code, problems) == (1, [])
    monkeypatch.setattr("mecheval.results.table.Results.damaged", lambda results: [])
    ((_, end, problems),) = mutate.carry_out(case, {})
    assert (end.code, [problem.kind for problem in problems]) == (0, ["omission"])


WORDS = ("compare", "sweep", "--by", "architecture", "--json")


def test_a_run_that_is_named_is_not_left_out(case):
    assert not mutate.omissions(case, ("results", "runs"), End(1, b"[]", b"damaged: one", 0.1))


def test_mended_damage_passes_the_checksums(tmp_path):
    from mecheval.runs.finished import Run

    one = experiment()
    finished(tmp_path, one, behaviour(0.9, 0.8), curve=[{"step": 1, "loss": 1.0}])
    folder = tmp_path / one.name
    path = folder / "rows.jsonl"
    before = path.read_bytes()
    mutations.mend_lines(random.Random(0), path)
    mutations.mend(folder, path)
    assert path.read_bytes() != before
    Run(folder).verify()
