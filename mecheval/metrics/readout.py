"""Reads metrics off the logits at the query, document by document: built-in or third-party."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int32, Int64
from numpy import ndarray
from torch import Tensor

from mecheval.core.errors import CheckFailed, InterventionError
from mecheval.metrics.measurement import Values
from mecheval.metrics.registry import metrics

Answers = Int32[ndarray, " n"]
Logits = Float[Tensor, "n vocab"]
Metric = Callable[[Tensor, Tensor], Tensor]


def register_metric(name: str) -> Callable[[Metric], Metric]:
    """Return a decorator that adds a metric to the rows of every run and grid.

    A metric is a function of logits (n, vocab) and right answers (n) that returns n numbers.

    Parameters
    ----------
    name
        The metric's name in rows.

    Returns
    -------
    decorator
        It takes a function of logits (n, vocab) and right answers (n) that returns n finite
        numbers.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, interchange, register_metric
    >>> @register_metric("surprise")
    ... def surprise(logits, answers):
    ...     "The negative logarithm of the right answer's probability."
    ...     return -logits.log_softmax(dim=1).gather(1, answers[:, None])[:, 0]
    >>> task = Recall(pairs=2, vocab=8)
    >>> model = LanguageModel(ModelConfig("attention", d_model=8), task.vocab_size)
    >>> grid = interchange(model, task, ["blocks.1.block_in"], ["key"], documents=8)
    >>> [row.metric for row in grid.rows(metrics=["surprise"])]
    ['surprise', 'surprise', 'surprise']
    """
    return metrics.register(name)


def read_registered(logits: Logits, answers: Int64[Tensor, " n"]) -> dict[str, Tensor]:
    """Return the values of the registered metrics, a number for each answer."""
    readings = {name: metrics.get(name)(logits, answers) for name in metrics.names()}
    for name, values in readings.items():
        problem = ""
        if not isinstance(values, Tensor) or values.shape != answers.shape:
            problem = "must return a tensor with a number for each answer"
        elif not values.isfinite().all() and logits.isfinite().all():
            problem = "must return finite numbers where the logits are finite"
        if problem:
            raise CheckFailed(f"metric {name!r}", [problem])
    return readings


@dataclass(frozen=True)
class Reader:
    """The right answers and the clean run's probabilities, with which logits are read.

    `others` are the answers of the corrupted documents, for a swap.
    """

    answers: Tensor
    p: Tensor
    negative_entropy: Tensor
    others: Tensor | None

    @classmethod
    def of(cls, clean: Tensor, answers: Answers, others: Answers | None = None) -> "Reader":
        """Build a reader from the logits of the clean run."""
        log_p = _precise(clean).log_softmax(dim=-1)
        p = log_p.exp()
        negative_entropy = (p * log_p).sum(dim=-1)
        return cls(_ids(answers), p, negative_entropy, None if others is None else _ids(others))

    def read(self, logits: Tensor) -> Values:
        """Return every metric's value for each document."""
        logits = _precise(logits)
        log_q = logits.log_softmax(dim=-1)
        kl = self.negative_entropy - (self.p * log_q).sum(dim=-1)
        if not kl.isfinite().all():  # a logit that is not finite is in its sum
            raise InterventionError("the model's logits are not finite; no metric can be read")
        values = {
            "likelihood": _at(log_q, self.answers).double().exp(),
            # numpy's argmax, since torch's takes ten times as long
            "accuracy": torch.from_numpy(logits.numpy(force=True).argmax(axis=-1)) == self.answers,
            "logit": _at(logits, self.answers),
            "kl": kl,
        }
        if self.others is not None:
            values["counterfactual"] = _at(log_q, self.others).double().exp()
        values |= read_registered(logits, self.answers)
        return {name: value.double().numpy() for name, value in values.items()}


def _precise(logits: Tensor) -> Tensor:
    """Return logits of a shorter type in float32: sums over the vocabulary need it."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _ids(answers: Answers) -> Tensor:
    return torch.from_numpy(answers).long()


def _at(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the value at one token of each row."""
    return logits.gather(1, tokens[:, None])[:, 0]
