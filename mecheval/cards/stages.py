"""The stages of a card: a first answer in minutes, refined until it is complete.

Each stage trains what it needs and is not finished yet. All decisions are functions of the runs,
so that a card that was stopped resumes where it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mecheval.cards.experiments import CardRuns, seeds_of
from mecheval.cards.search import (
    Stopped,
    reached,
    rung_steps,
    score,
    select_worse,
    wider_rate,
)
from mecheval.report import labels
from mecheval.runs.checked import CHECKSUMS
from mecheval.sweeps.sweep import Watch

if TYPE_CHECKING:
    from mecheval.report.study import Study

PERFECT = 0.99  # accuracy on dev from which no other rate is tried
WIDENINGS = 2  # rates tried beyond the edge of the scale's
Work = Callable[["Stages"], bool]


@dataclass(frozen=True)
class Stage:
    """One stage: its name, the tasks on the card after it, and what it trains."""

    name: str
    tasks: tuple[str, ...]
    work: Work


class Stages:
    """Trains the runs of a card, stage by stage."""

    def __init__(self, runs: CardRuns, watch: Watch) -> None:
        self.runs, self._watch = runs, watch
        self._read: tuple[list[str], Study | None] = ([], None)

    def plan(self) -> list[Stage]:
        """Return the stages in order."""
        first, *others = self.runs.tasks
        name, seeds = labels.short_task(first), len(seeds_of(self.runs.scale))
        count = {2: "two", 3: "three"}.get(seeds, str(seeds))
        stages = [
            Stage(f"{name}, one seed", (first,), lambda self: self._search(first)),
            Stage(f"{name}, every rate", (first,), lambda self: self._every_rate(first)),
            Stage(f"{name}, {count} seeds, baselines", (first,), lambda self: self._seeds(first)),
        ]
        done = [first]
        for task in others:
            done.append(task)
            name = labels.short_task(task)
            for title, work in (("one seed", Stages._every_rate), ("", Stages._seeds)):
                title = f"{name}, {title or f'{count} seeds, baselines'}"
                stages.append(Stage(title, tuple(done), _on(work, task)))
        return stages

    def _search(self, task: str) -> bool:
        """Train every rate for a while, and to the end only the best."""
        runs, seed = self.runs, self.runs.first_seed
        alive = [runs.of(task, rate, seed) for rate in runs.rates(task)]
        steps, worked = rung_steps(alive[0]), False
        for step in steps if len(alive) > 1 else []:
            behind = [one for one in alive if not reached(one, runs.own.folder, step)]
            worked |= runs.own.execute(behind, self._watch, until=step)
            every = [score(one, runs.own.folder, step) for one in alive]
            scores = [one for one in every if one]
            worse = select_worse(scores, last=step == steps[-1])
            stopped = {self._key(one): one for one in worse}
            runs.own.stop(stopped)
            alive = [one for one in alive if one.key not in stopped]
        worked |= runs.own.execute(alive, self._watch)
        return worked

    def _key(self, stopped: Stopped) -> str:
        return self.runs.of(stopped.task, stopped.rate, stopped.seed).key

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


def _on(work: Callable[[Stages, str], bool], task: str) -> Work:
    return lambda stages: work(stages, task)
