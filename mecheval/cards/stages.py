"""The stages of a card: a first answer in minutes, refined until it is complete.

Each stage trains what it needs and is not finished yet. All decisions are functions of the runs,
so that a card that was stopped resumes where it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from mecheval.cards.experiments import CardRuns, seeds_of
from mecheval.cards.search import compared_at, reached, score, select_worse, wider_rate
from mecheval.report import labels
from mecheval.runs.checked import CHECKSUMS
from mecheval.sweeps.sweep import Watch

if TYPE_CHECKING:
    from mecheval.report.study import Study

PERFECT = 0.99  # accuracy on dev from which no other rate is tried
WIDENINGS = 2  # rates tried beyond the edge of the scale's
COUNTS = {2: "two", 3: "three"}


@dataclass(frozen=True)
class Stage:
    """One stage: its name, the runs and tasks on the card after it, and what it trains.

    `work` returns whether anything was left to train.
    """

    name: str
    runs: CardRuns
    tasks: tuple[str, ...]
    work: Callable[[], bool]


def plan_stages(runs: CardRuns, watch: Watch) -> list[Stage]:
    """Return the stages of a card in order: a large scale begins with the first answer of quick."""
    planned = Stages(runs, watch).plan()
    if runs.quick:
        first = Stages(runs.quick, watch).plan()[0]
        planned.insert(0, replace(first, name=f"{first.name}, at scale {runs.quick.scale.name}"))
    return planned


class Stages:
    """Trains the runs of a card at one scale, stage by stage."""

    def __init__(self, runs: CardRuns, watch: Watch) -> None:
        self.runs, self._watch = runs, watch
        self._read: tuple[list[str], Study | None] = ([], None)

    def plan(self) -> list[Stage]:
        """Return the stages in order."""
        first, *others = self.runs.tasks
        seeds = len(seeds_of(self.runs.scale))
        refined = f"{COUNTS.get(seeds, str(seeds))} seeds, baselines"
        stages = [
            self._stage(first, "one seed", self._search),
            self._stage(first, "every rate", self._every_rate),
            self._stage(first, refined, self._seeds),
        ]
        for task in others:
            stages.append(self._stage(task, "one seed", self._every_rate))
            stages.append(self._stage(task, refined, self._seeds))
        return stages

    def _stage(self, task: str, title: str, work: Callable[[str], bool]) -> Stage:
        """Return a stage that trains on a task; the tasks before it stay on the card."""
        tasks = self.runs.tasks[: self.runs.tasks.index(task) + 1]
        name = f"{labels.short_task(task)}, {title}"
        return Stage(name, self.runs, tuple(tasks), partial(work, task))

    def _search(self, task: str) -> bool:
        """Train every rate for a while, and to the end only the best."""
        runs, seed, worked = self.runs, self.runs.first_seed, False
        rates = [runs.of(task, rate, seed) for rate in runs.rates(task)]
        step = compared_at(rates[0])
        if len(rates) > 1 and step is not None:
            behind = [one for one in rates if not reached(one, runs.own.folder, step)]
            worked = runs.own.execute(behind, self._watch, until=step)
            scores = [score(one, runs.own.folder, step) for one in rates]
            worse = select_worse([one for one in scores if one])
            stopped = {runs.of(one.task, one.rate, one.seed).key: one for one in worse}
            runs.own.stop(stopped)
            rates = [one for one in rates if one.key not in stopped]
        return runs.own.execute(rates, self._watch) or worked

    def _every_rate(self, task: str) -> bool:
        """Train every rate with one seed, and beyond the edge if the best is there.

        Nothing is done if a rate is already as good as perfect.
        """
        runs, seed, worked = self.runs, self.runs.first_seed, False
        rates = runs.rates(task)
        for _ in range(WIDENINGS + 1):
            best = self._best_rate(task, [seed])
            if best and best[1] >= PERFECT:
                break
            planned = [runs.of(task, rate, seed) for rate in rates]
            worked |= runs.own.execute(planned, self._watch)
            best = self._best_rate(task, [seed])
            wider = wider_rate(rates, best[0]) if best else None
            if best is None or best[1] >= PERFECT or wider is None:
                break
            rates = [*rates, wider]
        return worked

    def _seeds(self, task: str) -> bool:
        """Train the best rate with every seed, then the baselines."""
        runs, worked = self.runs, False
        seeds = seeds_of(runs.scale)
        for _ in range(len(runs.rates(task)) + WIDENINGS):
            best = self._best_rate(task, seeds)
            planned = [runs.of(task, best[0], seed) for seed in seeds] if best else []
            if not runs.own.execute(planned, self._watch):
                break
            worked = True
        return runs.shared.execute(runs.baseline_runs(task), self._watch) or worked

    def _best_rate(self, task: str, seeds: Sequence[int]) -> tuple[float, float] | None:
        """Return the rate that is best on dev with its accuracy there; None without a run."""
        from mecheval.report.tables import chosen

        study = self._study()
        if study is None:
            return None
        table, name = study.runs, self.runs.subject.architecture
        mine = (table["model.architecture"] == name) & (table["task"] == task)
        part = replace(study, runs=table[mine & table["seed"].isin(list(seeds))])
        lines = chosen(part).to_dict("records") if len(part.runs) else []
        if not lines:
            return None
        return float(lines[0]["train.lr"]), float(lines[0]["accuracy"])

    def _study(self) -> "Study | None":
        """Read the subject's runs again if one more is finished."""
        from mecheval.report.study import Study

        folder = self.runs.own.folder
        paths = folder.iterdir() if folder.is_dir() else ()
        finished = sorted(path.name for path in paths if (path / CHECKSUMS).exists())
        if finished != self._read[0]:
            self._read = finished, Study.read(folder)
        return self._read[1]
