"""What is measured beside the runs: where in the best run of each task the answer comes back, where its tokens look,
what a model costs, and how long a step takes beside the baselines'."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mecheval.cards.measured import Examined, Row
from mecheval.interventions.grid import GridOptions
from mecheval.interventions.grid_eval import evaluate_grid
from mecheval.interventions.token_mixing import token_mixing
from mecheval.models.build import Model, build_model, resumes
from mecheval.models.cost import describe_model
from mecheval.runs.experiment import Experiment, Settings
from mecheval.runs.finished import Run
from mecheval.runs.fit import prepared
from mecheval.training.batches import Batches
from mecheval.training.train import Training, train

WARM, ROUNDS = 3, 25  # steps of each model that are not counted, and that are


def examine(best: Mapping[str, Path], experiments: Sequence[Experiment]) -> Examined:
    """Of the best run of each task, and of one experiment for each architecture, the subject's first."""
    with prepared(Settings()):
        runs = {task: Run(folder) for task, folder in best.items()}
        models = {task: (run.load_model(), run.experiment) for task, run in runs.items()}
        cells = [row for task, (model, own) in models.items() for row in _cells(task, model, own)]
        looked = [row for task, (model, own) in models.items() for row in _looks(task, model, own)]
        return Examined(cells, looked, [_cost(one) for one in experiments], _steps(experiments))


def _cells(task: str, model: Model, experiment: Experiment) -> Iterator[Row]:
    """At all sites that need not be materialised; nothing where nothing was learned."""
    options = GridOptions(site="all", documents=experiment.eval.grid_documents)
    result = evaluate_grid(model, experiment.task, options, seed=experiment.seed)
    for row in result.rows(experiment.train.total):
        if row.metric == "share" and row.condition == "restored":
            names = ("site", "layer", "role", "value", "low", "high", "n")
            yield {"task": task, **{name: getattr(row, name) for name in names}}


def _looks(task: str, model: Model, experiment: Experiment) -> Iterator[Row]:
    """Nothing of a mixer that does not say where it looks."""
    if not resumes(model) or not any(hasattr(block.mixer, "mixing") for block in model.blocks):
        return
    documents = experiment.eval.grid_documents
    found = token_mixing(model, experiment.task, documents=documents, seed=experiment.seed).rows()
    for place in dict.fromkeys((row.layer, row.from_role, row.to_role) for row in found):
        heads = [row for row in found if (row.layer, row.from_role, row.to_role) == place]
        most = max(heads, key=lambda row: row.share)
        yield {
            "task": task,
            **dict(zip(("layer", "from_role", "to_role"), place, strict=True)),
            "share": float(np.mean([row.share for row in heads])),
            "most": most.share,
            "head": most.head,
            "heads": len(heads),
            "n": most.n,
        }


def _cost(experiment: Experiment) -> Row:
    """JSON has no integers for names, so lengths are columns."""
    facts = describe_model(_built(experiment))
    return {
        "architecture": experiment.model.architecture,
        "parameters": facts.parameters,
        "parameters_without_embedding": facts.parameters_without_embedding,
        "state_bytes": [{"tokens": n, "value": value} for n, value in facts.state_bytes.items()],
        "flops_per_token": [{"tokens": n, "value": value} for n, value in facts.flops_per_token.items()],
    }


def _steps(experiments: Sequence[Experiment]) -> list[Row]:
    """One step of each in turn, so that whatever else the machine does meets all of them."""
    taken = np.empty((WARM + ROUNDS, len(experiments)))
    loops = [_loop(experiment) for experiment in experiments]
    for turn in taken:
        for i, loop in enumerate(loops):
            start = time.perf_counter()
            next(loop)
            turn[i] = time.perf_counter() - start
    taken = taken[WARM:]
    ratios = np.quantile(taken[:, :1] / taken, [0.5, 0.25, 0.75], axis=0)
    return [
        {
            "architecture": experiment.model.architecture,
            "milliseconds": 1e3 * float(np.median(taken[:, i])),
            **dict(zip(("ratio", "low", "high"), ratios[:, i].tolist(), strict=True)),
        }
        for i, experiment in enumerate(experiments)
    ]


def _loop(experiment: Experiment) -> Iterator[Any]:
    """Training that learns next to nothing, so that nothing diverges."""
    steps = WARM + ROUNDS
    config = replace(experiment.train, documents=0, epochs=None, steps=steps, stop=None, lr=1e-9)
    batches = Batches(experiment.task, experiment.seed, config)
    return train(Training.start(_built(experiment), config), config, batches, lambda model: {"loss": 0.0}, steps)


def _built(experiment: Experiment) -> Model:
    return build_model(experiment.model, experiment.task.vocab_size, experiment.seed)
