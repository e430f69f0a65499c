"""Carries out what is not done yet: who does what, how often it is tried, and how each stands at the end."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from mecheval.core.errors import Interrupted
from mecheval.results.plan import FINISHED
from mecheval.runs.experiment import Experiment
from mecheval.runs.finished import Run
from mecheval.runs.pending import FAILED, locked
from mecheval.sweeps.agenda import Agenda, SweepOptions
from mecheval.sweeps.job import Job, Outcome
from mecheval.sweeps.local import Local
from mecheval.sweeps.reuse import take_over
from mecheval.sweeps.state import State
from mecheval.sweeps.stop import interruptible

OPEN = ("waiting", "running", "damaged", *FAILED)
ATTEMPTS = 2  # of a run whose worker is killed
TICK_SECONDS = 0.1
Watch = Callable[[Sequence[State]], None]


@runtime_checkable
class Crew(Protocol):
    """Whoever carries jobs out: processes of this machine, a Ray cluster."""

    @property
    def free(self) -> int:
        """How many more it can take now."""
        ...

    def start(self, job: Job) -> None: ...

    def ended(self) -> Iterator[tuple[Job, Outcome]]:
        """Those that have ended since it was asked last."""
        ...

    def stop(self) -> None:
        """All that is under way is told to save and stop."""
        ...


def sweep(
    experiments: Sequence[Experiment],
    out: str | Path,
    options: SweepOptions = SweepOptions(),  # noqa: B008, it is frozen
    recipe: str = "experiments",
    scale: str = "own",
    watch: Watch = lambda states: None,
) -> list[State]:
    """How each experiment stands after those that were not done were carried out, by processes of this machine."""
    agenda = Agenda(experiments, Path(out), recipe, scale, options)
    return carry_out(agenda, lambda: Local(options.workers), watch=watch)


def carry_out(
    agenda: Agenda, crew: Callable[[], Crew], only: Sequence[str] = OPEN, watch: Watch = lambda states: None
) -> list[State]:
    """Those whose status is in `only` are run. `watch` is told all states now and then. Whoever is interrupted has
    saved everything."""
    with locked(agenda.folder):
        states = agenda.states()
        todo = [state for state in states if state.status in only]
        if agenda.options.shuffle is not None:
            random.Random(agenda.options.shuffle).shuffle(todo)
        workers = crew() if todo else None
        agenda.plan.write(agenda.folder)
        take_over(todo, agenda.options.reuse)
        todo = [state for state in todo if state.status in only]
        if workers:
            with interruptible():
                _carry_out(todo, states, workers, watch)
    return states


def _carry_out(todo: Sequence[State], states: Sequence[State], crew: Crew, watch: Watch) -> None:
    by_name = {state.job.name: state for state in todo}
    for state in todo:
        state.status, state.reason = "waiting", None
    try:
        while any(state.status in ("waiting", "running") for state in todo):
            for job, outcome in crew.ended():
                _take(by_name[job.name], outcome)
            for state in todo:
                _attend(state, crew)
            watch(states)
            time.sleep(TICK_SECONDS)
    except KeyboardInterrupt as error:
        finished = sum(state.status in FINISHED for state in states)
        where = f"{finished} of {len(states)} are finished, the others are saved"
        raise Interrupted(f"{error}: {where}; the same command goes on") from error
    finally:
        crew.stop()
        watch(states)


def _attend(state: State, crew: Crew) -> None:
    if state.status == "running":
        state.look()
    elif state.status == "waiting" and crew.free > 0 and not state.busy:
        state.status, state.attempts = "running", state.attempts + 1
        crew.start(state.job)


def _take(state: State, outcome: Outcome) -> None:
    status = "killed" if outcome.status == "stopped" else outcome.status  # it was not us who stopped it
    if status == "busy":  # another process was quicker
        state.status, state.attempts = "waiting", state.attempts - 1
    elif status == "killed" and state.attempts < ATTEMPTS:
        state.status = "waiting"
    else:
        state.job.keep(Outcome(status, outcome.reason))
        state.status, state.reason = status, outcome.reason
    if status in FINISHED:
        found = Run(state.job.place.final).outcome
        state.steps, state.reason = found["steps"], found.get("reason")
