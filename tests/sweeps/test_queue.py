"""A queue trains nothing that is kept, keeps what has finished, and resumes from what is kept."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.sweep_runs import Inline, own_recipes, recipe_file  # noqa: F401, a fixture

from mecheval.cli import main
from mecheval.core.errors import StoreError
from mecheval.plugins import load_plugin
from mecheval.report.study import Study
from mecheval.results.archive import Archive
from mecheval.results.table import Results
from mecheval.runs.run import run
from mecheval.sweeps.queue import Queue
from mecheval.sweeps.recipe import get_experiments, get_scale
from mecheval.sweeps.worker import StopSignal

pytestmark = pytest.mark.usefixtures("own_recipes")

RESULTS = Path(__file__).parents[2] / "docs" / "results"
# the first run of `theirs` is the last of `mine`
THEIRS = """
@recipe("theirs")
def theirs(scale):
    "Two, one of which is planned by the other recipe, too."
    for seed in (1, 2):
        yield Experiment.of({**FIELDS, "train.steps": STEPS, "eval.every": 50, "seed": seed})
"""
QUEUE = """
[[study]]
recipe = "mine"
scale = "quick"
why = "It is first."

[[study]]
recipe = "theirs"
scale = "quick"
why = "It is second."
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A repository with a queue of two studies of two runs each, three runs in all."""
    monkeypatch.chdir(tmp_path)
    recipe_file(tmp_path, more=THEIRS)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "queue.toml").write_text(QUEUE)
    return tmp_path


WORDS = ["sweep", "run", "--queue", "kept/queue.toml", "--plugin", "mine.py", "--workers", "1"]


@pytest.fixture
def trained(monkeypatch):
    """The keys of the runs that were trained, in order, by workers in this process."""
    keys = []

    class Counting(Inline):
        def start(self, run):
            keys.append(run.record["key"])
            super().start(run)

    monkeypatch.setattr("mecheval.sweeps.local.Local", Counting)
    return keys


def counts(place, name):
    return Study.read(place / "kept" / name).counts


def test_every_run_of_every_study_is_kept_and_a_shared_one_is_trained_once(place, trained, capsys):
    assert main(WORDS) == 0
    assert len(trained) == len(set(trained)) == 3
    seen = capsys.readouterr()
    assert "3 of 3 runs are kept" in seen.out
    assert "mine-quick, 0 of 2 runs kept: It is first." in seen.err
    for name in ("mine-quick", "theirs-quick"):
        assert counts(place, name) == {"done": 2, "diverged": 0, "failed": 0, "missing": 0}
    ours, theirs = (Archive.read(place / "kept" / name) for name in ("mine-quick", "theirs-quick"))
    assert len(ours.finished() & theirs.finished()) == 1
    assert ours.finished() | theirs.finished() == set(trained)


def test_the_status_of_its_folder_says_nothing_about_runs_that_are_kept(place, trained, capsys):
    """Its plan has what is not kept yet: the others are where they belong."""
    (place / "kept" / "queue.toml").write_text(QUEUE.partition('[[study]]\nrecipe = "theirs')[0])
    assert main(WORDS) == 0
    (place / "kept" / "queue.toml").write_text(QUEUE)
    assert main(WORDS) == 0
    assert len(trained) == 3
    capsys.readouterr()
    assert main(["sweep", "status", "runs/queue"]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_kept_is_what_the_runs_measured(place, trained):
    assert main(WORDS) == 0
    runs, kept = Results(place / "runs" / "queue"), Results(place / "kept" / "mine-quick")
    measured = {row["key"]: row["value"] for row in runs.rows() if row["metric"] == "loss"}
    found = {row["key"]: row["value"] for row in kept.rows() if row["metric"] == "loss"}
    assert len(found) == 2
    assert found == pytest.approx({key: measured[key] for key in found}, rel=1e-6)


@pytest.mark.parametrize("after", [1, 2])
def test_stopped_in_the_middle_it_resumes_from_the_kept_tables_alone(
    place, trained, capsys, after, monkeypatch
):
    """Ctrl-C comes while a run is trained; the folder of the runs is deleted."""

    class Stopping(Inline):
        def start(self, run):
            if len(trained) == after:
                raise StopSignal(signal.SIGINT)
            trained.append(run.record["key"])
            super().start(run)

    with monkeypatch.context() as patch:
        patch.setattr("mecheval.sweeps.local.Local", Stopping)
        assert main(WORDS) == 130
    assert f"{after} of 3 runs are kept" in capsys.readouterr().out
    assert counts(place, "mine-quick")["done"] == after
    assert counts(place, "mine-quick")["missing"] == 2 - after
    shutil.rmtree(place / "runs")
    assert main(WORDS) == 0
    assert len(trained) == len(set(trained)) == 3
    assert counts(place, "mine-quick")["done"] == counts(place, "theirs-quick")["done"] == 2
    shutil.rmtree(place / "runs")
    assert main(WORDS) == 0
    assert len(trained) == 3
    assert not (place / "runs").exists()


def test_killed_before_it_could_keep_a_finished_run_it_keeps_it_the_next_time(
    place, trained, monkeypatch
):
    def killed(folder, archive):
        raise StoreError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Archive, "write", killed)
        assert main(WORDS) == 3
    assert not (place / "kept" / "mine-quick").exists()
    assert main(WORDS) == 0
    assert len(trained) == len(set(trained)) == 3
    assert counts(place, "mine-quick")["done"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_real_queue_that_is_killed_loses_nothing_and_trains_nothing_twice(place, number):
    recipe_file(place, steps=150, width=64, batch=32, more=THEIRS)
    words = [sys.executable, "-m", "mecheval", *WORDS, "--json", "--nice"]
    process = subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 300
    while not (place / "kept" / "mine-quick" / "study.json").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == (-number if number == signal.SIGKILL else 130)
    before = Archive.read(place / "kept" / "mine-quick").finished()
    assert before
    shutil.rmtree(place / "runs")
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["kept"], found["experiments"]) == (3, 3)
    assert {run["key"] for run in found["runs"]} & before == set()
    assert len(found["runs"]) == 3 - len(before)
    assert counts(place, "mine-quick")["done"] == counts(place, "theirs-quick")["done"] == 2


def test_a_study_made_elsewhere_lends_its_runs(place, trained):
    """`theirs` was run and kept on another machine; the queue trains the one run that is left."""
    words = ["--plugin", "mine.py", "--no-report", "--workers", "1"]
    assert main(["sweep", "run", "theirs", "--out", "there", *words]) == 0
    assert main(["keep", "there", "--out", "kept/theirs-quick"]) == 0
    trained.clear()
    assert main(WORDS) == 0
    assert len(trained) == 1
    assert counts(place, "mine-quick")["done"] == 2


def test_a_failed_run_is_named_and_costs_no_other(place, trained, capsys, monkeypatch):
    def fails(experiment, *rest, **options):
        if experiment.seed == 0:
            raise ArithmeticError("none of this adds up")
        return run(experiment, *rest, **options)

    monkeypatch.setattr("mecheval.runs.run.run", fails)
    assert main(WORDS) == 1
    lines = capsys.readouterr().err.splitlines()
    assert any("none of this adds up" in line and "seed 0" in line for line in lines)
    assert "1 of 3 runs failed; rerun the same command to try again" in lines[-1]
    assert counts(place, "mine-quick")["done"] == 1
    assert counts(place, "theirs-quick")["done"] == 2


def test_more_seeds_and_fixed_fields_join_the_study_or_make_another(place, trained):
    (place / "kept" / "queue.toml").write_text("""
