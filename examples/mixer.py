"""A mixer in one file: every token sees a decaying mean of what came before it.

mecheval check examples/mixer.py:Decay
mecheval run recall:pairs=4,vocab=64 examples/mixer.py:Decay:heads=4 train.steps=50 --out runs
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from mecheval import Site


class Decay(nn.Module):
    """y_t = Σ_{s≤t} λ^(t−s) v_s, gated; each head has a decay rate λ, which is trained."""

    def __init__(
        self,
        d_model: int,
        max_len: int,
        *,
        heads: Annotated[int, Field(ge=1, description="rates of decay")] = 8,
    ) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"heads={heads} must divide d_model={d_model}")
        self.value, self.gate, self.out_proj = (nn.Linear(d_model, d_model) for _ in range(3))
        self.rate = nn.Parameter(torch.linspace(-2.0, 4.0, heads))
        self.memory = Site("batch time head d_head", "what each head remembers")

    def forward(self, x: Tensor) -> Tensor:
        v = self.value(x).unflatten(-1, (len(self.rate), -1))
        age = torch.arange(x.shape[1], device=x.device)
        age = age[:, None] - age  # time, source
        decay = self.rate.sigmoid()[:, None, None] ** age.clamp(min=0) * (age >= 0)
        y = self.memory(torch.einsum("hts,bshd->bthd", decay, v))
        return self.out_proj(y.flatten(-2) * torch.sigmoid(self.gate(x)))
