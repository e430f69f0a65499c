"""The linear recurrence that most modern mixers share: a memory that decays, erases and writes.

    S_t = Diag(w_t) S_{t−1} + b_t (a_tᵀ S_{t−1}) + k_t v_tᵀ        o_t = S_tᵀ q_t

w      what each row of the memory keeps: one number for a head, or one for each of its rows
a, b   what is erased: the value held at a is added at b; without b it is replaced: b = −k
k, v   what is written: v at k
q      where the memory is read

The layout is that of fla's `ops/generalized_delta_rule/dplr/naive.py`: a reads the memory before
it decays. Where a paper decays first (Gated DeltaNet, KDA), a is w∘k instead of k.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mecheval.models.ops import Reads
from mecheval.models.ops.compiled import apply_kernels, not_compiled

Queries = Float[Tensor, "batch time head d_key"]
ReadQueries = Float[Tensor, "batch reads head d_key"]
Keys = Float[Tensor, "batch step head d_key"]
Values = Float[Tensor, "batch step head d_value"]
LogDecays = Float[Tensor, "batch step head d_decay"]  # d_key or 1
Outputs = Float[Tensor, "batch time head d_value"]
ReadOutputs = Float[Tensor, "batch reads head d_value"]
States = Float[Tensor, "batch time head d_key d_value"]
Weights = Float[Tensor, "batch head time step"]


@dataclass(frozen=True, eq=False)
class Writes:
    """Says what every step does to the memory.

    Without log_w nothing decays, without a nothing is erased. A token takes `steps` steps, more
    than one in DeltaProduct and Mamba-3, and is read after the last of them.
    """

    k: Keys
    v: Values
    log_w: LogDecays | None = None
    a: Keys | None = None
    b: Keys | None = None
    steps: int = 1

    @property
    def w(self) -> Tensor | None:
        return None if self.log_w is None else self.log_w.exp()

    @property
    def erased_at(self) -> Tensor | None:
        """Return b, where what is held at a is added, or None if nothing is erased."""
        return self.b if self.a is None or self.b is not None else -self.k


def recurrence(q: Queries, writes: Writes) -> Outputs:
    """Return the outputs o, by a kernel that holds one memory at a time, if it can take them."""
    v = writes.v
    if not_compiled(q, writes.k, v) or not v.numel():
        return recurrence_ref(q, writes)
    from mecheval.models.ops.kernels import additive_recurrence as additive
    from mecheval.models.ops.kernels import recurrence as general

    width, shape = general.block_width(v.shape[3]), (*q.shape[:3], v.shape[3])
    k, log_w, w, a, b = writes.k, writes.log_w, writes.w, writes.a, writes.erased_at
    if a is None or b is None:
        inputs = _in_groups(q, k, v, _none(k) if log_w is None else log_w)
        return apply_kernels(additive.kernels(width), shape, 0, *inputs)
    inputs = _in_groups(q, k, v, torch.ones_like(k) if w is None else w.expand_as(k), a, b)
    return apply_kernels(general.kernels(width), shape, 0, *inputs)


def recurrence_ref(q: Queries, writes: Writes) -> Outputs:
    """Compute the equation step by step."""
    return read_states(q, recurrence_states(writes))


def recurrence_read(q: ReadQueries, writes: Writes, at: Reads) -> ReadOutputs:
    """Return what `recurrence` returns at some tokens, given q there, without any memory.

    A query is carried back through the steps instead, as r_{t−1} = w_t ∘ r_t + a_t (b_tᵀ r_t), and
    reads k_tᵀ r_t of each value: vectors take the place of matrices.
    """
    v = writes.v
    if not_compiled(q, writes.k, v) or not v.numel():
        return recurrence_read_ref(q, writes, at)
    from mecheval.models.ops.kernels.recurrence_read import backward, forward

    last = ((at + 1) * writes.steps - 1).contiguous()
    shape = *q.shape[:3], v.shape[3]
    parts = [_none(v) if x is None else x for x in (writes.w, writes.a, writes.erased_at)]
    inputs = [x.contiguous() for x in (q, writes.k, v, *parts)]
    return apply_kernels((forward, backward), shape, 1, *inputs, last)


def recurrence_read_ref(q: ReadQueries, writes: Writes, at: Reads) -> ReadOutputs:
    states = recurrence_states(writes)
    index = at[..., None, None, None].expand(-1, -1, *states.shape[2:])
    return read_states(q, states.gather(1, index))


def recurrence_states(writes: Writes) -> States:
    """Return the memory after each token."""
    k, v = writes.k, writes.v
    S = torch.zeros(k.shape[0], *k.shape[2:], v.shape[-1], dtype=v.dtype, device=v.device)
    states = []
    for t in range(k.shape[1]):
        S = _decay_and_erase(S, writes, t) + k[:, t, :, :, None] * v[:, t, :, None, :]
        states.append(S)
    return torch.stack(states[writes.steps - 1 :: writes.steps], dim=1)


def propagate_edit(states: States, edited: States, writes: Writes) -> States:
    """Return the memory after each token, given edits of some: the recurrence continues from them.

    It is linear, so the difference that an edit made decays and is erased as the memory is, until
    the next edit.
    """
    if edited is states:
        return states
    touched = (edited != states).flatten(start_dim=2).any(dim=2)[..., None, None, None]
    difference, results = torch.zeros_like(states[:, 0]), []
    for t in range(states.shape[1]):
        for step in range(t * writes.steps, (t + 1) * writes.steps):
            difference = _decay_and_erase(difference, writes, step)
        difference = torch.where(touched[:, t], edited[:, t] - states[:, t], difference)
        results.append(torch.where(touched[:, t], edited[:, t], states[:, t] + difference))
    return torch.stack(results, dim=1)


def read_states(q: Queries, states: States) -> Outputs:
    """Return the outputs o, given the memory after each token."""
    return torch.einsum("bthk,bthkv->bthv", q, states)


def recurrence_weights(q: Queries, writes: Writes) -> Weights:
    """Return how much of each v_s is in o_t: all queries are carried back at once."""
    k, w, a, b = writes.k, writes.w, writes.a, writes.erased_at
    r, columns = q.transpose(1, 2), []
    places = torch.arange(q.shape[1], device=q.device)
    for s in reversed(range(k.shape[1])):
        here = (places >= s // writes.steps)[:, None]  # a query joins at its own token
        columns.append(torch.einsum("bhtd,bhd->bht", r * here, k[:, s]))
        back = r if w is None else r * w[:, s, :, None]
        if a is not None and b is not None:
            back = back + torch.einsum("bhtd,bhd->bht", r, b[:, s])[..., None] * a[:, s, :, None]
        r = torch.where(here, back, r)
    return torch.stack(columns[::-1], dim=-1)


def _decay_and_erase(S: Tensor, writes: Writes, t: int) -> Tensor:
    """Return Diag(w_t) S + b_t (a_tᵀ S)."""
    w, a, b = writes.w, writes.a, writes.erased_at
    kept = S if w is None else w[:, t, :, :, None] * S
    if a is None or b is None:
        return kept
    held = torch.einsum("bhk,bhkv->bhv", a[:, t], S)
    return kept + b[:, t, :, :, None] * held[:, :, None, :]


def _none(x: Tensor) -> Tensor:
    """Return what stands for a missing argument: no number for each step and head."""
    return x.new_empty(*x.shape[:3], 0)


def _in_groups(q: Tensor, k: Tensor, v: Tensor, *rates: Tensor) -> tuple[Tensor, ...]:
    """Give the kernels contiguous tensors, and rows of the memory in whole groups."""
    from mecheval.models.ops.kernels import GROUP

    rows, missing = k.shape[3], -k.shape[3] % GROUP
    if missing:
        q, k = F.pad(q, (0, missing)), F.pad(k, (0, missing))
        rates = tuple(F.pad(x, (0, missing)) if x.shape[3] == rows else x for x in rates)
    return tuple(x.contiguous() for x in (q, k, v, *rates))
