"""How much a report does: counted in files and intervals, whatever the machine."""

from collections import Counter

import pytest
from matplotlib.figure import Figure
from pandas import DataFrame
from support.made_runs import behaviour, experiment, finished, grid, verdict

from mecheval.report import tables
from mecheval.report.parts.curves import SHARE, Curves
from mecheval.report.study import Study
from mecheval.report.verdicts import verdicts
from mecheval.results.table import Results
from mecheval.runs import checked, files


def made(folder, seeds):
    curve = [{"step": step, "loss": 1.0, "accuracy": 0.5} for step in (50, 100)]
    for seed in range(seeds):
        shares = {"key": 0.0, "value": 0.9, "query": 0.1}
        rows = behaviour(0.9, 0.8 + seed / 100) + grid(0.9, 0.1, shares)
        finished(folder, experiment(seed=seed), rows, said=verdict(), curve=curve)
    return folder


@pytest.fixture
def runs(tmp_path):
    return made(tmp_path / "runs", seeds=3)


def test_every_file_of_every_run_is_opened_once_for_all_tables(runs, monkeypatch):
    opened, read = Counter(), files._read_regular

    def counted(path, *how, **more):
        opened[str(path)] += 1
        return read(path, *how, **more)

    monkeypatch.setattr(files, "_read_regular", counted)
    results = Results(runs)
    for table in ("runs", "rows", "curves", "rows"):
        results.df(table)
    assert results.facts()
    assert opened == {str(path): 1 for path in runs.glob("*/*")}


def test_every_file_but_the_checksums_is_hashed_whole_once(runs, monkeypatch):
    hashed, sha256 = Counter(), files.sha256
    monkeypatch.setattr(
        checked, "sha256", lambda content: hashed.update([content]) or sha256(content)
    )
    Study.read(runs)
    others = [path for path in runs.glob("*/*") if path.name != "checksums.json"]
    assert hashed == Counter(path.read_bytes() for path in others)


def test_more_seeds_of_a_cell_are_not_more_intervals(tmp_path, monkeypatch):
    counts, interval = Counter(), tables.seed_interval
    for seeds in (2, 6):
        study = Study.read(made(tmp_path / str(seeds), seeds))

        def counted(*arguments, seeds=seeds):
            counts[seeds] += 1
            return interval(*arguments)

        monkeypatch.setattr(tables, "seed_interval", counted)
        verdicts(study)
    assert 0 < counts[6] == counts[2]


def test_runs_that_stopped_at_the_same_step_share_a_mark():
    lines = [
        {"panel": "A", "row": "accuracy", "series": "run", "run": run, "step": step, "value": 0.5}
        for run in range(40)
        for step in (0, 100)
    ]
    stopped = [
        {"panel": "A", "step": 50 + 50 * (run % 2), "text": "stopped", "series": "run"}
        for run in range(40)
    ]
    figure = Figure()
    Curves("", DataFrame(lines), {"accuracy": SHARE}, {"run": "black"}, DataFrame(stopped)).draw(
        figure.subfigures()
    )
    dotted = [line for line in figure.findobj() if getattr(line, "_linestyle", "") == ":"]
    assert {line.get_xdata()[0] for line in dotted} == {50, 100}
    assert len(dotted) == 2
