"""Measure the evaluation of a model, against a pass that computes all logits."""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.measure import Times, time_rounds
from benchmarks.plain import Ops, replace_ops, twins
from benchmarks.ratio import Job, Line, speedup
from benchmarks.size import Size
from benchmarks.steps import Setup
from mecheval.metrics.behaviour import BLOCK, behaviour
from mecheval.models.inputs import Batch
from mecheval.models.language_model import LanguageModel
from mecheval.runs.experiment import Settings
from mecheval.runs.fit import prepared
from mecheval.tasks.documents import Documents

CAPTION = (
    "Loss, accuracy and likelihood of dev documents. *all logits*: the same model with logits at "
    "every position; *plain*: the same, with every op replaced by its `_ref` twin."
)


def jobs(size: Size) -> Iterator[Job]:
    for architecture in size.architectures:
        yield Job(architecture, partial(lines, architecture, size), weight=3 * size.rounds)


def lines(architecture: str, size: Size) -> Iterator[Line]:
    times = time_evaluation(architecture, size, {"all logits": {}, "plain": twins()})
    ours = times.pop("ours")
    for name, theirs in times.items():
        yield speedup(architecture, name, ours, theirs)


def time_evaluation(architecture: str, size: Size, forms: dict[str, Ops]) -> dict[str, Times]:
    setup = Setup(architecture, size.width, size)
    model, docs = setup.model(), setup.task.documents(0, "dev", 0, size.evaluated)
    plain = {name: partial(plain_behaviour, model, docs, ops) for name, ops in forms.items()}
    with prepared(Settings()):
        return time_rounds({"ours": partial(behaviour, model, docs), **plain}, size.rounds)


@torch.no_grad()
def plain_behaviour(model: LanguageModel, docs: Documents, ops: Ops) -> dict[str, float]:
    """Return the means of the metrics that `behaviour` computes."""
    losses, hits = [], []
    for start in range(0, len(docs), BLOCK):
        batch = Batch.of(docs[start : start + BLOCK])
        with replace_ops(ops):
            logits = model(batch.tokens)
        at_queries = logits[torch.arange(len(logits))[:, None], batch.at]
        loss = F.cross_entropy(at_queries.transpose(1, 2), batch.answers, reduction="none")
        losses.append(loss.mean(dim=1))
        hits.append((at_queries.argmax(dim=-1) == batch.answers).float().mean(dim=1))
    document_losses = torch.cat(losses)
    return {
        "loss": document_losses.mean().item(),
        "accuracy": torch.cat(hits).mean().item(),
        "likelihood": (-document_losses).exp().mean().item(),
    }
