"""The linear recurrence that most modern mixers share: a memory that decays, erases and writes.

    S_t = Diag(w_t) S_{t−1} + b_t (a_tᵀ S_{t−1}) + k_t v_tᵀ        o_t = S_tᵀ q_t

    w      what each row of the memory keeps: one number for a head, or one for each of its rows
    a, b   what is erased: the value read at a is added at b, so b = −β a takes it away
    k, v   what is written: v at k          q   where the memory is read

Without w nothing decays, without a and b nothing is erased. A token may take several steps, as
DeltaProduct and Mamba-3 do: then k, v, w, a and b have that many times the length of q, and the
memory is read after the last step of each token.

The layout is that of fla's `ops/generalized_delta_rule/dplr/naive.py`: here a reads the memory
before it decays. Where a paper decays first (Gated DeltaNet, KDA), a is w∘k instead of k.
"""

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
Decays = Float[Tensor, "batch step head d_decay"]  # d_key or 1
Outputs = Float[Tensor, "batch time head d_value"]
ReadOutputs = Float[Tensor, "batch reads head d_value"]
States = Float[Tensor, "batch time head d_key d_value"]
Weights = Float[Tensor, "batch head time step"]


def recurrence(
    q: Queries,
    k: Keys,
    v: Values,
    w: Decays | None = None,
    a: Keys | None = None,
    b: Keys | None = None,
) -> Outputs:
    """Return the outputs o, by a kernel that holds one memory at a time, if it can take them."""
    if not_compiled(q, k, v) or not v.numel():
        return recurrence_ref(q, k, v, w, a, b)
    from mecheval.models.ops.kernels.recurrence import backward, forward

    inputs = _lay_out(q, k, v, w, a, b)
    return apply_kernels((forward, backward), (*q.shape[:3], v.shape[3]), len(inputs), *inputs)


def recurrence_read(
    q: ReadQueries,
    k: Keys,
    v: Values,
    at: Reads,
    w: Decays | None = None,
    a: Keys | None = None,
    b: Keys | None = None,
    steps: int = 1,
) -> ReadOutputs:
    """Return what `recurrence` returns at some tokens, given q there, without any memory.

    A query is carried back through the steps instead, as r_{t−1} = w_t ∘ r_t + a_t (b_tᵀ r_t), and
    reads k_tᵀ r_t of each value: vectors take the place of matrices.
    """
    if not_compiled(q, k, v) or not v.numel():
        return recurrence_read_ref(q, k, v, at, w, a, b, steps)
    from mecheval.models.ops.kernels.recurrence_read import backward, forward

    last = (at * steps + steps - 1).contiguous()
    inputs = *_lay_out(q, k, v, w, a, b), last
    return apply_kernels((forward, backward), (*q.shape[:3], v.shape[3]), 1, *inputs)


def recurrence_ref(
    q: Queries,
    k: Keys,
    v: Values,
    w: Decays | None = None,
    a: Keys | None = None,
    b: Keys | None = None,
) -> Outputs:
    """Compute the equation step by step."""
    return read_states(q, recurrence_states(k, v, w, a, b, steps=k.shape[1] // q.shape[1]))


def recurrence_read_ref(
    q: ReadQueries,
    k: Keys,
    v: Values,
    at: Reads,
    w: Decays | None = None,
    a: Keys | None = None,
    b: Keys | None = None,
    steps: int = 1,
) -> ReadOutputs:
    states = recurrence_states(k, v, w, a, b, steps)
    index = at[..., None, None, None].expand(-1, -1, *states.shape[2:])
    return read_states(q, states.gather(1, index))


def recurrence_states(
    k: Keys,
    v: Values,
    w: Decays | None = None,
    a: Keys | None = None,
    b: Keys | None = None,
    steps: int = 1,
) -> States:
    """Return the memory after each token, that is after every `steps` steps."""
    S = torch.zeros(k.shape[0], *k.shape[2:], v.shape[-1], dtype=v.dtype, device=v.device)
    states = []
    for t in range(k.shape[1]):
        S = _step(S, t, w, a, b) + k[:, t, :, :, None] * v[:, t, :, None, :]
        if t % steps == steps - 1:
            states.append(S)
    return torch.stack(states, dim=1)


def propagate_edit(
    states: States,
    edited: States,
    w: Decays | None = None,
    a: Keys | None = None,
    b: Keys | None = None,
    steps: int = 1,
) -> States:
    """Return the memory after each token, given edits of some: the recurrence continues from them.

    It is linear, so the difference that an edit made decays and is erased as the memory is, until
    the next edit.
    """
    if edited is states:
        return states
    touched = (edited != states).flatten(start_dim=2).any(dim=2)[..., None, None, None]
    difference, results = torch.zeros_like(states[:, 0]), []
    for t in range(states.shape[1]):
        for step in range(t * steps, (t + 1) * steps):
            difference = _step(difference, step, w, a, b)
        difference = torch.where(touched[:, t], edited[:, t] - states[:, t], difference)
        results.append(torch.where(touched[:, t], edited[:, t], states[:, t] + difference))
    return torch.stack(results, dim=1)


def read_states(q: Queries, states: States) -> Outputs:
    """Return the outputs o, given the memory after each token."""
    return torch.einsum("bthk,bthkv->bthv", q, states)


def recurrence_weights(
    q: Queries,
    k: Keys,
    w: Decays | None = None,
    a: Keys | None = None,
    b: Keys | None = None,
) -> Weights:
    """Return how much of each v_s is in o_t: all queries are carried back at once."""
    time = q.shape[1]
    steps = k.shape[1] // time
    r, columns = q.transpose(1, 2), []
    places = torch.arange(time, device=q.device)
    for s in reversed(range(k.shape[1])):
        here = (places >= s // steps)[:, None]  # a query joins at its own token
        columns.append(torch.einsum("bhtd,bhd->bht", r * here, k[:, s]))
        back = r if w is None else r * w[:, s, :, None]
        if a is not None and b is not None:
            back = back + torch.einsum("bhtd,bhd->bht", r, b[:, s])[..., None] * a[:, s, :, None]
        r = torch.where(here, back, r)
    return torch.stack(columns[::-1], dim=-1)


def _step(S: Tensor, t: int, w: Tensor | None, a: Tensor | None, b: Tensor | None) -> Tensor:
    """Decay and erase: Diag(w_t) S + b_t (a_tᵀ S)."""
    kept = S if w is None else w[:, t, :, :, None] * S
    if a is None or b is None:
        return kept
    held = torch.einsum("bhk,bhkv->bhv", a[:, t], S)
    return kept + b[:, t, :, :, None] * held[:, :, None, :]


def _lay_out(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor | None, a: Tensor | None, b: Tensor | None
) -> tuple[Tensor, ...]:
    """Give the kernels every argument, contiguous, and rows of the memory in whole groups.

    Decays of a head are repeated for its rows; `a` and `b` without elements erase nothing.
    """
    from mecheval.models.ops.kernels import GROUP

    w = torch.ones_like(k) if w is None else w.expand_as(k)
    none = k.new_empty(0, 0, 0, 0)
    a, b = (none if x is None else x for x in (a, b))
    if missing := -k.shape[3] % GROUP:
        q, k, w, a, b = (F.pad(x, (0, missing)) if x.numel() else x for x in (q, k, w, a, b))
    return tuple(x.contiguous() for x in (q, k, v, w, a, b))
