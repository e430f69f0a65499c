"""How long a sweep takes, from steps, evaluations and interventions that are measured here and now, in CPU time.

What is measured is a shape: all that decides the cost of a step. When the time for it is up, the rest is taken from the
nearest shape that was measured, in proportion to batch × tokens × layers × width.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import median
from typing import Any

from mecheval.core.spec import Spec
from mecheval.runs.experiment import Experiment, Settings
from mecheval.sweeps.state import State

BUDGET_SECONDS = 15.0
START_SECONDS = 4.0  # of one core, for a process to import torch and begin
STEPS, DOCUMENTS = 4, 8  # measured of each
Shape = tuple[Any, ...]


@dataclass(frozen=True)
class Cost:
    """Seconds of one core: of a step, of one document evaluated, of one document with all its interventions."""

    step: float
    evaluated: float
    intervened: float

    def of(self, experiment: Experiment) -> float:
        """A whole run that is not stopped early."""
        asked, steps = experiment.eval, experiment.train.total
        evaluations = -(-steps // asked.every)
        grids = 2 if asked.grid_split == "both" else 1
        grids += evaluations // asked.grid_every if asked.grid_every else 0
        looks = (evaluations + 2) * asked.documents * self.evaluated  # dev and test at the end
        return START_SECONDS + steps * self.step + looks + grids * asked.grid_documents * self.intervened

    def times(self, factor: float) -> "Cost":
        return Cost(self.step * factor, self.evaluated * factor, self.intervened * factor)


@dataclass(frozen=True)
class Estimate:
    """`groups` are the open experiments of each task and architecture."""

    seconds: float  # with so many workers
    core_seconds: float
    shapes: int
    measured: int
    groups: list[dict[str, Any]]


def estimate(states: Sequence[State], workers: int, budget: float = BUDGET_SECONDS) -> Estimate:
    """For those that are given, from their beginning."""
    tokens = _tokens([state.experiment for state in states])
    shapes = [shape(state.experiment, tokens) for state in states]
    kinds = {kind: state.experiment for kind, state in zip(shapes, states, strict=True)}
    costs: dict[Shape, Cost] = {}
    from mecheval.runs.fit import prepared

    with prepared(Settings()):
        for smallest in sorted(kinds, key=_work)[:1]:
            measured(kinds[smallest])  # who comes first pays for what all import and compile
        until = time.monotonic() + budget
        for kind in _order(kinds):
            if not costs or time.monotonic() < until:
                costs[kind] = measured(kinds[kind])
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    every: list[float] = []
    for kind, state in zip(shapes, states, strict=True):
        cost = _nearest(kind, costs)
        every.append(cost.of(state.experiment))
        key = (state.experiment.task_spec, state.experiment.model.architecture)
        group = groups.setdefault(key, {"task": key[0], "architecture": key[1], "runs": 0, "steps": 0, "seconds": 0.0})
        group["runs"] += 1
        group["steps"] += state.experiment.train.total
        group["seconds"] += every[-1]
    wall = max(sum(every) / workers, *every) if every else 0.0
    return Estimate(wall, math.fsum(every), len(kinds), len(costs), list(groups.values()))


def shape(experiment: Experiment, tokens: Mapping[str, int]) -> Shape:
    """Task, architecture, and what the work of a step grows with."""
    model, batch, length = experiment.model, experiment.train.batch, tokens[experiment.task_spec]
    return experiment.task_spec, model.architecture, experiment.eval.grid, batch, length, model.layers, model.d_model


def _tokens(experiments: Sequence[Experiment]) -> dict[str, int]:
    """How long the documents of each task are in a batch; the longest that could be drawn says little."""
    tasks = {experiment.task_spec: experiment.task for experiment in experiments}
    return {name: task.documents(0, "train", 0, DOCUMENTS).tokens.shape[1] for name, task in tasks.items()}


def measured(experiment: Experiment) -> Cost:
    from mecheval.interventions.grid import GridOptions
    from mecheval.interventions.grid_eval import evaluate_grid
    from mecheval.metrics.behaviour import behaviour
    from mecheval.models.build import build_model
    from mecheval.training.batches import Batches
    from mecheval.training.train import Training, train

    task, seed, asked = experiment.task, experiment.seed, experiment.eval
    config = replace(experiment.train, documents=0, epochs=None, steps=STEPS, stop=None, lr=1e-9)
    model = build_model(experiment.model, task.vocab_size, seed)
    batches = Batches(task, seed, config)
    steps = train(Training.start(model, config), config, batches, lambda model: {"loss": 0.0}, STEPS)
    docs = task.documents(seed, "dev", 0, DOCUMENTS)
    step = [_seconds(lambda: next(steps)) for _ in range(STEPS)][1:]  # the first allocates
    evaluated = _seconds(lambda: behaviour(model, docs))
    if asked.grid == "none":
        return Cost(median(step), evaluated / DOCUMENTS, 0.0)
    options = GridOptions(site=asked.grid, documents=DOCUMENTS)
    intervened = _seconds(lambda: evaluate_grid(model, task, options, seed=seed).rows(0))
    return Cost(median(step), evaluated / DOCUMENTS, intervened / DOCUMENTS)


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _order(kinds: Iterable[Shape]) -> Iterator[Shape]:
    """Of every task and architecture first the largest, then the smallest, then what is between; cheap ones first."""
    families: dict[tuple[str, str], list[Shape]] = {}
    for kind in sorted(kinds, key=_work, reverse=True):
        families.setdefault(_family(kind), []).append(kind)
    rows = sorted(([own[0], *own[:0:-1]] for own in families.values()), key=lambda row: _work(row[0]))
    yield from (kind for turn in zip_longest(*rows) for kind in turn if kind)


def _nearest(kind: Shape, costs: dict[Shape, Cost]) -> Cost:
    def distance(other: Shape) -> tuple[bool, bool, float]:
        (task, model), (own_task, own_model) = _family(other), _family(kind)
        return model != own_model, task != own_task, abs(math.log(_work(other) / _work(kind)))

    best = kind if kind in costs else min(costs, key=distance)
    return costs[best].times(_work(kind) / _work(best))


def _family(kind: Shape) -> tuple[str, str]:
    """Task, and architecture without its options."""
    return kind[0], Spec.parse(kind[1]).name


def _work(kind: Shape) -> float:
    return float(math.prod(kind[3:]))
