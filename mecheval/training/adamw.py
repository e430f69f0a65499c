"""AdamW (Loshchilov and Hutter 2019) by torch's fused kernel.

`torch.optim.AdamW` would import torch's compiler before the first step: seconds of every run, for nothing.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.adamw import adamw

State = dict[str, Tensor]


class AdamW:
    """§4.1: (0.9, 0.999), ε 1e-8, no weight decay. `state` is of each weight that has moved."""

    def __init__(self, weights: Iterable[Tensor], lr: float) -> None:
        self.weights, self.lr = list(weights), lr
        self.state: dict[Tensor, State] = {}

    @torch.no_grad()
    def step(self) -> None:
        moved = [(weight, weight.grad, self._state(weight)) for weight in self.weights if weight.grad is not None]
        adamw(
            params=[weight for weight, _, _ in moved],
            grads=[grad for _, grad, _ in moved],
            exp_avgs=[state["exp_avg"] for _, _, state in moved],
            exp_avg_sqs=[state["exp_avg_sq"] for _, _, state in moved],
            max_exp_avg_sqs=[],
            state_steps=[state["step"] for _, _, state in moved],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.lr,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def _state(self, weight: Tensor) -> State:
        if not self.state.get(weight):  # a checkpoint of the first step has none
            moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            self.state[weight] = {"step": torch.zeros((), device=weight.device), **moments}
        return self.state[weight]
