"""A sweep gives the rows of its runs, whoever makes them and whatever happens on the way."""

import pytest
from support.fault_injection import small
from support.sweep_runs import DIVERGES, Inline, alone, results, seeds

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.results.plan import PLAN, Plan
from mecheval.results.table import Results
from mecheval.runs.experiment import Settings
from mecheval.runs.pending import PendingRun, locked
from mecheval.runs.run import run
from mecheval.sweeps.agenda import Agenda, SweepOptions
from mecheval.sweeps.job import Outcome
from mecheval.sweeps.sweep import carry_out, sweep


def swept(experiments, out, crew=Inline, **options):
    return carry_out(Agenda(experiments, out, "mine", "own", SweepOptions(**options)), crew)


@pytest.mark.parametrize(("workers", "shuffle"), [(1, None), (2, 1), (4, 2)])
def test_any_number_of_workers_in_any_order_gives_the_same_bytes(workers, shuffle, tmp_path):
    experiments = [small(architecture="mamba"), small(**DIVERGES)]
    states = sweep(experiments, tmp_path / "swept", SweepOptions(workers=workers, shuffle=shuffle))
    assert [state.status for state in states] == ["done", "diverged"]
    assert results(tmp_path / "swept") == alone(experiments, tmp_path / "alone")
    assert {path.name for path in (tmp_path / "swept").iterdir()} == {PLAN, *(each.name for each in experiments)}


def test_divergence_is_recorded_and_touches_nobody_else(tmp_path):
    sound, broken = seeds(14, train_steps=3), seeds(7, train_steps=3, **DIVERGES)
    mixed = [each for pair in zip(sound, broken, strict=False) for each in pair] + sound[7:]
    states = swept(mixed, tmp_path / "mixed")
    assert len(states) == 21
    assert {state.experiment.key for state in states if state.status == "diverged"} == {each.key for each in broken}
    assert all(state.attempts == 1 and "nan" in state.reason for state in states if state.status == "diverged")
    swept(sound, tmp_path / "sound")
    kept, wanted = results(tmp_path / "mixed"), results(tmp_path / "sound")
    assert len(wanted) == 14
    assert {name: kept[name] for name in wanted} == wanted


