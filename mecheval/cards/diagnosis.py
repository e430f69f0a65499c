"""The numbers that say why a mixer has not learned a task, measured in its best run.

Each has the number n it is the mean of and a 95 % interval. Torch is imported when a model is
measured.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from mecheval.metrics.statistics import interval, proportion_interval
from mecheval.runs.finished import Run
from mecheval.tasks.chance import chance, known_chance
from mecheval.tasks.documents import Documents
from mecheval.tasks.recall import Recall

if TYPE_CHECKING:
    from mecheval.models.build import Model

DOCUMENTS = 1024  # of train and test; by number of pairs half as many
BLOCK = 256  # documents of a forward pass
PAIRS = (2, 4, 8)
GROUPS = 8  # lines of a table by distance or position
LEAST_POINTS = 4  # evaluations of a slope
WINDOW = 1 / 3  # the last part of the curve, in which its slope is measured
Row = Mapping[str, Any]


def diagnose(run: Run, model: "Model") -> Row:
    """Return everything that is measured for a diagnosis, as records."""
    experiment = run.experiment
    task, seed = experiment.task, experiment.seed
    test = task.documents(seed, "test", 0, DOCUMENTS)
    seen = _seen_documents(run)
    right, inside = _answers(model, test)
    distance = test.roles["query"] - test.roles["key"]
    reach = _reach(model, run)
    limit = reach[0]["tokens"] if reach else 0
    levels = known_chance(experiment.task_spec)
    return {
        "task": experiment.task_spec,
        "test": _proportion(right),
        "train": _proportion(_answers(model, seen)[0]),
        "from_document": _proportion(inside),
        "chance": levels.best if levels else None,
        "without_recall": str(levels) if levels else "not known",
        "by_distance": list(_grouped(distance, right)),
        "by_position": list(_grouped(_position(run, test), right)),
        "position": "pair" if isinstance(task, Recall) else "position of the key",
        **_by_pairs(model, run),
        "curve": slope(run.curve, run.outcome["steps"], experiment.train.total),
        "gradient_norm": _gradient_norm(run.curve),
        "reach": reach,
        "farther": _proportion(distance > limit),
        "trained_on": experiment.train.documents,
    }


def slope(curve: Sequence[Row], steps: int, total: int) -> Row:
    """Return the change of the dev loss in 100 steps over the last third of the curve.

    It is the slope of the logarithm by least squares with Student's interval.
    """
    from scipy.stats import linregress, t

    rows = [row for row in curve if row.get("loss", 0) > 0]
    count = max(LEAST_POINTS, round(len(rows) * WINDOW))
    rows = rows[-count:]
    record: dict[str, Any] = {"steps": steps, "total": total, "n": len(rows), "value": None}
    if len(rows) < LEAST_POINTS:
        return record
    x = np.array([row["step"] for row in rows], dtype=float)
    fit = linregress(x, np.log([row["loss"] for row in rows]))
    half = float(t.ppf(0.975, len(rows) - 2)) * fit.stderr
    ends = (fit.slope, fit.slope - half, fit.slope + half)
    value, low, high = (float(np.expm1(100 * end)) for end in ends)
    accuracy = rows[-1].get("accuracy")
    scores = {"loss": rows[-1]["loss"], "accuracy": accuracy, "first_step": rows[0]["step"]}
    return {**record, "value": value, "low": low, "high": high, **scores}


def _answers(model: "Model", docs: Documents) -> tuple[ndarray, ndarray]:
    """Return which first queries are answered right, and which by any token of the document."""
    import torch

    from mecheval.models.inputs import Batch

    answers = []
    device = next(model.parameters()).device
    with torch.no_grad():
        for start in range(0, len(docs), BLOCK):
            batch = Batch.of(docs[start : start + BLOCK], device)
            logits = model(batch.tokens, batch.at[:, :1])
            answers.append(logits[:, 0].argmax(dim=-1).cpu().numpy())
    said = np.concatenate(answers)
    before = np.arange(docs.tokens.shape[1]) < docs.roles["divider"][:, None]
    inside = ((docs.tokens == said[:, None]) & before).any(axis=1)
    return said == docs.answer, inside


def _seen_documents(run: Run) -> Documents:
    """Return documents that the run was trained on."""
    from mecheval.training.batches import Batches

    experiment = run.experiment
    batches = Batches(experiment.task, experiment.seed, experiment.train)
    return next(batches.blocks(run.outcome["steps"]))[:DOCUMENTS]


def _by_pairs(model: "Model", run: Run) -> Row:
    """Return the accuracy on documents of 2, 4 and 8 pairs from the same vocabulary."""
    experiment, rows, notes = run.experiment, [], []
    task = experiment.task
    if not isinstance(task, Recall):
        note = "The task has no pairs whose number could vary."
        return {"by_pairs": [], "pairs_note": note, "trained_pairs": None}
    for pairs in sorted({*PAIRS, task.pairs}):
        longest = 2 + 2 * pairs + task.queries
        if longest > experiment.model.max_len or pairs > task.vocab // 2 or pairs < task.queries:
            notes.append(f"{pairs} pairs do not fit into max_len or the vocabulary.")
            continue
        other = replace(task, pairs=pairs, min_pairs=None)
        docs = other.documents(experiment.seed, "test", 0, DOCUMENTS // 2)
        right = _proportion(_answers(model, docs)[0])
        rows.append({"pairs": pairs, **right, "chance": chance(other, experiment.seed).best})
    notes.append(f"It was trained with {task.pairs} pairs; other numbers are new to it.")
    return {"by_pairs": rows, "pairs_note": " ".join(notes), "trained_pairs": task.pairs}


def _reach(model: "Model", run: Run) -> list[Row]:
    from mecheval.interventions.reach import reach

    return [asdict(one) for one in reach(model, run.experiment.task, seed=run.experiment.seed)]


def _position(run: Run, docs: Documents) -> ndarray:
    """Return the number of the pair that is asked about, from 1, or the key's position."""
    key = np.minimum(docs.roles["key"], docs.roles["value"])
    return (key + 1) // 2 if isinstance(run.experiment.task, Recall) else docs.roles["key"]


def _grouped(numbers: ndarray, right: ndarray) -> Iterator[Row]:
    """Yield the accuracy of each value, or of ranges of values with about equal counts."""
    values = np.unique(numbers)
    groups = [np.array([value]) for value in values]
    if len(values) > GROUPS:
        edges = np.unique(np.quantile(numbers, np.linspace(0, 1, GROUPS + 1)).astype(int))
        cuts = [values[(values >= a) & (values < b)] for a, b in pairwise(edges)]
        cuts[-1] = np.append(cuts[-1], edges[-1])
        groups = [cut for cut in cuts if len(cut)]
    for group in groups:
        here = np.isin(numbers, group)
        if here.any():
            yield {"first": int(group[0]), "last": int(group[-1]), **_proportion(right[here])}


def _proportion(values: ndarray) -> Row:
    n = len(values)
    low, high = proportion_interval(int(values.sum()), n)
    return {"value": float(values.mean()), "low": low, "high": high, "n": n}


def _gradient_norm(curve: Sequence[Row]) -> Row | None:
    """Return the mean gradient norm over the last third of the evaluations."""
    every = [row["gradient_norm"] for row in curve if "gradient_norm" in row]
    last = np.array(every[-max(2, round(len(every) * WINDOW)) :], dtype=float)
    if len(last) < 2:
        return None
    low, high = interval(last)
    return {"value": float(last.mean()), "low": low, "high": high, "n": len(last)}
