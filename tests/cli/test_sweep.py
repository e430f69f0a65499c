"""`mecheval sweep run`, `status` and `retry`, with workers in this process."""

import json
import re

import pytest
from support.fault_injection import small
from support.sweep_runs import Inline, own_recipes, recipe_file, results  # noqa: F401, a fixture

from mecheval.cli import main
from mecheval.core.errors import Paused
from mecheval.report.study import Study
from mecheval.results.plan import Plan
from mecheval.runs.files import write_json
from mecheval.runs.lock import locked
from mecheval.runs.pending import PROGRESS
from mecheval.runs.run import run
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.planned import Outcome, PlannedRun
from mecheval.sweeps.sweep import Sweep
from mecheval.sweeps.worker import work

pytestmark = pytest.mark.usefixtures("own_recipes")


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    monkeypatch.setattr("mecheval.sweeps.local.Local", Inline)


@pytest.fixture
def words(tmp_path):
    file = str(recipe_file(tmp_path))
    return ["sweep", "run", "mine", "--no-report", "--plugin", file, "--out", str(tmp_path / "out")]


def printed(capsys):
    return json.loads(capsys.readouterr().out)


def test_a_sweep_is_one_object_for_programs(words, capsys, tmp_path):
    assert main([*words, "--json"]) == 0
    found = printed(capsys)
    assert list(found) == ["recipe", "scale", "folder", "counts", "runs", "report", "figures"]
    assert (found["report"], found["figures"]) == (None, [])
    assert (found["recipe"], found["scale"], found["counts"]) == ("mine", "quick", {"done": 2})
    assert [(run["seed"], run["status"], run["steps"]) for run in found["runs"]] == [
        (0, "done", 12),
        (1, "done", 12),
    ]
    assert main(["sweep", "status", str(tmp_path / "out"), "--json"]) == 0
    told = printed(capsys)
    assert list(told) == ["recipe", "scale", "folder", "counts", "runs"]
    assert told["counts"] == found["counts"]
    assert [run["key"] for run in told["runs"]] == [run["key"] for run in found["runs"]]


def test_a_person_sees_lines_of_what_starts_and_ends(words, capsys):
    assert main(words) == 0
    seen = capsys.readouterr()
    cell = "recall:pairs=3,vocab=16 · attention · width 8 · layers 2"
    assert seen.err.splitlines()[0] == "1 running · 1 waiting"
    assert [line for line in seen.err.splitlines() if line.endswith("seed 1")] == [
        f"{status} · {cell} · rate 0.001 · seed 1" for status in ("running", "done")
    ]
    assert seen.out.splitlines()[-1] == "2 done"
    assert re.search(f"{cell} +■■", seen.out)


def test_the_folder_is_named_after_recipe_and_scale(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words[:-2]) == 0
    assert Plan.read(tmp_path / "runs" / "mine-quick").scale == "quick"


@pytest.mark.slow
def test_a_dry_run_says_what_it_takes_and_writes_nothing(words, capsys, tmp_path):
    assert main([*words, "--dry-run", "--json"]) == 0
    found = printed(capsys)
    assert (found["experiments"], found["finished"], found["shapes"], found["measured"]) == (
        2,
        0,
        1,
        1,
    )
    (group,) = found["groups"]
    assert (group["runs"], group["steps"]) == (2, 24)
    assert group["seconds"] == found["core_seconds"] > 0
    assert not (tmp_path / "out").exists()
    assert main(words) == 0
    before = results(tmp_path / "out")
    capsys.readouterr()
    assert main([*words, "--dry-run"]) == 0
    assert "2 experiments, 0 to run" in capsys.readouterr().out
    assert results(tmp_path / "out") == before


def test_a_dry_run_does_not_count_what_would_be_reused(words, capsys, tmp_path):
    assert main(words) == 0
    capsys.readouterr()
    assert (
        main(
            [
                *words[:-1],
                str(tmp_path / "new"),
                "--reuse",
                str(tmp_path / "out"),
                "--dry-run",
                "--json",
            ]
        )
        == 0
    )
    assert (printed(capsys)["finished"], (tmp_path / "new").exists()) == (2, False)


