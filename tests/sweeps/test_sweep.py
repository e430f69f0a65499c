"""A sweep gives the rows of its runs, on any workers and after any interruption."""

import pytest
from support.fault_injection import small
from support.sweep_runs import DIVERGES, Inline, alone, results, seeds

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.results.plan import PLAN, Plan
from mecheval.results.table import Results
from mecheval.runs.experiment import Settings
from mecheval.runs.lock import locked
from mecheval.runs.pending import PendingRun
from mecheval.runs.run import run
from mecheval.sweeps.options import SweepOptions
from mecheval.sweeps.planned import Outcome
from mecheval.sweeps.sweep import Sweep, sweep


def swept(experiments, out, executor=Inline, **options):
    return Sweep(experiments, out, "mine", "own", SweepOptions(**options)).execute(executor)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "shuffle"), [(1, None), (2, 1), (4, 2)])
def test_any_number_of_workers_in_any_order_gives_the_same_bytes(workers, shuffle, tmp_path):
    experiments = [small(architecture="mamba"), small(**DIVERGES)]
    runs = sweep(experiments, tmp_path / "swept", SweepOptions(workers=workers, shuffle=shuffle))
    assert [run.status for run in runs] == ["done", "diverged"]
    assert results(tmp_path / "swept") == alone(experiments, tmp_path / "alone")
    assert {path.name for path in (tmp_path / "swept").iterdir()} == {
        PLAN,
        *(each.name for each in experiments),
    }


@pytest.mark.slow
def test_divergence_is_recorded_and_changes_no_other_run(tmp_path):
    sound, broken = seeds(14, train_steps=3), seeds(7, train_steps=3, **DIVERGES)
    mixed = [each for pair in zip(sound, broken, strict=False) for each in pair] + sound[7:]
    runs = swept(mixed, tmp_path / "mixed")
    assert len(runs) == 21
    assert {run.experiment.key for run in runs if run.status == "diverged"} == {
        each.key for each in broken
    }
    assert all(
        run.attempts == 1 and "nan" in run.reason for run in runs if run.status == "diverged"
    )
    swept(sound, tmp_path / "sound")
    kept, wanted = results(tmp_path / "mixed"), results(tmp_path / "sound")
    assert len(wanted) == 14
    assert {name: kept[name] for name in wanted} == wanted


def test_what_is_finished_is_not_run_again(tmp_path):
    swept(seeds(2), tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}

    def no_executor():
        raise AssertionError("an executor was started")

    assert [run.status for run in swept(seeds(2), tmp_path, no_executor)] == ["done", "done"]
    assert {
        path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()
    } == times


