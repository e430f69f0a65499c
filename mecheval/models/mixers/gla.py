"""Gated Linear Attention (Yang et al. 2024): linear attention that forgets by channel and token.

w_t = sigmoid(W₂ W₁ x_t + b)^(1/τ), one for each channel of the keys (§4.4)
S_t = Diag(w_t) S_{t−1} + k_t v_tᵀ
o_t = rms_norm(S_tᵀ q_t / √d_key) ∘ silu(W x_t)
"""

import torch.nn.functional as F
from torch import nn

from mecheval.models.layers import retention_log_decays, split_heads
from mecheval.models.mixer_options.additive import GLAOptions
from mecheval.models.mixers import Stream
from mecheval.models.mixers.additive import Additive
from mecheval.models.ops.recurrence import LogDecays
from mecheval.models.site import Site


class GLA(GLAOptions, Additive):
    def add_decay(self) -> None:
        if self.decay in ("head", "channel"):
            decays = self.heads if self.decay == "head" else self.d_key
            first = nn.Linear(self.d_model, self.decay_rank, bias=False)
            self.gk_proj = nn.Sequential(first, nn.Linear(self.decay_rank, decays))
            self.log_decay = Site("batch time head d_decay", "log w: how much the memory keeps")

    def log_decays(self, x: Stream) -> LogDecays | None:
        if self.decay == "none":
            return None
        if self.decay == "constant":
            return retention_log_decays(x, self.heads)
        return self.log_decay(split_heads(F.logsigmoid(self.gk_proj(x)) / self.tau, self.heads))