@pytest.mark.slow
def test_what_failed_is_reported_and_retried_without_the_recipe(
    words, capsys, tmp_path, monkeypatch
):
    class Unlucky(Inline):
        def start(self, run):
            bad = run.record["seed"] == 1
            self._outcomes.append((run, Outcome("error", "no [luck]"))) if bad else super().start(
                run
            )

    monkeypatch.setattr("mecheval.sweeps.local.Local", Unlucky)
    assert main(words) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2].endswith("rate 0.001 · seed 1: no [luck]")
    assert lines[-1].startswith("error: 1 of 2 runs failed; 'mecheval sweep retry")
    out = str(tmp_path / "out")
    assert main(["sweep", "status", out]) == 0
    shown = capsys.readouterr().out
    assert "1 done · 1 error" in shown
    assert "no [luck]" in shown
    monkeypatch.setattr("mecheval.sweeps.local.Local", Inline)
    assert main(["sweep", "retry", out, "--plugin", words[5], "--json"]) == 0
    assert printed(capsys)["counts"] == {"done": 2}


def test_a_retry_does_not_start_what_was_never_begun(capsys, tmp_path):
    sweep = Sweep([small()], tmp_path, "mine", "own", SweepOptions())
    sweep.plan.write(tmp_path)
    assert main(["sweep", "retry", str(tmp_path), "--json"]) == 0
    assert printed(capsys)["counts"] == {"waiting": 1}


