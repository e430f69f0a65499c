"""Multi-scale retention (RetNet, Sun et al. 2023): every head forgets at a rate of its own.

S_t = γ_h S_{t−1} + k_t v_tᵀ,  γ_h = 1 − 2^(−5−h)
o_t = rms_norm(S_tᵀ q_t / √d_key) ∘ silu(W x_t)

Queries and keys turn by an angle that grows with their position (xPos without its scales, which
the decay replaces).
"""

from mecheval.models.layers import retention_log_decays
from mecheval.models.mixer_options.additive import RetNetOptions
from mecheval.models.mixers import Stream
from mecheval.models.mixers.additive import Additive
from mecheval.models.ops import Reads
from mecheval.models.ops.recurrence import Keys, LogDecays
from mecheval.models.ops.rotary import rotary_angles, rotate


class RetNet(RetNetOptions, Additive):
    def log_decays(self, x: Stream) -> LogDecays | None:
        return retention_log_decays(x, self.heads) if self.decay else None

    def turn(self, x: Keys, time: int, at: Reads | None = None) -> Keys:
        if not self.rotary:
            return x
        angles = rotary_angles(time, x.shape[-1]).to(x.device)
        return rotate(x, angles if at is None else angles[at])
