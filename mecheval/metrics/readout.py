"""What is read off the logits at the query, document by document: our metrics, and a stranger's."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int32, Int64
from numpy import ndarray
from torch import Tensor

from mecheval.core.errors import CheckFailed, InterventionError, InvalidInput
from mecheval.metrics.measurement import METRICS, Values

Answers = Int32[ndarray, " n"]
Metric = Callable[[Tensor, Tensor], Tensor]  # of logits (n, vocab) and right answers (n), a number for each
TAKEN = (*METRICS, "loss", "share", "counterfactual")
_registered: dict[str, Metric] = {}


def register_metric(name: str) -> Callable[[Metric], Metric]:
    """Makes a function of logits (n, vocab) and right answers (n) a metric: what it returns for each of them is in the
    rows of every run and grid from then on."""

    def register(metric: Metric) -> Metric:
        if name in TAKEN or name in _registered:
            raise InvalidInput(f"name={name!r} is taken: there is a metric of that name already")
        _registered[name] = metric
        return metric

    return register


def read_registered(logits: Float[Tensor, "n vocab"], answers: Int64[Tensor, " n"]) -> dict[str, Tensor]:
    """What the registered metrics say, each a number for each answer."""
    found = {name: metric(logits, answers) for name, metric in _registered.items()}
    for name, values in found.items():
        if not isinstance(values, Tensor) or values.shape != answers.shape:
            raise CheckFailed(f"metric {name!r}", ["must return a tensor with a number for each answer"])
        if not values.isfinite().all() and logits.isfinite().all():  # of a broken model nothing is asked
            raise CheckFailed(f"metric {name!r}", ["must return finite numbers where the logits are finite"])
    return found


@dataclass(frozen=True)
class Reader:
    """Reads logits at the query against the right answers and the clean run's probabilities.

    `others` are the answers of swapped documents, for the metric `counterfactual`.
    """

    answers: Tensor
    p: Tensor
    negative_entropy: Tensor
    others: Tensor | None

    @classmethod
    def of(cls, clean: Tensor, answers: Answers, others: Answers | None = None) -> "Reader":
        """Return the reader of runs that are compared with a clean run's logits."""
        log_p = clean.log_softmax(dim=-1)
        p = log_p.exp()
        negative_entropy = (p * log_p).sum(dim=-1)
        return cls(_ids(answers), p, negative_entropy, None if others is None else _ids(others))

    def read(self, logits: Tensor) -> Values:
        """Return every metric, a number for each document."""
        log_q = logits.log_softmax(dim=-1)
        kl = self.negative_entropy - (self.p * log_q).sum(dim=-1)
        if not kl.isfinite().all():  # it sums over all logits: one that is not finite shows
            raise InterventionError("the model's logits are not finite; nothing can be measured")
        metrics = {
            "likelihood": _at(log_q, self.answers).double().exp(),
            # numpy's argmax: torch's takes ten times as long
            "accuracy": torch.from_numpy(logits.numpy(force=True).argmax(axis=-1)) == self.answers,
            "logit": _at(logits, self.answers),
            "kl": kl,
        }
        if self.others is not None:
            metrics["counterfactual"] = _at(log_q, self.others).double().exp()
        metrics |= read_registered(logits, self.answers)
        return {name: value.double().numpy() for name, value in metrics.items()}


def _ids(answers: Answers) -> Tensor:
    return torch.from_numpy(answers).long()


def _at(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the entry of one token in each row."""
    return logits.gather(1, tokens[:, None])[:, 0]
