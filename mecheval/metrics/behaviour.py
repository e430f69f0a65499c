"""Whether a model recalls: loss, accuracy and likelihood of the right answer where it is asked; registered metrics."""

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
Columns = Mapping[str, Float64[ndarray, " n"]]


@dataclass(frozen=True)
class Behaviour:
    """A number for each document: the mean over its queries. `others` are of the metrics that were registered."""

    loss: Float64[ndarray, " n"]
    accuracy: Float64[ndarray, " n"]
    likelihood: Float64[ndarray, " n"]
    others: Columns = field(default_factory=dict)

    def means(self) -> dict[str, float]:
        """Of our own three, which are the curve of a training."""
        return {name: float(values.mean()) for name, values in self._own.items()}

    def rows(self, split: str, step: int, which: Bool[ndarray, " n"] | None = None) -> list[Measurement]:
        """One row for each metric, over all documents or over some; none where there are none."""
        every = {**self._own, **self.others}
        chosen = {name: values if which is None else values[which] for name, values in every.items()}
        return [_row(name, values, split, step) for name, values in chosen.items() if len(values)]

    @property
    def _own(self) -> Columns:
        return {"loss": self.loss, "accuracy": self.accuracy, "likelihood": self.likelihood}


@torch.no_grad()
def behaviour(model: Model, docs: Documents) -> Behaviour:
    device = next(model.parameters()).device
    blocks = [_behaviour(model, Batch.of(docs[start : start + BLOCK], device)) for start in range(0, len(docs), BLOCK)]
    whole = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    loss, accuracy, likelihood = (whole.pop(name) for name in ("loss", "accuracy", "likelihood"))
    return Behaviour(loss, accuracy, likelihood, whole)


def _behaviour(model: Model, batch: Batch) -> Columns:
    logits = model(batch.tokens, batch.at).double()
    loss = F.cross_entropy(logits.transpose(1, 2), batch.answers, reduction="none")
    right = logits.argmax(dim=-1) == batch.answers
    found = {"loss": loss, "accuracy": right, "likelihood": (-loss).exp()}
    others = read_registered(logits.flatten(0, 1), batch.answers.flatten())
    found |= {name: values.view_as(loss) for name, values in others.items()}
    return {name: values.double().mean(dim=1).cpu().numpy() for name, values in found.items()}


def _row(metric: str, values: Float64[ndarray, " n"], split: str, step: int) -> Measurement:
    low, high = interval(values)
    return Measurement(
        metric=metric, value=float(values.mean()), n=len(values), low=low, high=high, split=split, step=step
    )
