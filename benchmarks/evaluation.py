"""Evaluating a model, against a pass with all logits."""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.measure import Times, interleaved
from benchmarks.plain import Ops, replaced, twins
from benchmarks.ratio import Job, Line, times_as_fast
from benchmarks.size import Size
from benchmarks.steps import Arena
from mecheval.metrics.behaviour import BLOCK, behaviour
from mecheval.models.inputs import Batch
from mecheval.models.language_model import LanguageModel
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared
from mecheval.tasks.documents import Documents

CAPTION = (
    "Loss, accuracy and likelihood of dev documents. *all logits*: the same model with logits at every position; "
    "*plain*: that, with every op by its `_ref` twin."
)


def jobs(size: Size) -> Iterator[Job]:
    for architecture in size.architectures:
        yield Job(architecture, partial(lines, architecture, size), weight=3 * size.rounds)


def lines(architecture: str, size: Size) -> Iterator[Line]:
    times = contest(architecture, size, {"all logits": {}, "plain": twins()})
    for name in list(times)[1:]:
        yield times_as_fast(architecture, name, times["ours"], times[name])


def contest(architecture: str, size: Size, forms: dict[str, Ops]) -> dict[str, Times]:
    arena = Arena(architecture, size.width, size)
    model, docs = arena.model(), arena.task.documents(0, "dev", 0, size.evaluated)
    plainly = {name: partial(plain_behaviour, model, docs, ops) for name, ops in forms.items()}
    with prepared(Settings()):
        return interleaved({"ours": partial(behaviour, model, docs), **plainly}, size.rounds)


@torch.no_grad()
def plain_behaviour(model: LanguageModel, docs: Documents, ops: Ops) -> dict[str, float]:
    """The means of what `behaviour` finds."""
    losses, right = [], []
    for start in range(0, len(docs), BLOCK):
        batch = Batch.of(docs[start : start + BLOCK])
        with replaced(ops):
            logits = model(batch.tokens)
        asked = logits[torch.arange(len(logits))[:, None], batch.at]
        losses.append(
            F.cross_entropy(asked.transpose(1, 2), batch.answers, reduction="none").mean(dim=1)
        )
        right.append((asked.argmax(dim=-1) == batch.answers).float().mean(dim=1))
    loss = torch.cat(losses)
    return {
        "loss": loss.mean().item(),
        "accuracy": torch.cat(right).mean().item(),
        "likelihood": (-loss).exp().mean().item(),
    }
