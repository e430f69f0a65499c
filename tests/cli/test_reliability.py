"""Never silent, never a traceback: damaged runs, unwritable places, odd names and odd files."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.made_runs import PROVENANCE, behaviour, experiment, finished, grid, sweep

from mecheval.cli import app, main
from mecheval.cli.app import command_names
from mecheval.core.errors import EXIT_CODES, DamagedRunWarning, describe_error
from mecheval.results.table import Results
from mecheval.runs.files import read_json, write_json

READERS = ("results", "compare", "figure", "report", "claims", "keep")
ROWS = behaviour(0.9, 0.8) + grid(0.8, 0.1, {"key": 0.0, "value": 1.0, "query": 0.0})


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Return a sweep of six runs, which is in the folder `runs`."""
    monkeypatch.chdir(tmp_path)
    every = [experiment(name, seed=seed) for name in ("attention", "mamba") for seed in (0, 1, 2)]
    return sweep(tmp_path / "runs", "demo", every, lambda one: ROWS)


@pytest.fixture
def damaged(runs):
    folder = min(path for path in runs.iterdir() if path.is_dir())
    with (folder / "rows.jsonl").open("a") as file:
        file.write("x")
    return folder


def command(name, runs):
    words = {"figure": ["demo", "--runs", runs, "--json"], "keep": [runs, "--out", "kept"]}
    words |= {"results": [runs, "--csv"], "report": [runs, "--json"]}
    return [name, *map(str, words.get(name, [runs]))]


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_run_is_named_and_the_exit_code_is_1_unless_allowed(name, damaged, capsys):
    assert main(command(name, damaged.parent)) == 1
    refused = capsys.readouterr()
    assert main([*command(name, damaged.parent), "--allow-damaged"]) == 0
    allowed = capsys.readouterr()
    assert refused.out == allowed.out != ""
    for answer in (refused.err, allowed.err):
        assert f"warning: {damaged} is damaged: rows.jsonl does not match" in answer
    assert "error: 1 run is damaged and left out" in refused.err
    assert "error" not in allowed.err


def test_results_of_the_other_runs_are_complete(damaged, capsys):
    assert main(["results", "runs", "--csv"]) == 1
    printed = capsys.readouterr()
    assert len(list(csv.DictReader(io.StringIO(printed.out)))) == 5 * len(ROWS)
    assert damaged.name in printed.err
    with pytest.warns(DamagedRunWarning, match=damaged.name):
        assert len(Results(Path("runs")).rows()) == 5 * len(ROWS)


def test_a_reader_who_leaves_early_is_told_nothing(monkeypatch, capsys):
    """As `head` does; rich would exit by itself, which looked like a fault of a plug-in."""

    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    assert main(["list", "recipes"]) == 1
    assert capsys.readouterr().err == ""


