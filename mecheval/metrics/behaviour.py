"""Whether a model recalls: loss, accuracy and likelihood of the right answer where it is asked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float64
from numpy import ndarray

from mecheval.metrics.measurement import Measurement
from mecheval.metrics.statistics import interval
from mecheval.models.language_model import LanguageModel
from mecheval.tasks.batch import Documents
from mecheval.training.batches import Batch

BLOCK = 128  # documents of a forward pass


@dataclass(frozen=True)
class Behaviour:
    """A number for each document: the mean over its queries."""

    loss: Float64[ndarray, " n"]
    accuracy: Float64[ndarray, " n"]
    likelihood: Float64[ndarray, " n"]

    def means(self) -> dict[str, float]:
        return {name: float(values.mean()) for name, values in self._columns()}

    def rows(self, split: str, step: int, which: Bool[ndarray, " n"] | None = None) -> list[Measurement]:
        """One row for each metric, over all documents or over some; none where there are none."""
        chosen = {name: values if which is None else values[which] for name, values in self._columns()}
        return [_row(name, values, split, step) for name, values in chosen.items() if len(values)]

    def _columns(self) -> Iterator[tuple[str, Float64[ndarray, " n"]]]:
        return iter({"loss": self.loss, "accuracy": self.accuracy, "likelihood": self.likelihood}.items())


@torch.no_grad()
def behaviour(model: LanguageModel, docs: Documents) -> Behaviour:
    device = model.embedding.weight.device
    blocks = [_behaviour(model, Batch.of(docs[start : start + BLOCK], device)) for start in range(0, len(docs), BLOCK)]
    return Behaviour(**{name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]})


def _behaviour(model: LanguageModel, batch: Batch) -> Mapping[str, Float64[ndarray, " n"]]:
    logits = model(batch.tokens, batch.at).double()
    loss = F.cross_entropy(logits.transpose(1, 2), batch.answers, reduction="none")
    right = logits.argmax(dim=-1) == batch.answers
    found = {"loss": loss, "accuracy": right.double(), "likelihood": (-loss).exp()}
    return {name: values.mean(dim=1).cpu().numpy() for name, values in found.items()}


def _row(metric: str, values: Float64[ndarray, " n"], split: str, step: int) -> Measurement:
    low, high = interval(values)
    return Measurement(
        metric=metric, value=float(values.mean()), n=len(values), low=low, high=high, split=split, step=step
    )
