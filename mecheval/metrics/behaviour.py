"""The behaviour of a model at its queries: loss, accuracy, likelihood and registered metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float64
from numpy import ndarray

from mecheval.metrics.measurement import Measurement
from mecheval.metrics.readout import read_registered
from mecheval.metrics.statistics import interval
from mecheval.models.build import Model
from mecheval.models.inputs import Batch
from mecheval.tasks.documents import Documents

BLOCK = 128  # documents of a forward pass
Which = Bool[ndarray, " n"]
Columns = Mapping[str, Float64[ndarray, " n"]]


@dataclass(frozen=True)
class Behaviour:
    """A number for each document: the mean over its queries. `others` holds registered metrics."""

    loss: Float64[ndarray, " n"]
    accuracy: Float64[ndarray, " n"]
    likelihood: Float64[ndarray, " n"]
    others: Columns = field(default_factory=dict)

    def means(self) -> dict[str, float]:
        """Return the means of the built-in metrics: a line of the training curve."""
        return {name: float(values.mean()) for name, values in self._built_in.items()}

    def rows(self, split: str, step: int, which: Which | None = None) -> list[Measurement]:
        """Return one row for each metric over the documents in `which`; none if it is empty."""
        rows = []
        for metric, values in {**self._built_in, **self.others}.items():
            x = values if which is None else values[which]
            if len(x):
                rows.append(_row(metric, x, split, step))
        return rows

    @property
    def _built_in(self) -> Columns:
        return {"loss": self.loss, "accuracy": self.accuracy, "likelihood": self.likelihood}


@torch.no_grad()
def behaviour(model: Model, docs: Documents) -> Behaviour:
    """Run the model on the documents, a block at a time, and score its answers."""
    device = next(model.parameters()).device
    starts = range(0, len(docs), BLOCK)
    blocks = [_score(model, Batch.of(docs[start : start + BLOCK], device)) for start in starts]
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    loss, accuracy, likelihood = (columns.pop(name) for name in ("loss", "accuracy", "likelihood"))
    return Behaviour(loss, accuracy, likelihood, columns)


def _score(model: Model, batch: Batch) -> Columns:
    logits = model(batch.tokens, batch.at).double()
    loss = F.cross_entropy(logits.transpose(1, 2), batch.answers, reduction="none")
    right = logits.argmax(dim=-1) == batch.answers
    scores = {"loss": loss, "accuracy": right, "likelihood": (-loss).exp()}
    others = read_registered(logits.flatten(0, 1), batch.answers.flatten())
    scores |= {name: values.view_as(loss) for name, values in others.items()}
    return {name: values.double().mean(dim=1).cpu().numpy() for name, values in scores.items()}


def _row(metric: str, x: Float64[ndarray, " n"], split: str, step: int) -> Measurement:
    low, high = interval(x)
    return Measurement(
        metric=metric,
        value=float(x.mean()),
        n=len(x),
        low=low,
        high=high,
        split=split,
        step=step,
    )
