"""The runs of a card: the subject's in a folder of its own, the baselines' in one that all cards share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mecheval.cards.experiments import BASELINES, experiments
from mecheval.cards.subject import Subject
from mecheval.plugins import apart
from mecheval.sweeps.agenda import Agenda, SweepOptions
from mecheval.sweeps.job import Job, Outcome
from mecheval.sweeps.recipe import Scale
from mecheval.sweeps.state import State
from mecheval.sweeps.sweep import OPEN, Crew, Watch, carry_out
from mecheval.sweeps.worker import work

RECIPE = "card"


@dataclass(frozen=True)
class Part:
    """One of a card's two sweeps. `known` are checksums as `Subject` has them."""

    agenda: Agenda
    known: Mapping[str, str]

    @classmethod
    def of(
        cls, subject: Subject | None, architectures: Sequence[str], scale: Scale, folder: Path, workers: int
    ) -> "Part":
        """None is nobody's: it needs no file."""
        files, known = (subject.plugins, subject.known) if subject else ((), {})
        options = SweepOptions(workers=workers, plugins=files)
        part = cls(Agenda(experiments(scale, architectures), folder, RECIPE, scale.name, options), known)
        part.states()  # runs that were made with something else are refused before anything is begun
        return part

    def states(self) -> list[State]:
        with apart(self.known):
            return self.agenda.states()

    def carry_out(self, watch: Watch) -> list[State]:
        with apart(self.known):
            return carry_out(self.agenda, self._crew, watch=watch)

    def _crew(self) -> Crew:
        from mecheval.sweeps.local import Local

        return Here() if self.known else Local(self.agenda.options.workers)


def parts(subject: Subject, scale: Scale, out: Path, workers: int) -> list[Part]:
    """The subject's first, unless it is a baseline itself."""
    shared = Part.of(None, BASELINES, scale, out / f"card-baselines-{scale.name}", workers)
    if subject.architecture in BASELINES:
        return [shared]
    return [Part.of(subject, [subject.architecture], scale, home(subject, scale, out), workers), shared]


def home(subject: Subject, scale: Scale, out: Path) -> Path:
    """Where the card is, and its runs."""
    return out / f"card-{subject.folder}-{scale.name}"


def carry_out_all(found: Sequence[Part], watch: Watch) -> list[State]:
    """`watch` is told of all of them, so that the time left is that of the card."""
    states = [part.states() for part in found]

    def telling(place: int) -> Callable[[Sequence[State]], None]:
        def tell(now: Sequence[State]) -> None:
            states[place] = list(now)
            watch([state for each in states for state in each])

        return tell

    for place, part in enumerate(found):
        states[place] = part.carry_out(telling(place))
    return [state for each in states for state in each]


def to_run(found: Sequence[Part]) -> list[State]:
    return [state for part in found for state in part.states() if state.status in OPEN]


class Here:
    """A crew of one: this process, for a class that no other can have."""

    def __init__(self) -> None:
        self._ended: list[tuple[Job, Outcome]] = []

    @property
    def free(self) -> int:
        return 1 - len(self._ended)

    def start(self, job: Job) -> None:
        outcome = work(job)
        if outcome.status == "stopped":
            raise KeyboardInterrupt(outcome.reason)
        self._ended.append((job, outcome))

    def ended(self) -> Iterator[tuple[Job, Outcome]]:
        while self._ended:
            yield self._ended.pop()

    def stop(self) -> None:
        """Nothing is under way while anybody else is."""
