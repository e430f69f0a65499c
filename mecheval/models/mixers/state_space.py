"""Mamba-2 and Mamba-3 share what becomes of their memory: a skip, a gate, a norm and a projection.

o_t = S_tᵀ q_t + D v_t in each head;   out = W_out norm(o ∘ silu(W_z u))

v is the value that a token writes. Mamba-3 normalises, where it does, before the gate.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.layers import RMSNorm, split_heads
from mecheval.models.mixer_options.state_space import StateSpaceOptions
from mecheval.models.mixers import Mixed, Output, Stream
from mecheval.models.mixers.recurrent import Recurrent
from mecheval.models.ops import Reads, gather_reads
from mecheval.models.ops.per_token import rms_norm, silu_gate
from mecheval.models.ops.recurrence import (
    Outputs,
    Queries,
    ReadOutputs,
    ReadQueries,
    Values,
    Writes,
    recurrence_read,
    recurrence_weights,
)
from mecheval.models.site import Site

Shared = Float[Tensor, "batch time group d_state"]
ByHead = Float[Tensor, "batch place head channel"]
ReadByHead = Float[Tensor, "batch reads head channel"]


class GroupedRMSNorm(RMSNorm):
    """An RMSNorm of each group of channels."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__(channels, eps=1e-5)
        self.groups = groups

    def forward(self, x: Stream) -> Stream:
        if self.groups == 1:
            return super().forward(x)
        rows = split_heads(x, self.groups)
        y = rms_norm(rows, rows.new_ones(rows.shape[-1]), self.eps or 0.0)
        return y.flatten(start_dim=-2) * self.weight


class StateSpace(StateSpaceOptions, Recurrent):
    """A mixer around its memory; each says what it reads and writes."""

    norm_before_gate: ClassVar[bool]
    o_norm: nn.Module

    def reads_and_writes(
        self, x: Stream, at: Reads | None = None
    ) -> tuple[Queries | ReadQueries, Writes]:
        """Return where the memory is read, at every position or at some, and what is written."""
        raise NotImplementedError

    def add_output(self, norm_groups: int) -> None:
        """Add what follows the memory; without groups nothing is normalised."""
        self.add_memory_sites()
        if self.skip:
            self.D = nn.Parameter(torch.ones(self.heads))
        if self.gate:
            self.z_proj = nn.Linear(self.d_model, self.d_inner, bias=False)
        self.o_norm = GroupedRMSNorm(self.d_inner, norm_groups) if norm_groups else nn.Identity()
        self.out_proj = nn.Linear(self.d_inner, self.d_model, bias=False)
        about = "what is read out, gated and normalised, before the output projection"
        self.gate_out = Site("batch time d_inner", about)

    def forward(self, x: Stream) -> Stream:
        q, writes = self.reads_and_writes(x)
        o = self._with_skip(self._recur(q, writes), present_values(writes))
        return self.output(self.head_out(o), x)

    def read(self, x: Stream, at: Reads) -> Output:
        """Return the output at some positions: no memory is computed, and queries only there."""
        q, writes = self.reads_and_writes(x, at)
        v = present_values(writes)
        o = self._with_skip(recurrence_read(q, writes, at), gather_heads(v, at))
        return self.output(o, gather_reads(x, at))

    def mixing(self, x: Stream) -> Mixed:
        """Return how much of each token's value is in what is read, and the values.

        Their product passes `head_out`. If the next token writes a value once more, its weight is
        the sum of the two.
        """
        q, writes = self.reads_and_writes(x)
        weights = recurrence_weights(q, writes)
        if writes.steps == 2:
            again, weights = weights[..., 0::2], weights[..., 1::2]
            weights = weights + F.pad(again[..., 1:], (0, 1))
        if self.skip:
            weights = weights + self.D[:, None, None] * torch.eye(x.shape[1]).to(x)
        return weights, present_values(writes)

    def output(self, o: Outputs | ReadOutputs, x: Stream) -> Stream:
        y = o.flatten(start_dim=-2)
        if self.norm_before_gate:
            y = self.o_norm(y)
        if self.gate:
            y = silu_gate(y, self.z_proj(x))
        if not self.norm_before_gate:
            y = self.o_norm(y)
        return self.out_proj(self.gate_out(y))

    def by_head(self, x: Shared) -> Queries:
        """Repeat what the heads of a group share."""
        return x.repeat_interleave(self.heads // self.groups, dim=2)

    def _with_skip(self, o: Outputs | ReadOutputs, v: Values) -> Outputs | ReadOutputs:
        return o + self.D[:, None] * v if self.skip else o


def gather_heads(x: ByHead, at: Reads) -> ReadByHead:
    """Return what every head holds at the positions `at`."""
    return gather_reads(x.flatten(start_dim=2), at).view(*at.shape, *x.shape[2:])


def present_values(writes: Writes) -> Values:
    """Return the value that each token writes last, which is its own."""
    return writes.v[:, writes.steps - 1 :: writes.steps]
