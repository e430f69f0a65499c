"""Mamba's selective scan: a state for every channel that decays, is written and is read as the input says.

    h_t = exp(dt_t A) ∘ h_{t−1} + dt_t B_t x_t        y_t = ⟨C_t, h_t⟩ + D ∘ x_t

Gu and Dao (2024), §3 and algorithm 2, with the state-spaces/mamba discretisation: zero-order hold for A, Euler for B.

    x   the channels                    A   decay rates, negative          B   where in the state to write
    dt  step sizes, positive            D   what passes the state by       C   where in the state to read
    h   the state, 0 before the first token
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mecheval.core.errors import InvalidInput
from mecheval.models.mixer_options import ScanBackend, backend_is_installed, refuse
from mecheval.models.ops.compiled import first_derivative, not_compiled, run

Channels = Float[Tensor, "batch time d_inner"]
Directions = Float[Tensor, "batch time d_state"]  # in the state, to write to and to read from
Decays = Float[Tensor, "d_inner d_state"]
Skips = Float[Tensor, " d_inner"]
States = Float[Tensor, "batch time d_inner d_state"]
GROUP = 4  # states that the kernels take at once on the way back


def selective_scan(
    x: Channels,
    dt: Channels,
    A: Decays,
    B: Directions,
    C: Directions,
    D: Skips,
    backend: ScanBackend = "auto",
) -> Channels:
    """The outputs y. "auto" is "numba" for float32 and float64 on the CPU, "torch" for everything else."""
    inputs = (x, dt, A, B, C, D)
    if backend == "auto":
        backend = "torch" if not_compiled(*inputs) else "numba"
    if backend == "torch":
        return read_states(selective_states(x, dt, A, B), x, C, D)
    if backend == "numba":
        if found := not_compiled(*inputs):
            raise InvalidInput(f"backend='numba' must have float32 or float64 on the CPU, all alike; found {found}")
        return _CompiledScan.apply(*laid_out(*inputs))  # type: ignore[no-untyped-call]
    if backend == "mamba_ssm":
        refuse(backend_is_installed(backend))
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn  # type: ignore[import-not-found]

        x, dt, B, C = (tensor.transpose(1, 2) for tensor in (x, dt, B, C))  # time is last there
        return selective_scan_fn(x, dt, A, B, C, D).transpose(1, 2)
    raise InvalidInput(f"backend={backend!r} must be auto, torch, numba or mamba_ssm")


def selective_scan_ref(x: Channels, dt: Channels, A: Decays, B: Directions, C: Directions, D: Skips) -> Channels:
    """The equation, token by token."""
    h, y = torch.zeros_like(A), []
    for t in range(x.shape[1]):
        h = torch.exp(dt[:, t, :, None] * A) * h + (dt[:, t] * x[:, t])[..., None] * B[:, t, None]
        y.append((h * C[:, t, None]).sum(-1) + D * x[:, t])
    return torch.stack(y, dim=1)


def selective_states(x: Channels, dt: Channels, A: Decays, B: Directions) -> States:
    """Every h_t, for those who record or edit the state; `selective_scan` holds a single one at a time."""
    decay = torch.exp(dt[..., None] * A)
    written = (dt * x)[..., None] * B[:, :, None]
    # Sums of logarithms would need no loop, but are not finite once a decay is 0. Slicing token by token would be
    # quadratic: the gradient of each slice is as large as the whole.
    h, states = torch.zeros_like(A), []
    for decay_t, written_t in zip(decay.unbind(1), written.unbind(1), strict=True):
        h = decay_t * h + written_t
        states.append(h)
    return torch.stack(states, dim=1)


def went_on(dt: Channels, A: Decays, states: States, edited: States) -> States:
    """Every h_t where some were edited and what follows them was not: the recurrence goes on from an edited state.

    It is linear, so the difference that an edit made decays as the state does, until the next edit.
    """
    if edited is states:
        return states
    touched = (edited != states).any(dim=-1).any(dim=-1)[..., None, None]
    decay = torch.exp(dt[..., None] * A)
    difference, results = torch.zeros_like(states[:, 0]), []
    for t in range(states.shape[1]):
        difference = torch.where(touched[:, t], edited[:, t] - states[:, t], decay[:, t] * difference)
        results.append(torch.where(touched[:, t], edited[:, t], states[:, t] + difference))
    return torch.stack(results, dim=1)


def read_states(states: States, x: Channels, C: Directions, D: Skips) -> Channels:
    """The outputs y, given every h_t."""
    return (states @ C[..., None]).squeeze(-1) + D * x


def laid_out(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Iterator[Tensor]:
    """As the kernels take them: states in whole groups, and contiguous. Numba would compile a slower kernel for every
    other layout."""
    if missing := -A.shape[1] % GROUP:
        A, B, C = (F.pad(tensor, (0, missing)) for tensor in (A, B, C))
    return (tensor.contiguous() for tensor in (x, dt, A, B, C, D))


class _CompiledScan(torch.autograd.Function):
    """Keeps its inputs and nothing else: the backward kernel computes the states again."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        from mecheval.models.ops.kernels.selective_scan import block_width, kernels

        ctx.save_for_backward(*inputs)
        y = torch.empty_like(inputs[0])
        forward, ctx.kernel = kernels(block_width(len(inputs[2])))
        run(forward, *inputs, y)
        return y

    @staticmethod
    @first_derivative
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        inputs = ctx.saved_tensors
        # to x, dt and A it writes, to the others it adds
        gradients = *map(torch.empty_like, inputs[:3]), *map(torch.zeros_like, inputs[3:])
        run(ctx.kernel, *inputs, g.contiguous(), *gradients)
        return gradients