def test_a_stopped_run_is_not_finished_and_is_resumed_without_retry(capsys, tmp_path):
    experiment = small(train_steps=12)
    sweep = Sweep([experiment], tmp_path, "mine", "own", SweepOptions())
    sweep.plan.write(tmp_path)
    with pytest.raises(Paused):
        run(experiment, tmp_path, until=6)
    assert main(["sweep", "status", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "1 stopped" in shown
    assert "stopped at step 6 of 12; rerun the same command to resume" in shown
    assert "gone" not in shown
    assert Study.read(tmp_path).counts == {"done": 0, "diverged": 0, "failed": 0, "missing": 1}
    (resumed,) = sweep.execute(Inline)
    assert resumed.status == "done"


@pytest.mark.parametrize("command", ["sweep run mine", "card attention"])
@pytest.mark.parametrize(
    ("device", "line"),
    [
        ("cuda", "error: device 'cuda' is not available; use --device cpu"),
        ("gpu", "error: device=gpu must be one of cpu, cuda, mps"),
    ],
)
def test_a_device_that_is_not_there_is_refused(
    command, device, line, capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    file, out = str(recipe_file(tmp_path)), tmp_path / "out"
    words = [*command.split(), "--plugin", file, "--out", str(out), "--device", device]
    assert main(words) == 2
    assert capsys.readouterr().err.splitlines() == [line]
    assert not out.exists()


def test_the_device_reaches_the_workers(tmp_path):
    options = SweepOptions(device="mps")
    (planned,) = Sweep([small()], tmp_path, "mine", "own", options).runs()
    assert planned.made_by["device"] == "mps"
    outcome = work(PlannedRun.from_json(planned.to_json()))
    assert "device 'mps' is not available" in outcome.reason


def test_status_shows_the_speed_of_a_running_run(capsys, tmp_path):
    sweep = Sweep([small()], tmp_path, "mine", "own", SweepOptions())
    sweep.plan.write(tmp_path)
    (planned,) = sweep.runs()
    with planned.place.claim():
        planned.place.begin(planned.record, planned.made_by)
        write_json(planned.place.folder / PROGRESS, {"steps": 5, "total": 12, "speed": 0.25})
        assert main(["sweep", "status", str(tmp_path), "--json"]) == 0
        (run,) = printed(capsys)["runs"]
        assert (run["status"], run["steps"], run["speed"]) == ("running", 5, 0.25)
        assert main(["sweep", "status", str(tmp_path)]) == 0
        assert "0:00:28" in capsys.readouterr().out


def test_the_second_launcher_leaves_with_3(words, capsys, tmp_path):
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out"):
        assert main(words) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "in use by another process" in line
    assert main(words) == 0


@pytest.mark.slow
def test_it_ends_with_verdicts_figure_and_report(words, capsys, tmp_path):
    """The recipe is demo by name, whose figure shows verdicts."""
    words.remove("--no-report")
    out = tmp_path / "out"
    assert main(words) == 0
    seen = capsys.readouterr().out
    assert re.search("Attention +[0-9]+%", seen)
    assert seen.splitlines()[-1] == str(out / "report.html")
    assert "Attention" in (out / "report.html").read_text()
    sweep = Sweep([small(), small(seed=1)], tmp_path / "demo", "demo", "quick", SweepOptions())
    sweep.execute(Inline)
    assert main(["sweep", "retry", str(tmp_path / "demo"), "--json"]) == 0
    found = printed(capsys)
    figures = [tmp_path / "demo" / f"demo-quick.{ending}" for ending in ("png", "pdf")]
    assert found["report"] == str(tmp_path / "demo" / "report.html")
    assert found["figures"] == [str(path) for path in figures]
    assert all(path.stat().st_size > 1000 for path in figures)


@pytest.mark.slow
def test_a_sweep_with_failures_writes_a_partial_report(words, capsys, tmp_path, monkeypatch):
    class Unlucky(Inline):
        def start(self, run):
            bad = run.record["seed"] == 1
            self._outcomes.append((run, Outcome("error", "no luck"))) if bad else super().start(run)

    monkeypatch.setattr("mecheval.sweeps.local.Local", Unlucky)
    words.remove("--no-report")
    assert main(words) == 1
    seen = capsys.readouterr()
    assert "partial: 1 done, 1 failed" in seen.out
    assert "1 of 2 runs failed" in seen.err
    assert "PARTIAL" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_an_interrupted_sweep_writes_a_partial_report(words, capsys, tmp_path, monkeypatch):
    class Interrupting(Inline):
        def start(self, run):
            if run.record["seed"] == 1:
                raise KeyboardInterrupt("stopped by SIGINT")
            super().start(run)

    monkeypatch.setattr("mecheval.sweeps.local.Local", Interrupting)
    words.remove("--no-report")
    assert main(words) == 130
    seen = capsys.readouterr()
    assert "partial: 1 done, 1 missing" in seen.out
    assert seen.err.splitlines()[-1].endswith("rerun the same command to resume")
    assert "PARTIAL" in (tmp_path / "out" / "report.html").read_text()


def test_the_old_spelling_works_and_names_the_new_one(words, capsys):
    words.remove("run")
    assert main(words) == 0
    seen = capsys.readouterr()
    assert seen.err.splitlines()[0].startswith(
        "note: 'mecheval sweep RECIPE' is now 'mecheval sweep run RECIPE'"
    )
    assert "2 done" in seen.out
    assert main(["sweep", "--scale", "quick", *words[1:]]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "status", "retry"])
def test_a_recipe_may_be_named_like_a_command(command, tmp_path, capsys):
    file = tmp_path / "named.py"
    file.write_text(
        recipe_file(tmp_path).read_text().replace('recipe("mine")', f'recipe("{command}")')
    )
    words = ["sweep", "run", command, "--plugin", str(file), "--out", str(tmp_path / "out")]
    assert main([*words, "--no-report"]) == 0


def test_recipes_are_listed(capsys):
    assert main(["list", "recipes", "--json"]) == 0
    found = printed(capsys)
    assert {"name", "figure", "summary"} == set(found[0])
    assert "figure3" in [entry["name"] for entry in found]
    assert main(["list", "recipes"]) == 0
    shown = capsys.readouterr().out
    assert all(
        entry["name"] in shown and entry["summary"] in " ".join(shown.split()) for entry in found
    )
