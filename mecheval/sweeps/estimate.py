"""Estimate how long a sweep takes, from a few steps, evaluations and grids measured now.

Measured is each shape: everything that decides the cost of a step. When the time for measuring is
up, other shapes take the cost of the nearest one that was measured, in proportion to batch × tokens
× layers × width. An estimate is a range. At its lower end steps are as fast as the fastest measured
and runs that may stop early do so after a part `EARLY` of their steps; at its upper end all steps
are done, as slowly as the slowest measured, beside whatever else the machine is doing now.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import median
from typing import Any

from mecheval.core.spec import Spec
from mecheval.runs.experiment import Experiment, Settings
from mecheval.sweeps.planned import PlannedRun

BUDGET_SECONDS = 15.0
START_SECONDS = 4.0  # of one core, for a process to import torch and begin
STEPS, DOCUMENTS = 8, 8  # measured of each
EARLY = 0.3  # part of the steps after which a run may have reached the accuracy that stops it
Shape = tuple[Any, ...]


@dataclass(frozen=True)
class Cost:
    """Seconds of one core: per step, per document evaluated, per document with its whole grid.

    `fastest` and `slowest` are those of the measured steps, relative to the usual one.
    """

    step: float
    evaluated: float
    intervened: float
    fastest: float = 1.0
    slowest: float = 1.0

    def of(self, experiment: Experiment, part: float = 1.0) -> float:
        """Return the seconds of a run that is stopped after a part of its steps."""
        config, steps = experiment.eval, math.ceil(part * experiment.train.total)
        evaluations = -(-steps // config.every)
        grids = 2 if config.grid_split == "both" else 1
        grids += evaluations // config.grid_every if config.grid_every else 0
        documents = (evaluations + 2) * config.documents  # dev and test at the end
        seconds = steps * self.step + documents * self.evaluated
        return START_SECONDS + seconds + grids * config.grid_documents * self.intervened

    def times(self, factor: float) -> "Cost":
        times = (self.step * factor, self.evaluated * factor, self.intervened * factor)
        return Cost(*times, self.fastest, self.slowest)


@dataclass(frozen=True)
class Estimate:
    """A range of seconds with so many workers; `groups` are the runs of a task and architecture."""

    seconds: float  # the upper end
    fewest_seconds: float
    core_seconds: float  # of all steps, at the usual pace
    shapes: int
    measured: int
    groups: list[dict[str, Any]]


@dataclass(frozen=True)
class Costs:
    """The measured cost of each kind of run; `tokens` are the usual length of each task."""

    measured: Mapping[Shape, Cost]
    tokens: Mapping[str, int]

    @classmethod
    def measure(cls, runs: Sequence[PlannedRun], budget: float = BUDGET_SECONDS) -> "Costs":
        """Measure every kind of run, or those that fit into so many seconds."""
        experiments = [run.experiment for run in runs]
        tokens = _tokens(experiments)
        return cls(
            _measure_shapes({shape(one, tokens): one for one in experiments}, budget), tokens
        )

    def of(self, experiment: Experiment) -> Cost:
        return _nearest(shape(experiment, self.tokens), self.measured)


def estimate(runs: Sequence[PlannedRun], workers: int, costs: Costs | None = None) -> Estimate:
    """Estimate the runs, each from its first step."""
    costs = costs or Costs.measure(runs)
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    seconds: list[float] = []
    ends: list[tuple[float, float]] = []
    for experiment in [run.experiment for run in runs]:
        cost = costs.of(experiment)
        seconds.append(cost.of(experiment))
        ends.append(_ends(cost, experiment))
        key = (experiment.task_spec, experiment.model.architecture)
        empty = {"task": key[0], "architecture": key[1], "runs": 0, "steps": 0, "seconds": 0.0}
        group = groups.setdefault(key, empty)
        group["runs"] += 1
        group["steps"] += experiment.train.total
        group["seconds"] += seconds[-1]
    fewest, most = (_wall([end[i] for end in ends], workers) for i in (0, 1))
    shapes = {shape(run.experiment, costs.tokens) for run in runs}
    counts = (len(shapes), len(costs.measured), list(groups.values()))
    return Estimate(most * _slowdown(workers), fewest, math.fsum(seconds), *counts)


def estimate_search(
    experiments: Sequence[Experiment], part: float, workers: int, costs: Costs
) -> tuple[float, float]:
    """Estimate the fewest and the most seconds of a search that trains only one run to its end.

    All are trained for a part of their steps before.
    """
    fewest, most = [], []
    for experiment in experiments:
        cost = costs.of(experiment)
        start = cost.of(experiment, part)
        low, high = _ends(cost, experiment)
        fewest.append((start * cost.fastest, max(low - start * cost.fastest, 0)))
        most.append((start * cost.slowest, START_SECONDS + high - start * cost.slowest))
    low, high = (
        _wall([start for start, _ in ends], workers) + pick(rest for _, rest in ends)
        for pick, ends in ((min, fewest), (max, most))
    )
    return low, high * _slowdown(workers)


def _ends(cost: Cost, experiment: Experiment) -> tuple[float, float]:
    """Return the fewest and the most seconds of a run."""
    part = EARLY if experiment.train.stop is not None else 1.0
    return cost.of(experiment, part) * cost.fastest, cost.of(experiment) * cost.slowest


def _wall(seconds: Sequence[float], workers: int) -> float:
    """Return the time of runs that share some workers; no run is shared between them."""
    return max(sum(seconds) / workers, *seconds) if seconds else 0.0


def _slowdown(workers: int) -> float:
    """Return how much slower runs are if the machine stays as busy as it has been for a minute."""
    try:
        load = os.getloadavg()[0]
    except OSError:
        return 1.0
    return max((load + workers) / (os.cpu_count() or 1), 1.0)


def shape(experiment: Experiment, tokens: Mapping[str, int]) -> Shape:
    """Return task, architecture, and everything that the work of a step grows with."""
    task, model = experiment.task_spec, experiment.model
    work = (experiment.train.batch, tokens[task], model.layers, model.d_model)
    return task, model.architecture, experiment.eval.grid, *work


def measure(experiment: Experiment) -> Cost:
    """Measure a few steps, evaluations and grids of an untrained model."""
    from mecheval.interventions.grid import GridOptions
    from mecheval.interventions.grid_eval import evaluate_grid
    from mecheval.metrics.behaviour import behaviour
    from mecheval.models.build import build_model
    from mecheval.training.batches import Batches
    from mecheval.training.train import Training, train

    task, seed, grid = experiment.task, experiment.seed, experiment.eval.grid
    few: dict[str, Any] = {"documents": 0, "epochs": None, "steps": STEPS, "stop": None}
    config = replace(experiment.train, lr=1e-9, **few)
    model = build_model(experiment.model, task.vocab_size, seed)
    batches, training = Batches(task, seed, config), Training.start(model, config)
    steps = train(training, config, batches, lambda model: {"loss": 0.0}, STEPS)
    docs = task.documents(seed, "dev", 0, DOCUMENTS)
    times = [_seconds(lambda: next(steps)) for _ in range(STEPS)][1:]  # the first allocates
    step = median(times)
    ends = (min(times) / step, max(times) / step) if step else (1.0, 1.0)
    evaluated = _seconds(lambda: behaviour(model, docs)) / DOCUMENTS
    if grid == "none":
        return Cost(step, evaluated, 0.0, *ends)
    options = GridOptions(site=grid, documents=DOCUMENTS)
    intervened = _seconds(lambda: evaluate_grid(model, task, options, seed=seed).rows(0))
    return Cost(step, evaluated, intervened / DOCUMENTS, *ends)


def _measure_shapes(examples: Mapping[Shape, Experiment], budget: float) -> dict[Shape, Cost]:
    from mecheval.runs.fit import prepared

    costs: dict[Shape, Cost] = {}
    with prepared(Settings()):
        for smallest in sorted(examples, key=_work)[:1]:
            measure(examples[smallest])  # the first pays for what all import and compile
        until = time.monotonic() + budget
        for kind in _order(examples):
            if not costs or time.monotonic() < until:
                costs[kind] = measure(examples[kind])
    return costs


def _tokens(experiments: Sequence[Experiment]) -> dict[str, int]:
    """Return the usual length of each task's documents; the longest possible says little."""
    tasks = {experiment.task_spec: experiment.task for experiment in experiments}
    blocks = {name: task.documents(0, "train", 0, DOCUMENTS) for name, task in tasks.items()}
    return {name: documents.tokens.shape[1] for name, documents in blocks.items()}


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _order(shapes: Iterable[Shape]) -> Iterator[Shape]:
    """Yield the largest shape of each task and architecture, then their smallest, then the rest.

    Cheap ones come first.
    """
    families: dict[tuple[str, str], list[Shape]] = {}
    for kind in sorted(shapes, key=_work, reverse=True):
        families.setdefault(_family(kind), []).append(kind)
    orders = [[family[0], *family[:0:-1]] for family in families.values()]
    for turn in zip_longest(*sorted(orders, key=lambda order: _work(order[0]))):
        yield from (kind for kind in turn if kind)


def _nearest(kind: Shape, costs: Mapping[Shape, Cost]) -> Cost:
    task, model = _family(kind)

    def distance(other: Shape) -> tuple[bool, bool, float]:
        other_task, other_model = _family(other)
        ratio = _work(other) / _work(kind)
        return other_model != model, other_task != task, abs(math.log(ratio))

    best = kind if kind in costs else min(costs, key=distance)
    return costs[best].times(_work(kind) / _work(best))


def _family(kind: Shape) -> tuple[str, str]:
    """Return the task, and the architecture without its options."""
    return kind[0], Spec.parse(kind[1]).name


def _work(kind: Shape) -> float:
    return float(math.prod(kind[3:]))
