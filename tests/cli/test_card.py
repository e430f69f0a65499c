"""`mecheval card` as people and programs use it; workers work in this process."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.card_runs import THIRD_PARTY, Counted, alone
from support.tiny_scale import MICRO, as_quick

from mecheval.cli import main
from mecheval.runs.finished import Run
from mecheval.sweeps.planned import Outcome

pytestmark = pytest.mark.slow

LSTM = f"{THIRD_PARTY / 'lstm.py'}:Lstm"
MINE = """
import mecheval
from mecheval.models.mixers.attention import Attention

@mecheval.register_mixer("mine")
class Mine(Attention):
    "Mine."
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    as_quick(monkeypatch)
    with alone() as started:
        yield started


@pytest.mark.slow
def test_a_person_sees_a_table_and_where_the_card_is(of, shelf, quick, capsys):
    found = of("Lstm")
    quick.clear()
    assert main(["card", LSTM, "--out", str(shelf)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "Lstm · scale micro"
    for word in (
        "AR (3 pairs, 16 symbols)",
        "ATR (at most 32 tokens)",
        "Attention",
        "Mamba",
        "unsolved",
    ):
        assert word in out
    assert out.splitlines()[-2:] == [str(found.folder / "card.html"), str(found.folder / "card.md")]
    assert quick == []


def test_a_program_reads_the_card_as_one_object(of, shelf, capsys):
    found = of("Lstm")
    assert main(["card", LSTM, "--out", str(shelf), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found.to_dict()


@pytest.mark.slow
def test_a_dry_run_says_what_it_takes_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["card", LSTM, "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["experiments"], found["finished"], found["shapes"]) == (18, 0, 6)
    assert found["folder"].startswith("runs/card-Lstm-")
    low, high = found["first_answer_seconds"]
    assert 0 < low <= high <= found["seconds"]
    assert main(["card", LSTM, "--dry-run"]) == 0
    assert re.search(
        r"18 experiments, 18 to run · [^·]+ (seconds|minutes) with \d+ workers",
        capsys.readouterr().out,
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_failed_is_told_at_the_end_with_exit_code_1(shelf, monkeypatch, capsys):
    class Unlucky(Counted):
        def start(self, job):
            bad = job.record["seed"] == 2
            self._outcomes.append((job, Outcome("error", "no luck"))) if bad else super().start(job)

    as_quick(monkeypatch, replace(MICRO, name="unlucky"))
    monkeypatch.setattr("mecheval.sweeps.local.Local", Unlucky)
    assert main(["card", "attention", "--out", str(shelf)]) == 1
    seen = capsys.readouterr()
    lines = [line for line in seen.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 4
    assert all(line.endswith("seed 2: no luck") for line in lines)
    assert "PARTIAL" in (shelf / "card-attention-unlucky" / "card.html").read_text()


@pytest.mark.slow
def test_files_given_by_plugin_are_the_subjects_and_not_the_baselines(shelf, tmp_path, capsys):
    file = tmp_path / "extra.py"
    file.write_text(MINE)
    assert main(["card", "mine", "--plugin", str(file), "--out", str(shelf), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["architecture"] == "mine"
    assert [list(names) for names in plugins_of(found["folder"])] == [["extra.py"]] * 6
    assert plugins_of(shelf / "card-baselines-micro") == [{}] * 12


def plugins_of(folder):
    """Return the plug-ins of every run in a folder."""
    runs = [Run(path) for path in Path(folder).iterdir() if path.is_dir()]
    return [run.provenance["made_by"]["plugins"] for run in runs]


def test_help_ends_in_an_example_and_does_not_wait_for_torch():
    code = "import sys, mecheval.cli as c; c.main(['card', '--help'])"
    code += "; print({'torch', 'pandas'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *_, example, heavy = [line for line in done.stdout.splitlines() if line.strip()]
    assert example.strip() == "Example: mecheval card mamba:d_conv=2"
    assert heavy == "set()"