def test_runs_of_another_folder_are_taken_over_where_they_are_the_same(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    swept([*seeds(2), small(**DIVERGES)], old)
    runs = swept([*seeds(3), small(**DIVERGES)], new, reuse=(tmp_path / "old",))
    assert [(run.status, run.attempts) for run in runs] == [
        ("done", 0),
        ("done", 0),
        ("done", 1),
        ("diverged", 0),
    ]
    assert results(new).items() >= results(old).items()


@pytest.mark.slow
def test_a_run_that_was_made_otherwise_is_not_taken_over(tmp_path):
    (one,) = seeds(1)
    run(one, tmp_path / "old", Settings(threads=2))
    (again,) = swept([one], tmp_path / "new", reuse=(tmp_path / "old",))
    assert (again.status, again.attempts) == ("done", 1)


def test_a_damaged_run_is_not_taken_over_in_silence(tmp_path):
    (one,) = seeds(1)
    run(one, tmp_path / "old")
    (tmp_path / "old" / one.name / "rows.jsonl").write_text("{}")
    with pytest.raises(StoreError, match="damaged"):
        swept([one], tmp_path / "new", reuse=(tmp_path / "old",))


def test_a_folder_to_reuse_must_be_there(tmp_path):
    with pytest.raises(InvalidInput, match=r"reuse=.* must be a folder"):
        SweepOptions(reuse=(tmp_path / "nowhere",))


@pytest.mark.slow
def test_a_plan_with_more_experiments_runs_the_new_ones(tmp_path):
    swept(seeds(1), tmp_path)
    runs = swept(seeds(3), tmp_path)
    assert [run.attempts for run in runs] == [0, 1, 1]
    assert len(Plan.read(tmp_path).experiments) == 3


@pytest.mark.slow
def test_a_second_launcher_is_refused_and_nothing_is_lost(tmp_path):
    swept(seeds(1), tmp_path)
    before = results(tmp_path)
    with locked(tmp_path), pytest.raises(StoreError, match="in use by another process"):
        swept(seeds(2), tmp_path)
    assert results(tmp_path) == before
    assert [run.status for run in swept(seeds(2), tmp_path)] == ["done", "done"]


def test_a_run_that_another_process_works_at_is_waited_for(tmp_path):
    planned, ticks = Sweep(seeds(1), tmp_path, "mine", "own", SweepOptions()), []
    planned.plan.write(tmp_path)
    claim = planned.runs()[0].place.claim()
    claim.__enter__()

    def release(runs):
        ticks.append(runs[0].status)
        if len(ticks) == 3:
            claim.__exit__(None, None, None)

    (run,) = planned.execute(Inline, watch=release)
    assert (ticks[:3], run.status, run.attempts) == (["waiting"] * 3, "done", 1)


@pytest.mark.parametrize(
    ("said", "attempts"),
    [("killed", 2), ("stopped", 2), ("error", 1), ("timeout", 1), ("diverged", 1)],
)
def test_only_a_killed_or_stopped_run_is_tried_once_more(said, attempts, tmp_path):
    class Unlucky(Inline):
        def start(self, run):
            super().start(run) if said == "diverged" else self._outcomes.append(
                (run, Outcome(said, "why not"))
            )

    experiments = [small(**DIVERGES)] if said == "diverged" else seeds(1)
    (run,) = swept(experiments, tmp_path, Unlucky)
    assert (run.status, run.attempts) == (said, attempts)
    (kept,) = Results(tmp_path).runs()
    assert (kept["status"], kept["reason"]) == (run.status, run.reason)


@pytest.mark.slow
def test_failure_is_kept_until_the_next_try_mends_it(tmp_path):
    class Broken(Inline):
        def start(self, run):
            self._outcomes.append((run, Outcome("error", "no luck")))

    swept(seeds(2), tmp_path, Broken)
    planned = Sweep.read(tmp_path, SweepOptions())
    assert [run.status for run in planned.runs()] == ["error", "error"]
    assert [run.status for run in planned.execute(Inline)] == ["done", "done"]
    assert results(tmp_path) == alone(seeds(2), tmp_path.with_name("alone"))


@pytest.mark.slow
def test_a_damaged_run_costs_one(tmp_path):
    experiments = seeds(2)
    swept(experiments, tmp_path)
    (tmp_path / experiments[0].name / "rows.jsonl").write_text("{}")
    runs = swept(experiments, tmp_path)
    assert [run.status for run in runs] == ["error", "done"]
    assert "rows.jsonl" in runs[0].reason
    (planned, _) = Plan.read(tmp_path).states(Results(tmp_path))
    assert (planned["status"], planned["key"]) == ("damaged", experiments[0].key)


def test_a_full_disk_ends_the_sweep(tmp_path, monkeypatch):
    def full(*arguments):
        raise StoreError("no room") from OSError()

    class Unlucky(Inline):
        def start(self, run):
            self._outcomes.append((run, Outcome("error", "no room")))

    monkeypatch.setattr(PendingRun, "fail", full)
    with pytest.raises(StoreError, match="no room"):
        swept(seeds(2), tmp_path, Unlucky)


def test_runs_of_other_versions_are_not_mixed_in(tmp_path, monkeypatch):
    swept(seeds(1), tmp_path)
    monkeypatch.setattr("mecheval.runs.provenance._version", lambda name: "0.0")
    with pytest.raises(StoreError, match=r"torch was '.*' and is '0.0'"):
        swept(seeds(2), tmp_path)


@pytest.mark.parametrize(("recipe", "scale"), [("other", "own"), ("mine", "paper")])
def test_a_folder_is_of_one_recipe_at_one_scale(recipe, scale, tmp_path):
    swept(seeds(1), tmp_path)
    with pytest.raises(InvalidInput, match="mine at scale own"):
        Sweep(seeds(1), tmp_path, recipe, scale, SweepOptions())


def test_a_folder_with_runs_of_no_sweep_is_refused(tmp_path):
    alone(seeds(1), tmp_path)
    with pytest.raises(InvalidInput, match="1 runs without a sweep"):
        Sweep(seeds(2), tmp_path, "mine", "own", SweepOptions())


def test_experiments_come_back_from_the_plan_as_they_were(tmp_path):
    experiments = [small(), small(architecture="mamba", train_lr=3e-5, train_stop=0.5)]
    swept(experiments, tmp_path)
    assert [each.key for each in Sweep.read(tmp_path, SweepOptions()).experiments] == [
        each.key for each in experiments
    ]
