"""The delta rule (DeltaNet, Yang et al. 2024): a write replaces what the memory held at a key.

    S_t = S_{t−1} + β_t k_t (v_t − k_tᵀ S_{t−1})ᵀ        o_t = S_tᵀ q_t

Within a chunk, S_t is the sum of k_s u_sᵀ, where all u solve one triangular system (the WY form):
(I + tril(β K Kᵀ, −1)) U = β (V − K S₀).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from mecheval.core.errors import InvalidInput
from mecheval.models.mixer_options import DeltaBackend, backend_is_installed, refuse
from mecheval.models.ops import Reads

Keys = Float[Tensor, "batch time head d_key"]
Values = Float[Tensor, "batch time head d_value"]
Rates = Float[Tensor, "batch time head"]
ReadKeys = Float[Tensor, "batch reads head d_key"]
ReadValues = Float[Tensor, "batch reads head d_value"]
States = Float[Tensor, "batch time head d_key d_value"]

CHUNK = 64  # tokens; chunks have equal lengths, as close to this as possible


def delta_rule(q: Keys, k: Keys, v: Values, beta: Rates, backend: DeltaBackend = "auto") -> Values:
    """Return the outputs o, by the WY form ("auto", "torch") or by fla's kernels (CUDA only)."""
    if backend in ("auto", "torch"):
        return _compute_in_chunks(q, k, v, beta)
    if backend == "fla":
        refuse(backend_is_installed(backend))
        from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule

        # the chunked kernel refuses float32
        rule = fused_recurrent_delta_rule if q.dtype == torch.float32 else chunk_delta_rule
        return rule(q, k, v, beta, scale=1.0)[0]
    raise InvalidInput(f"unknown backend {backend!r} (known: auto, torch, fla)")


def _compute_in_chunks(q: Keys, k: Keys, v: Values, beta: Rates) -> Values:
    chunks = max(round(k.shape[1] / CHUNK), 1)
    parts = (q, k, v, beta[..., None])
    streams = [x.transpose(1, 2).tensor_split(chunks, dim=2) for x in parts]  # batch head time d
    S, outputs = None, []
    for qc, kc, vc, bc in zip(*streams, strict=True):
        new = vc if S is None else vc - kc @ S
        u = _solve((bc * kc) @ kc.mT, bc * new)
        o = (qc @ kc.mT).tril() @ u
        outputs.append(o if S is None else o + qc @ S)
        S = kc.mT @ u if S is None else S + kc.mT @ u
    return torch.cat(outputs, dim=2).transpose(1, 2)


def delta_read(q: ReadKeys, k: Keys, v: Values, beta: Rates, at: Reads) -> ReadValues:
    """Return what `delta_rule` returns at some positions, given q there, without any memory.

    From the last chunk to the first, W = (q Kᵀ) (I + tril(β K Kᵀ, −1))⁻¹ β is how much of each
    value is read; the memory before the chunk is read by the rest of the query, q − W K.
    """
    chunks = max(round(k.shape[1] / CHUNK), 1)
    places = torch.arange(k.shape[1], device=k.device)
    parts = (k, v, beta[..., None])
    streams = [x.transpose(1, 2).tensor_split(chunks, dim=2) for x in parts]  # batch head time d
    q, o = q.transpose(1, 2), torch.zeros((), dtype=v.dtype, device=v.device)
    for kc, vc, bc, here in reversed(list(zip(*streams, places.tensor_split(chunks), strict=True))):
        matches = (q @ kc.mT).masked_fill(here > at[:, None, :, None], 0.0)
        solve, overlap = torch.linalg.solve_triangular, (bc * kc) @ kc.mT
        W = solve(overlap, matches, upper=False, left=False, unitriangular=True) * bc.mT
        o, q = o + W @ vc, q - W @ kc
    return o.transpose(1, 2)


def delta_rule_ref(q: Keys, k: Keys, v: Values, beta: Rates) -> Values:
    return read_states(q, delta_states(k, v, beta))


def delta_states(k: Keys, v: Values, beta: Rates) -> States:
    """Return every S_t, by the recurrence."""
    S = torch.zeros(k.shape[0], *k.shape[2:], v.shape[-1], dtype=v.dtype, device=v.device)
    states = []
    for t in range(k.shape[1]):
        held = torch.einsum("bhk,bhkv->bhv", k[:, t], S)
        S = S + k[:, t, :, :, None] * (beta[:, t, :, None] * (v[:, t] - held))[:, :, None, :]
        states.append(S)
    return torch.stack(states, dim=1)


def propagate_edit(k: Keys, beta: Rates, states: States, edited: States) -> States:
    """Return every S_t after edits of some: the recurrence continues from an edited memory.

    It is linear, so the difference that an edit made is rewritten as the memory is, until the
    next edit.
    """
    if edited is states:
        return states
    touched = (edited != states).flatten(start_dim=2).any(dim=2)[..., None, None, None]
    difference, results = torch.zeros_like(states[:, 0]), []
    for t in range(states.shape[1]):
        held = torch.einsum("bhk,bhkv->bhv", k[:, t], difference)
        kept = difference - (beta[:, t, :, None] * k[:, t])[..., None] * held[:, :, None, :]
        difference = torch.where(touched[:, t], edited[:, t] - states[:, t], kept)
        results.append(torch.where(touched[:, t], edited[:, t], states[:, t] + difference))
    return torch.stack(results, dim=1)


def read_states(q: Keys, states: States) -> Values:
    return torch.einsum("bthk,bthkv->bthv", q, states)


def _solve(overlap: Tensor, b: Tensor) -> Tensor:
    """Solve (I + tril(overlap, −1)) u = b for u; the rest of the overlap is not read.

    LAPACK reads by columns, so solving from the right needs no copies of the transposes, which
    halves the time.
    """
    solve = torch.linalg.solve_triangular
    return solve(overlap.mT, b.mT, upper=True, left=False, unitriangular=True).mT
