"""The training loop, and the state from which it resumes at any step bit for bit."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mecheval.models.build import Model
from mecheval.models.inputs import Batch
from mecheval.models.ops.cross_entropy import cross_entropy
from mecheval.training.adamw import AdamW
from mecheval.training.batches import Batches
from mecheval.training.config import Row, TrainConfig
from mecheval.training.schedule import rate

Evaluate = Callable[[Model], Row]


class Diverged(Exception):
    """A loss or a gradient is not finite; this is a result of a run, not a crash."""

    def __init__(self, step: int, reason: str) -> None:
        self.step, self.reason = step, reason
        super().__init__(f"step {step}: {reason}")


@dataclass
class Training:
    """The state of training; `tensors` and `numbers` are all that a checkpoint needs."""

    model: Model
    optimiser: AdamW
    step: int = 0
    loss: float = math.nan  # of the last step
    losses: list[float] = field(default_factory=list)  # since the last line of the curve
    curve: list[Row] = field(default_factory=list)

    @classmethod
    def start(cls, model: Model, config: TrainConfig) -> "Training":
        return cls(model, AdamW(model.parameters(), config.lr))

    def tensors(self) -> dict[str, Tensor]:
        weights = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        return weights | {f"optimiser.{name}": t for name, t in self.optimiser_tensors().items()}

    def optimiser_tensors(self) -> dict[str, Tensor]:
        return {
            f"{key}.{name}": tensor
            for name, parameter in self.model.named_parameters()
            for key, tensor in self.optimiser.state.get(parameter, {}).items()
        }

    def numbers(self) -> dict[str, Any]:
        return {"step": self.step, "losses": self.losses, "curve": self.curve}

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        prefix = "model."
        weights = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        self.model.load_state_dict(weights)
        for name, parameter in self.model.named_parameters():
            names = {key: f"optimiser.{key}.{name}" for key in ("step", "exp_avg", "exp_avg_sq")}
            state = {key: tensors[full] for key, full in names.items() if full in tensors}
            self.optimiser.state[parameter] = state
        self.step = int(numbers["step"])
        self.losses, self.curve = list(numbers["losses"]), list(numbers["curve"])


def train(
    training: Training, config: TrainConfig, batches: Batches, evaluate: Evaluate, every: int
) -> Iterator[Row | None]:
    """Train to the end and yield after every step: the new line of the curve, or None.

    A caller may stop after any step and resume later. Raises Diverged.
    """
    model, optimiser = training.model, training.optimiser
    weights = list(model.parameters())
    while training.step < config.total and not solved(training, config):
        optimiser.lr = rate(config, training.step)
        loss = query_loss(model, Batch.of(batches[training.step], weights[0].device))
        for weight in weights:
            weight.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        norm = gradient_norm(weights)
        _must_be_finite(training.step, loss=loss.item(), gradient_norm=norm)
        optimiser.step()
        training.step, training.loss = training.step + 1, loss.item()
        training.losses.append(training.loss)
        row = None
        if training.step % every == 0 or training.step == config.total:
            scores = evaluate(model)
            _must_be_finite(training.step, dev_loss=scores["loss"])
            mean = math.fsum(training.losses) / len(training.losses)
            row = {"step": training.step, **scores, "train_loss": mean, "gradient_norm": norm}
            row["learning_rate"] = optimiser.lr
            training.losses.clear()
            training.curve.append(row)
        yield row


def query_loss(model: Model, batch: Batch) -> Tensor:
    """Return the cross-entropy at the queries, the only supervised positions."""
    logits = model(batch.tokens, batch.at)
    return cross_entropy(logits.flatten(end_dim=1), batch.answers.flatten())


def gradient_norm(weights: Iterable[Tensor]) -> float:
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(gradients))
    if math.isfinite(norm):
        return norm
    doubles = [gradient.double() for gradient in gradients]  # squares may overflow in float32
    return float(torch.nn.utils.get_total_norm(doubles))


def solved(training: Training, config: TrainConfig) -> bool:
    """Tell whether the last evaluation reached the accuracy at which training stops early."""
    if config.stop is None or not training.curve:
        return False
    return training.curve[-1]["accuracy"] >= config.stop


def _must_be_finite(step: int, **values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise Diverged(step, f"{name} is {value}")
