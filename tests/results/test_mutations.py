"""A seeded part of the damage to folders that `make torture` does at length."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from support import mutate, mutations
from support.bounded import End
from support.made_runs import behaviour, experiment, finished

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
