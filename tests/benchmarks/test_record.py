"""Ratios, spreads, exponents, floors, tables and the page are computed from measurements."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import measure, show, suite
from benchmarks.growth import exponent
from benchmarks.isolated import memory_mb, peak_mb, reset_peak, run_isolated
from benchmarks.machine import load_warning
from benchmarks.measure import Times, time_rounds
from benchmarks.ratio import Floor, cpu_share, speedup
from mecheval.core.errors import InvalidInput, RunFailed

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "benchmarks"


def test_rounds_are_interleaved_and_the_second_call_of_a_round_counts(monkeypatch):
    calls = []

    def time_call(run):
        run()
        calls.append("!")
        return float(len(calls)), 0.0

    monkeypatch.setattr(measure, "time_call", time_call)
    times = time_rounds({name: lambda name=name: calls.append(name) for name in "ab"}, rounds=2)
    assert "".join(calls) == "ab" + "aa!bb!" * 2  # one warm-up run each
    assert times["a"].cpu == (5.0, 11.0)
    assert times["b"].cpu == (8.0, 14.0)


def test_a_ratio_is_that_of_the_medians_with_the_extremes_of_the_rounds():
    ours = Times((1.0, 2.0, 4.0), (1.0, 1.0, 1.0))
    theirs = Times((10.0, 30.0, 20.0), (9.0, 9.0, 9.0))
    line = speedup("a", "b", ours, theirs)
    assert (line.ratio, line.least, line.most) == (10.0, 5.0, 15.0)
    assert line.ours["cpu_ms"].median == 2.0
    assert line.theirs["wall_ms"].most == 9.0
    assert cpu_share("a", "b", ours, theirs).ratio == pytest.approx(0.1)
    assert ours.divided_by(2).cpu == (0.5, 1.0, 2.0)


@pytest.mark.parametrize("power", [0.0, 1.0, 1.2, 2.0])
def test_the_exponent_of_a_power_is_that_power(power):
    values = [256, 512, 1024, 2048, 4096]
    points = [3 * value**power for value in values]
    assert exponent(values, points) == pytest.approx(power, abs=1e-12)


def test_the_exponent_of_noisy_points_is_that_of_the_least_squares_line():
    assert exponent([1, 2, 4], [1.0, 4.0, 4.0]) == pytest.approx(1.0)


def test_the_verdict_of_a_floor_depends_on_its_sense():
    assert [Floor(10).verdict(ratio) for ratio in (9.9, 10, 11)] == ["below", "ok", "ok"]
    assert [Floor(10, "at most").verdict(ratio) for ratio in (9.9, 10, 11)] == ["ok", "ok", "above"]


def test_missed_floors_are_reported(record):
    assert suite.missed_floors(record) == [
        "steps: mamba d=64 against plain is 3.25; it must be at least 40"
    ]


def test_the_page_shows_the_record_and_keeps_the_text_around_it(record, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{show.BEGIN}\nold 99.9×\n{show.END}\n\nafter\n")
    show.fill_page(page, record)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| attention d=64 | plain | 21.5× | 20–24 | ≥ 14× | ok | 2 ms | 2 ms |  |" in text
    assert "| mamba d=64 | plain | 3.25× | 3–3.5 | ≥ 40× | below |" in text
    assert "| mamba d=64 | mambapy's scan | – |  | ≥ 20× |  |  |  | skipped: mambapy ¦ is" in text
    assert "a processor, 2 cores" in text
    assert "3 interleaved rounds" in text
    show.fill_page(page, record)
    assert page.read_text() == text


def test_the_stored_tables_fit_into_eighty_columns():
    console = Console(width=80, file=io.StringIO())
    console.print(show.tables(json.loads((PAGE / "results.json").read_text(encoding="utf-8"))))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line and " … " not in line], "no cell is cut"


def test_a_page_without_marks_is_refused_and_not_changed(record, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a diary")
    with pytest.raises(InvalidInput, match="has no lines"):
        show.fill_page(page, record)
    assert page.read_text() == "a diary"


@pytest.mark.parametrize("text", ["", "[]", '{"machine": {}}', '{"parts": {"steps": 1}}'])
def test_a_file_that_is_not_a_record_is_refused(text, tmp_path):
    file = tmp_path / "results.json"
    file.write_text(text)
    with pytest.raises(InvalidInput, match="is not a file of 'python -m benchmarks --json'"):
        show.read_record(file)


def test_the_stored_page_shows_the_stored_record():
    record = json.loads((PAGE / "results.json").read_text(encoding="utf-8"))
    text = (PAGE / "README.md").read_text(encoding="utf-8")
    assert show.fill_text(text, record) == text, (
        "run python -m benchmarks --from benchmarks/results.json --markdown benchmarks/README.md"
    )


def test_the_stored_run_meets_every_floor():
    assert (
        suite.missed_floors(json.loads((PAGE / "results.json").read_text(encoding="utf-8"))) == []
    )


def peak():
    return {"mb": peak_mb()}


def test_a_peak_is_that_of_the_process_and_not_of_its_parent():
    table = bytearray(b"x") * (300 * 2**20)
    assert run_isolated(peak)["mb"] < peak_mb() - 200, len(table)


def test_the_peak_includes_memory_that_was_freed():
    before = memory_mb()
    reset_peak()
    table = bytearray(b"x") * (100 * 2**20)
    added = memory_mb() - before
    del table
    assert 90 < added < 110
    assert 90 < peak_mb() - before < 250


def test_a_function_that_fails_in_its_process_raises_its_reason():
    with pytest.raises(RunFailed, match="documents"):
        run_isolated(show.number, value="no number", documents=3)


def test_a_busy_machine_gives_a_warning():
    assert load_warning(None) is None
    assert load_warning(0.1) is None
    assert "busy" in load_warning(3.0)
