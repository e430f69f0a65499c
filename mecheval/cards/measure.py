"""Measurements of a card beside its runs, kept in a file of its folder.

In the best run of each task: what each site restores, and the weights with which tokens are mixed.
Of each architecture: what the model costs, and how long a training step takes. Torch is imported
only when something has to be measured, so that an existing card opens at once.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mecheval.runs.experiment import Experiment, Settings
from mecheval.runs.files import Damaged, read_json, write_json
from mecheval.runs.finished import Run

if TYPE_CHECKING:
    from mecheval.models.build import Model

FILE = "examined.json"
WARM, ROUNDS = 3, 25  # training steps before the timing starts, and timed
Row = Mapping[str, Any]
Runs = Mapping[str, Path]  # the folder of a run by task


@dataclass(frozen=True)
class Measured:
    """Everything measured beside the runs, as records.

    `cells`: the restored share by task, site and role. `looks`: the share of the mixing weights by
    task, layer and roles, mean over heads and in the strongest head. `costs`: by architecture.
    `steps`: the subject's step time over the architecture's, median and middle half of the rounds.
    `diagnoses`: of each task that is not solved, why.
    """

    cells: list[Row]
    looks: list[Row]
    costs: list[Row]
    steps: list[Row]
    diagnoses: list[Row]


def load_or_measure(
    best: Runs, experiments: Sequence[Experiment], folder: Path, unsolved: Sequence[str] = ()
) -> Measured:
    """Return what is kept in the folder if it belongs to these runs; otherwise measure and keep it.

    `best` is the best run of each task; `experiments` has one of each architecture, the subject's
    first; `unsolved` are the tasks that need a diagnosis.
    """
    runs = {task: run.name for task, run in best.items()}
    source = {"runs": runs, "experiments": [experiment.key for experiment in experiments]}
    source["unsolved"] = list(unsolved)
    try:
        kept = read_json(folder / FILE)
        if kept["of"] == source:
            return Measured(**kept["found"])
    except (Damaged, KeyError, TypeError):
        pass  # missing or incomplete: measure again
    measured = measure(best, experiments, unsolved)
    write_json(folder / FILE, {"of": source, "found": asdict(measured)})
    return measured


def measure(
    best: Runs, experiments: Sequence[Experiment], unsolved: Sequence[str] = ()
) -> Measured:
    from mecheval.cards.diagnosis import diagnose
    from mecheval.runs.fit import prepared

    cells: list[Row] = []
    looks: list[Row] = []
    diagnoses: list[Row] = []
    with prepared(Settings()):
        for task, folder in best.items():
            run = Run(folder)
            model = run.load_model()
            cells += _restored_shares(task, model, run.experiment)
            looks += _mixing_shares(task, model, run.experiment)
            diagnoses += [diagnose(run, model)] if task in unsolved else []
        costs = [_cost(experiment) for experiment in experiments]
        return Measured(cells, looks, costs, _step_times(experiments), diagnoses)


def _restored_shares(task: str, model: "Model", experiment: Experiment) -> Iterator[Row]:
    """Yield a record for each cell of the grid over all sites; none if the task is not learned."""
    from mecheval.interventions.grid import GridOptions
    from mecheval.interventions.grid_eval import evaluate_grid

    options = GridOptions(site="all", documents=experiment.eval.grid_documents)
    result = evaluate_grid(model, experiment.task, options, seed=experiment.seed)
    for row in result.rows(experiment.train.total):
        if row.metric == "share" and row.condition == "restored":
            names = ("site", "layer", "role", "value", "low", "high", "n")
            yield {"task": task, **{name: getattr(row, name) for name in names}}


def _mixing_shares(task: str, model: "Model", experiment: Experiment) -> Iterator[Row]:
    """Yield a record for each layer and pair of roles; none without a mixer's `mixing`."""
    from mecheval.interventions.token_mixing import token_mixing
    from mecheval.models.build import is_ours

    if not is_ours(model) or not any(hasattr(block.mixer, "mixing") for block in model.blocks):
        return
    documents, seed = experiment.eval.grid_documents, experiment.seed
    heads: dict[tuple[int, str, str], list[Any]] = {}
    for row in token_mixing(model, experiment.task, documents=documents, seed=seed).rows():
        heads.setdefault((row.layer, row.from_role, row.to_role), []).append(row)
    for (layer, from_role, to_role), rows in heads.items():
        strongest = max(rows, key=lambda row: row.share)
        yield {
            "task": task,
            "layer": layer,
            "from_role": from_role,
            "to_role": to_role,
            "share": float(np.mean([row.share for row in rows])),
            "most": strongest.share,
            "head": strongest.head,
            "heads": len(rows),
            "n": strongest.n,
        }


def _cost(experiment: Experiment) -> Row:
    from mecheval.models.cost import describe_model

    facts = describe_model(_untrained(experiment))
    return {
        "architecture": experiment.model.architecture,
        "parameters": facts.parameters,
        "parameters_without_embedding": facts.parameters_without_embedding,
        "state_bytes": _by_length(facts.state_bytes),
        "flops_per_token": _by_length(facts.flops_per_token),
    }


def _by_length(values: Mapping[int, int]) -> list[Row]:
    """Write lengths as values, because names in JSON cannot be integers."""
    return [{"tokens": tokens, "value": value} for tokens, value in values.items()]


def _step_times(experiments: Sequence[Experiment]) -> list[Row]:
    """Time one step of each model in turn, so that other load on the machine affects all alike."""
    seconds = np.empty((WARM + ROUNDS, len(experiments)))
    loops = [_training_loop(experiment) for experiment in experiments]
    for turn in seconds:
        for i, loop in enumerate(loops):
            start = time.perf_counter()
            next(loop)
            turn[i] = time.perf_counter() - start
    seconds = seconds[WARM:]
    ratio, low, high = np.quantile(seconds[:, :1] / seconds, [0.5, 0.25, 0.75], axis=0).tolist()
    rows: list[Row] = []
    for i, experiment in enumerate(experiments):
        name, median = experiment.model.architecture, 1e3 * float(np.median(seconds[:, i]))
        ratios = {"ratio": ratio[i], "low": low[i], "high": high[i]}
        rows.append({"architecture": name, "milliseconds": median, **ratios})
    return rows


def _training_loop(experiment: Experiment) -> Iterator[Any]:
    """Train at a rate so low that nothing can diverge."""
    from mecheval.training.batches import Batches
    from mecheval.training.train import Training, train

    steps = WARM + ROUNDS
    config = replace(experiment.train, documents=0, epochs=None, steps=steps, stop=None, lr=1e-9)
    training = Training.start(_untrained(experiment), config)
    batches = Batches(experiment.task, experiment.seed, config)
    return train(training, config, batches, lambda model: {"loss": 0.0}, steps)


def _untrained(experiment: Experiment) -> "Model":
    from mecheval.models.build import build_model

    return build_model(experiment.model, experiment.task.vocab_size, experiment.seed)
