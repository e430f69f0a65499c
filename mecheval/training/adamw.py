"""AdamW (Loshchilov and Hutter 2019) by torch's fused kernel.

`torch.optim.AdamW` would import torch's compiler before the first step, which takes seconds.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.adamw import adamw

State = dict[str, Tensor]


class AdamW:
    """AdamW with the settings of §4.1; `state` holds the moments of each weight with a gradient."""

    def __init__(self, weights: Iterable[Tensor], lr: float) -> None:
        self.weights, self.lr = list(weights), lr
        self.state: dict[Tensor, State] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Update every weight that has a gradient."""
        weights = [weight for weight in self.weights if weight.grad is not None]
        states = [self._state(weight) for weight in weights]
        adamw(
            params=weights,
            grads=[weight.grad for weight in weights if weight.grad is not None],
            exp_avgs=[state["exp_avg"] for state in states],
            exp_avg_sqs=[state["exp_avg_sq"] for state in states],
            max_exp_avg_sqs=[],
            state_steps=[state["step"] for state in states],
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
        if not self.state.get(weight):  # the first step, or resumed from before it
            moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            self.state[weight] = {"step": torch.zeros((), device=weight.device), **moments}
        return self.state[weight]