def test_what_is_finished_is_not_run_again(tmp_path):
    swept(seeds(2), tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}

    def nobody():
        raise AssertionError("somebody was hired")

    assert [state.status for state in swept(seeds(2), tmp_path, nobody)] == ["done", "done"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == times


def test_runs_of_another_folder_are_taken_over_where_they_are_the_same(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    swept([*seeds(2), small(**DIVERGES)], old)
    states = swept([*seeds(3), small(**DIVERGES)], new, reuse=(tmp_path / "old",))
    assert [(state.status, state.attempts) for state in states] == [
        ("done", 0),
        ("done", 0),
        ("done", 1),
        ("diverged", 0),
    ]
    assert results(new).items() >= results(old).items()


def test_a_run_that_was_made_otherwise_is_not_taken_over(tmp_path):
    (one,) = seeds(1)
    run(one, tmp_path / "old", Settings(threads=2))
    (state,) = swept([one], tmp_path / "new", reuse=(tmp_path / "old",))
    assert (state.status, state.attempts) == ("done", 1)


def test_a_damaged_run_is_not_taken_over_in_silence(tmp_path):
    (one,) = seeds(1)
    run(one, tmp_path / "old")
    (tmp_path / "old" / one.name / "rows.jsonl").write_text("{}")
    with pytest.raises(StoreError, match="damaged"):
        swept([one], tmp_path / "new", reuse=(tmp_path / "old",))


def test_a_folder_to_reuse_must_be_there(tmp_path):
    with pytest.raises(InvalidInput, match=r"reuse=.* must be a folder"):
        SweepOptions(reuse=(tmp_path / "nowhere",))


def test_a_plan_that_grew_runs_what_is_new(tmp_path):
    swept(seeds(1), tmp_path)
    states = swept(seeds(3), tmp_path)
    assert [state.attempts for state in states] == [0, 1, 1]
    assert len(Plan.read(tmp_path).experiments) == 3


def test_of_two_launchers_one_is_turned_away_and_nothing_is_lost(tmp_path):
    swept(seeds(1), tmp_path)
    before = results(tmp_path)
    with locked(tmp_path), pytest.raises(StoreError, match="in use by another process"):
        swept(seeds(2), tmp_path)
    assert results(tmp_path) == before
    assert [state.status for state in swept(seeds(2), tmp_path)] == ["done", "done"]


def test_a_run_that_another_process_works_at_is_waited_for(tmp_path):
    agenda, ticks = Agenda(seeds(1), tmp_path, "mine", "own", SweepOptions()), []
    agenda.plan.write(tmp_path)
    claim = agenda.jobs[0].place.claim()
    claim.__enter__()

    def release(states):
        ticks.append(states[0].status)
        if len(ticks) == 3:
            claim.__exit__(None, None, None)

    (state,) = carry_out(agenda, Inline, watch=release)
    assert (ticks[:3], state.status, state.attempts) == (["waiting"] * 3, "done", 1)


@pytest.mark.parametrize(
    ("said", "attempts"), [("killed", 2), ("stopped", 2), ("error", 1), ("timeout", 1), ("diverged", 1)]
)
def test_who_is_killed_is_tried_once_more_and_nobody_else(said, attempts, tmp_path):
    class Unlucky(Inline):
        def start(self, job):
            super().start(job) if said == "diverged" else self._outcomes.append((job, Outcome(said, "why not")))

    experiments = [small(**DIVERGES)] if said == "diverged" else seeds(1)
    (state,) = swept(experiments, tmp_path, Unlucky)
    assert (state.status, state.attempts) == ("killed" if said == "stopped" else said, attempts)
    (kept,) = Results(tmp_path).runs()
    assert (kept["status"], kept["reason"]) == (state.status, state.reason)


def test_failure_is_kept_until_the_next_try_mends_it(tmp_path):
    class Broken(Inline):
        def start(self, job):
            self._outcomes.append((job, Outcome("error", "no luck")))

    swept(seeds(2), tmp_path, Broken)
    agenda = Agenda.of(tmp_path, SweepOptions())
    assert [state.status for state in agenda.states()] == ["error", "error"]
    assert [state.status for state in carry_out(agenda, Inline)] == ["done", "done"]
    assert results(tmp_path) == alone(seeds(2), tmp_path.with_name("alone"))


def test_a_damaged_run_costs_one(tmp_path):
    experiments = seeds(2)
    swept(experiments, tmp_path)
    (tmp_path / experiments[0].name / "rows.jsonl").write_text("{}")
    states = swept(experiments, tmp_path)
    assert [state.status for state in states] == ["error", "done"]
    assert "rows.jsonl" in states[0].reason
    (planned, _) = Plan.read(tmp_path).states(Results(tmp_path))
    assert (planned["status"], planned["key"]) == ("damaged", experiments[0].key)


def test_a_full_disk_ends_the_sweep(tmp_path, monkeypatch):
    def full(*arguments):
        raise StoreError("no room") from OSError()

    class Unlucky(Inline):
        def start(self, job):
            self._outcomes.append((job, Outcome("error", "no room")))

    monkeypatch.setattr(PendingRun, "fail", full)
    with pytest.raises(StoreError, match="no room"):
        swept(seeds(2), tmp_path, Unlucky)


def test_runs_of_other_versions_are_not_mixed_in(tmp_path, monkeypatch):
    swept(seeds(1), tmp_path)
    monkeypatch.setattr("mecheval.runs.provenance.version", lambda name: "0.0")
    with pytest.raises(StoreError, match=r"torch was '.*' and is '0.0'"):
        swept(seeds(2), tmp_path)


@pytest.mark.parametrize(("recipe", "scale"), [("other", "own"), ("mine", "paper")])
def test_a_folder_is_of_one_recipe_at_one_scale(recipe, scale, tmp_path):
    swept(seeds(1), tmp_path)
    with pytest.raises(InvalidInput, match="mine at scale own"):
        Agenda(seeds(1), tmp_path, recipe, scale, SweepOptions())


def test_a_folder_with_runs_of_no_sweep_is_refused(tmp_path):
    alone(seeds(1), tmp_path)
    with pytest.raises(InvalidInput, match="1 runs of no sweep"):
        Agenda(seeds(2), tmp_path, "mine", "own", SweepOptions())


def test_experiments_come_back_from_the_plan_as_they_were(tmp_path):
    experiments = [small(), small(architecture="mamba", train_lr=3e-5, train_stop=0.5)]
    swept(experiments, tmp_path)
    assert [each.key for each in Agenda.of(tmp_path, SweepOptions()).experiments] == [each.key for each in experiments]
