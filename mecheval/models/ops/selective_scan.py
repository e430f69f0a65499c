"""Mamba's selective scan: the input controls how each channel's state decays, is written and read.

    h_t = exp(dt_t A) ∘ h_{t−1} + dt_t B_t x_t        y_t = ⟨C_t, h_t⟩ + D ∘ x_t

Gu and Dao (2024), §3 and algorithm 2, discretised as in state-spaces/mamba: zero-order hold for A,
Euler for B.

    x   the channels              A   decay rates, negative      B   where in the state to write
    dt  step sizes, positive      D   what bypasses the state    C   where in the state to read
    h   the state, 0 before the first token
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mecheval.core.errors import InvalidInput
from mecheval.models.mixer_options import ScanBackend, backend_is_installed, refuse
from mecheval.models.ops import gather_reads
from mecheval.models.ops.compiled import apply_kernels, not_compiled

Channels = Float[Tensor, "batch time d_inner"]
Directions = Float[Tensor, "batch time d_state"]  # in the state, to write to and to read from
Decays = Float[Tensor, "d_inner d_state"]
Skips = Float[Tensor, " d_inner"]
States = Float[Tensor, "batch time d_inner d_state"]


def selective_scan(
    x: Channels,
    dt: Channels,
    A: Decays,
    B: Directions,
    C: Directions,
    D: Skips,
    backend: ScanBackend = "auto",
) -> Channels:
    """Return the outputs y; "auto" is "numba" for float32 and float64 on the CPU, else "torch"."""
    inputs = (x, dt, A, B, C, D)
    if backend == "auto":
        backend = "torch" if not_compiled(*inputs) else "numba"
    if backend == "torch":
        return read_states(selective_states(x, dt, A, B), x, C, D)
    if backend == "numba":
        if kinds := not_compiled(*inputs):
            needs = "needs all tensors in float32 or all in float64, on the CPU"
            raise InvalidInput(f"backend='numba' {needs}; these are {kinds}")
        from mecheval.models.ops.kernels.selective_scan import block_width, kernels

        return apply_kernels(kernels(block_width(len(A))), x.shape, 3, *lay_out(*inputs))
    if backend == "mamba_ssm":
        refuse(backend_is_installed(backend))
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn  # type: ignore[import-not-found]

        x, dt, B, C = (tensor.transpose(1, 2) for tensor in (x, dt, B, C))  # its time is last
        return selective_scan_fn(x, dt, A, B, C, D).transpose(1, 2)
    raise InvalidInput(f"unknown backend {backend!r} (known: auto, torch, numba, mamba_ssm)")


def selective_read(
    x: Channels,
    dt: Channels,
    A: Decays,
    B: Directions,
    C: Float[Tensor, "batch 1 d_state"],
    D: Skips,
    at: Int[Tensor, "batch 1"],
    backend: ScanBackend = "auto",
) -> Float[Tensor, "batch 1 d_inner"]:
    """Return what `selective_scan` returns at the token `at` of each row, given C there.

        y_q = Σ_{s≤q} Σ_n C_qn exp(A_n Σ_{s<r≤q} dt_r) B_sn dt_s x_s + D x_q

    is the recurrence written out: no state is carried, neither forward nor backward.
    """
    inputs = (x, dt, A, B, C, D)
    if backend not in ("auto", "numba") or not_compiled(*inputs):
        C = torch.zeros_like(B).scatter(1, at[..., None].expand_as(C), C)
        return gather_reads(selective_scan(x, dt, A, B, C, D, backend=backend), at)
    from mecheval.models.ops.kernels.selective_read import kernels
    from mecheval.models.ops.kernels.selective_scan import block_width

    laid_out = *lay_out(*inputs), at[:, 0].contiguous()
    y = apply_kernels(kernels(block_width(len(A))), x[:, 0].shape, 3, *laid_out)
    return y[:, None]


def selective_scan_ref(
    x: Channels, dt: Channels, A: Decays, B: Directions, C: Directions, D: Skips
) -> Channels:
    """Compute the equation token by token."""
    h, y = torch.zeros_like(A), []
    for t in range(x.shape[1]):
        h = torch.exp(dt[:, t, :, None] * A) * h + (dt[:, t] * x[:, t])[..., None] * B[:, t, None]
        y.append((h * C[:, t, None]).sum(-1) + D * x[:, t])
    return torch.stack(y, dim=1)


def selective_states(x: Channels, dt: Channels, A: Decays, B: Directions) -> States:
    """Return every h_t, to be recorded or edited; `selective_scan` holds only one at a time."""
    decay = torch.exp(dt[..., None] * A)
    written = (dt * x)[..., None] * B[:, :, None]
    # Sums of logarithms would need no loop, but are not finite once a decay is 0. Slicing token by
    # token would be quadratic: the gradient of each slice is as large as the whole.
    h, states = torch.zeros_like(A), []
    for decay_t, written_t in zip(decay.unbind(1), written.unbind(1), strict=True):
        h = decay_t * h + written_t
        states.append(h)
    return torch.stack(states, dim=1)


def propagate_edit(dt: Channels, A: Decays, states: States, edited: States) -> States:
    """Return every h_t after edits of some: the recurrence continues from an edited state.

    It is linear, so the difference that an edit made decays as the state does, until the next edit.
    """
    if edited is states:
        return states
    touched = (edited != states).any(dim=-1).any(dim=-1)[..., None, None]
    decay = torch.exp(dt[..., None] * A)
    difference, results = torch.zeros_like(states[:, 0]), []
    for t in range(states.shape[1]):
        decayed = decay[:, t] * difference
        difference = torch.where(touched[:, t], edited[:, t] - states[:, t], decayed)
        results.append(torch.where(touched[:, t], edited[:, t], states[:, t] + difference))
    return torch.stack(results, dim=1)


def read_states(states: States, x: Channels, C: Directions, D: Skips) -> Channels:
    """Return the outputs y, given every h_t."""
    return (states @ C[..., None]).squeeze(-1) + D * x


def lay_out(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Iterator[Tensor]:
    """Pad the states to whole groups and make everything contiguous, as the kernels need it.

    Numba would compile a slower kernel for every other layout.
    """
    from mecheval.models.ops.kernels import GROUP

    if missing := -A.shape[1] % GROUP:
        A, B, C = (F.pad(tensor, (0, missing)) for tensor in (A, B, C))
    return (tensor.contiguous() for tensor in (x, dt, A, B, C, D))