[[study]]
recipe = "demo"
scale = "small"
why = "More seeds of one cell."
seeds = 4
only = { model.architecture = "attention", model.d_model = 64, train.lr = [1e-3] }

[[study]]
recipe = "mine"
scale = "quick"
name = "mine-longer"
why = "Twice the steps."
fields = { "train.steps" = 24 }
""")
    found = queue_of(place).studies
    assert [(study.name, len(study.experiments)) for study in found] == [
        ("demo", 4),
        ("mine-longer", 2),
    ]
    assert [one.seed for one in found[0].experiments] == [0, 1, 2, 3]
    usual = {one.key for one in get_experiments("demo", get_scale("small"))}
    assert len(found[0].keys & usual) == 3  # the first three seeds are those of the scale
    assert {one.train.steps for one in found[1].experiments} == {24}


def queue_of(place):
    load_plugin(place / "mine.py")
    return Queue.read(place / "kept" / "queue.toml")


ONE = '[[study]]\nrecipe = "mine"\nscale = "quick"\nwhy = "?"\n'
REFUSED = {
    'recipe = "figre3"': ["study 1", "'figre3'", "did you mean 'figure3'"],
    'scale = "qick"': ["study 1", "qick", "did you mean 'quick'"],
    'recpie = "mine"': ["study 1", "'recpie'", "did you mean 'recipe'"],
    "why = 3": ["study 1", "why=3", "text"],
    "seeds = 0": ["study 1", "seeds=0", "from 1"],
    'name = "../x"': ["study 1", "name='../x'"],
    "only = 3": ["study 1", "only=3", "table"],
    'only = { "train.lrr" = 1 }': ["study 1", "'train.lrr'", "did you mean 'train.lr'"],
    "only = { seed = 99 }": ["study 1", "leaves no experiment"],
    'fields = { "train.steps" = 24 }': ["study 1", "name of its own"],
    'name = "n"\nfields = { "train.steps" = "x" }': ["study 1", "train.steps=x"],
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_wrong_study_is_refused_in_one_line_and_nothing_is_written(line, place, capsys):
    name = line.partition(" =")[0]
    kept = [text for text in ONE.splitlines() if not text.startswith(f"{name} ")]
    text = "\n".join([*kept, line])
    assert refused(place, text, capsys, *REFUSED[line])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", ["[[study]]"]),
        ("[[study]", ["not TOML"]),
        (f"{ONE}\n[more]", ["[[study]]"]),
        ("study = [1]", ["study 1", "a table"]),
        (
            f'{ONE}name = "n"\n[[study]]\nrecipe = "theirs"\nscale = "quick"\nwhy = ""\nname = "n"',
            ["must not be mixed", "another name"],
        ),
    ],
)
def test_a_file_that_is_no_queue_is_refused(text, named, place, capsys):
    assert refused(place, text, capsys, *named)


def refused(place, text, capsys, *named):
    (place / "kept" / "queue.toml").write_text(text)
    before = sorted(place.rglob("*"))
    assert main(WORDS) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert [word for word in named if word not in line] == []
    return sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["mine", "--queue", "kept/queue.toml"], ["RECIPE and --queue"]),
        (["--queue", "kept/queue.toml", "--scale", "small"], ["--scale and --queue"]),
        (["--queue", "kept/queue.toml", "--slurm"], ["--queue and --slurm"]),
        (["--queue", "kept/none.toml"], ["none.toml", "No such file"]),
        (["mine", "--nice", "--slurm"], ["--nice and --slurm"]),
        ([], ["RECIPE is missing", "--queue"]),
    ],
)
def test_options_that_exclude_one_another_are_refused(words, named, place, capsys):
    assert main(["sweep", "run", *words, "--plugin", "mine.py"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert [word for word in named if word not in line] == []
    assert not (place / "runs").exists()


def test_nice_lowers_the_priority_before_any_worker_starts(place, trained, monkeypatch):
    asked = []
    monkeypatch.setattr("os.nice", lambda value: asked.append((value, len(trained))), raising=False)
    assert main([*WORDS, "--nice"]) == 0
    assert asked == [(19, 0)]


def test_a_dry_run_estimates_what_is_left_of_each_study_and_writes_nothing(place, trained, capsys):
    assert main([*WORDS, "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    lines = [(line["name"], line["runs"], line["kept"]) for line in found["studies"]]
    assert lines == [("mine-quick", 2, 0), ("theirs-quick", 2, 0)]
    assert all(line["seconds"] > 0 for line in found["studies"])
    assert found["seconds"] > 0
    assert not (place / "runs").exists()
    assert main([*WORDS, "--dry-run"]) == 0
    assert "0 of 3 runs are kept" in capsys.readouterr().out


def test_our_own_queue_can_be_read_and_says_why():
    queue = Queue.read(RESULTS / "queue.toml")
    assert len(queue.experiments) > 0
    assert all(study.why.endswith(".") for study in queue.studies)