def test_nothing_is_said_of_whole_runs(runs, capsys):
    assert main(["results", "runs", "--csv"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_page_and_a_figure_name_the_damaged_run(damaged):
    assert main(["report", "runs", "--allow-damaged"]) == 0
    assert f"{damaged.name} is damaged" in (damaged.parent / "report.html").read_text()
    assert main(["figure", "demo", "--runs", "runs", "--out", "demo.html"]) == 1
    assert damaged.name in Path("demo.html").read_text()


def test_runs_that_the_plan_does_not_have_are_said(runs, capsys):
    plan = read_json(runs / "sweep.json")
    fewer = {name: plan[name][1:] for name in ("experiments", "folders")}
    write_json(runs / "sweep.json", {**plan, **fewer})
    said = f"has 1 run that is not of its sweep demo at scale quick, the first {plan['folders'][0]}"
    said = said.replace(plan["folders"][0], repr(plan["folders"][0]))
    assert main(["sweep", "status", "runs"]) == 0
    assert f"warning: DIR='runs' {said}" in capsys.readouterr().err
    for words in (["keep", "runs", "--out", "kept"], ["report", "runs"], ["claims", "runs"]):
        assert main(words) == 2
        assert f"error: DIR='runs' {said}; move such runs to another folder" in (
            capsys.readouterr().err
        )
    assert not Path("kept").exists()


@pytest.mark.slow
def test_a_page_needs_no_times_and_no_memory(tmp_path):
    """Nobody counts memory on Windows, and another version may leave out what is optional."""
    provenance = {**PROVENANCE, "peak_memory_bytes": None, "cpu_seconds": None, "started": None}
    finished(tmp_path, experiment(), ROWS, provenance=provenance)
    finished(tmp_path, experiment(seed=1), ROWS)
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "peak memory of a run" in page


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::mecheval.core.errors.DamagedRunWarning")
def test_an_archive_remembers_the_damaged_run(damaged, capsys):
    assert main(["keep", "runs", "--out", "kept", "--allow-damaged"]) == 0
    assert [damaged.name in line for line in Results(Path("kept")).damaged()] == [True]
    assert main(["results", "kept"]) == 1


@pytest.mark.slow
def test_every_command_that_averages_runs_can_allow_damage():
    import typer

    commands = typer.main.get_group(app).commands
    able = [n for n in command_names() if n in commands and "allow_damaged" in _options(n)]
    assert sorted(able) == sorted(READERS)


def _options(name):
    import typer

    return [option.name for option in typer.main.get_group(app).commands[name].params]


UNWRITABLE = ("loop", "file/k", "/proc/self/k")


@pytest.mark.parametrize("place", UNWRITABLE)
@pytest.mark.parametrize("name", ["keep", "results", "figure", "report", "run", "sweep"])
def test_what_cannot_be_written_is_one_line_and_exit_3(name, place, runs, capsys, own_names):
    """A link to itself, below a file, a file system that takes no files."""
    Path("loop").symlink_to("loop")
    Path("file").touch()
    Path("mine.py").write_text(
        "from mecheval.sweeps.recipe import recipe\nfrom mecheval.runs.experiment import Experiment"
        "\n\n@recipe('mine')\ndef mine(scale):\n    'One.'\n"
        "    yield Experiment.of({'task': 'recall', 'model.architecture': 'mamba'})\n"
    )
    words = {
        "keep": ["runs", "--out", place],
        "results": ["runs", "--parquet", f"{place}/x.parquet"],
        "figure": ["demo", "--runs", "runs", "--out", f"{place}/x.csv"],
        "report": ["runs", "--out", f"{place}/x.html"],
        "run": ["recall", "attention", "train.steps=1", "--out", place],
        "sweep": ["run", "mine", "--plugin", "mine.py", "--out", place],
    }
    assert main([name, *words[name]]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "words", [["results", "runs", "--parquet", ""], ["report", "runs", "--out", ""]], ids=" ".join
)
def test_an_empty_name_is_bad_input(words, runs, capsys):
    assert main(words) == 2
    assert "is not the name of a file" in capsys.readouterr().err


def fifo(path):
    os.mkfifo(path)


def large(path):
    with path.open("wb") as file:
        file.truncate(2**30)


@pytest.mark.parametrize("make", [fifo, large, Path.mkdir, lambda p: p.symlink_to("/dev/zero")])
def test_a_file_that_cannot_be_an_experiment_is_refused_at_once(make, tmp_path, capsys):
    file = tmp_path / "f.toml"
    make(file)
    assert main(["run", "--file", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: file='{file}' cannot be read: ")


@pytest.mark.slow
def test_names_that_are_not_utf_8_are_read_and_written(runs, tmp_path):
    bad = tmp_path / os.fsdecode(b"bad\377")
    shutil.copytree(runs, bad)
    inner = next(path for path in bad.iterdir() if path.is_dir())
    other = shutil.copytree(inner, inner.with_name(inner.name + os.fsdecode(b"\376")))
    (other / "status.json").unlink()
    kept, page = tmp_path / "kept", bad.with_name(f"{bad.name}.html")
    commands = [["runs", bad], ["results", bad, "--csv"], ["keep", bad, "--out", kept]]
    commands += [["report", bad], ["figure", "demo", "--runs", bad, "--out", page], ["runs", kept]]
    for words in commands:
        words = [*words, "--allow-damaged"] if words[0] != "runs" else words
        done = subprocess.run([sys.executable, "-m", "mecheval", *words], capture_output=True)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), (words, done.stderr)
    assert (bad / "report.html").exists()


@pytest.mark.slow
def test_a_page_whose_title_is_a_name_that_is_not_utf_8(tmp_path, capsys):
    bad = tmp_path / os.fsdecode(b"bad\377")
    finished(bad, experiment(), ROWS)
    assert main(["report", str(bad)]) == 0
    assert "bad?" in (bad / "report.html").read_text()


def test_a_table_cannot_be_written_to_a_name_that_is_not_utf_8(runs, capsys):
    """DuckDB opens no such file."""
    bad = os.fsdecode(b"bad\377")
    assert main(["keep", "runs", "--out", bad]) == 2
    assert main(["results", "runs", "--parquet", bad]) == 2
    assert [line.endswith("use another name") for line in capsys.readouterr().err.splitlines()] == [
        True,
        True,
    ]
    assert not Path(bad).exists()


@pytest.mark.parametrize("kind", ["BaseException", "GeneratorExit", "SystemExit", "MemoryError"])
def test_a_plug_in_may_raise_anything(kind, tmp_path, capsys):
    file = tmp_path / "bad.py"
    file.write_text(f"\nraise {kind}('here')\n")
    assert main(["list", "tasks", "--plugin", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {file}:2: ")
    assert kind in line


def test_ctrl_c_in_a_plug_in_still_interrupts(tmp_path, capsys):
    file = tmp_path / "bad.py"
    file.write_text("raise KeyboardInterrupt")
    assert main(["list", "tasks", "--plugin", str(file)]) == 130


def test_no_text_of_a_csv_opens_a_formula(tmp_path, capsys):
    one = experiment()
    rows = [{**row, "role": "=cmd|' /C calc'!A0"} for row in behaviour(0.9, -0.8)]
    finished(tmp_path, one, rows)
    sql = "select role, value, '@x' as \"+y\", -1 as n from rows where split = 'test'"
    assert main(["results", str(tmp_path), "--csv", "--sql", sql]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert lines[0] == {"role": "'=cmd|' /C calc'!A0", "value": "-0.8", "'+y": "'@x", "n": "-1"}


def test_memory_that_ran_out_is_said_as_such():
    torch = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")
    loader = OSError("Could not find/load shared object file: libllvmlite.so")
    loader.__cause__ = OSError("libllvmlite.so: failed to map segment from shared object")
    for error in (MemoryError(), torch, loader, OSError(12, "Cannot allocate memory")):
        text = describe_error(error)
        assert text.startswith("out of memory (")
        assert text.endswith("; reduce train.batch or model.d_model")
    assert describe_error(ValueError("no")) == "ValueError: no"


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [300, 700, 1100])
def test_a_small_address_space_is_out_of_memory(megabytes, tmp_path):
    words = "run recall:pairs=4,vocab=64 mamba train.steps=1 train.batch=65536 model.d_model=8192"
    script = "import resource, sys\nfrom mecheval.cli import main\n"
    script += f"resource.setrlimit(resource.RLIMIT_AS, ({megabytes} << 20,) * 2)\n"
    script += "sys.exit(main(sys.argv[1:]))\n"
    words = [*words.split(), "train.documents=65536", "--out", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert "out of memory" in done.stderr


def test_the_page_has_every_exit_code():
    page = (Path(__file__).parents[2] / "docs" / "resume.md").read_text()
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning}" in page


@pytest.mark.slow
def test_kernels_work_where_numba_has_no_place_for_its_cache():
    script = """
import json, os, numba.core.caching as caching
real = caching._CacheLocator.ensure_cache_path
def ensure(self):
    if "mecheval-numba-" not in self.get_cache_path():
        raise PermissionError("read-only")
    real(self)
caching._CacheLocator.ensure_cache_path = ensure
from mecheval.cli import main
code = main(["sample", "recall:pairs=2,vocab=8", "-n", "1", "--json"])
print(json.dumps([code, os.environ["NUMBA_CACHE_DIR"]]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code, folder = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert not Path(folder).exists()
