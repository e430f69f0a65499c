"""Kimi Delta Attention (Kimi Team 2025): Gated DeltaNet with a decay of its own for each channel.

q, k, v = silu(conv(W x));  q, k normalised, q / √d_key;  β = sigmoid(W x)
w = exp(−exp(A) softplus(W₂ W₁ x + b)), one for each row of the memory
S_t = (I − β_t k_t k_tᵀ) Diag(w_t) S_{t−1} + β_t k_t v_tᵀ
o_t = rms_norm(S_tᵀ q_t) ∘ sigmoid(W₂ W₁ x + b)

The projections W₂ W₁ are of low rank, the width of a head. Every part can be switched off as in
Gated DeltaNet, which has the memory.
"""

from torch import nn

from mecheval.models.mixer_options.recurrent import KDAOptions
from mecheval.models.mixers import Stream
from mecheval.models.mixers.gated_delta_net import GatedDeltaNet


class KDA(KDAOptions, GatedDeltaNet):
    slowest = 1  # the rates exp(A) are drawn from here to 16

    def project_decays(self, decays: int) -> nn.Module:
        return self._low_rank(decays, bias=False)

    def project_gate(self) -> nn.Module:
        return self._low_rank(self.d_value, bias=True)

    def gated(self, y: Stream, z: Stream) -> Stream:
        return y * z.sigmoid()

    def _low_rank(self, width: int, bias: bool) -> nn.Module:
        rank = self.d_value // self.heads
        down = nn.Linear(self.d_model, rank, bias=False)
        return nn.Sequential(down, nn.Linear(rank, width, bias=bias))
