"""Measure single ops, forward and backward, against plain forms and other packages."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.plain import conv1d, fft_conv, published_scan
from benchmarks.ratio import Job, Line, skipped, speedup
from benchmarks.rivals import fla_chunks, fla_recurrence, fla_recurrences, mambapy_scan
from benchmarks.rounds import run_contest
from benchmarks.size import Size
from mecheval.models.ops.delta_rule import delta_rule, delta_rule_ref
from mecheval.models.ops.linear_scan import linear_scan, linear_scan_ref
from mecheval.models.ops.long_conv import long_conv, long_conv_ref
from mecheval.models.ops.recurrence import Writes, recurrence, recurrence_ref
from mecheval.models.ops.selective_scan import selective_scan, selective_scan_ref
from mecheval.models.ops.short_conv import short_conv, short_conv_ref

CAPTION = (
    "Forward and backward at the sizes of a model of width 64 on AR: 68 tokens, a batch of 32; the "
    "selective scan has 128 channels of 16 states, the delta rule one head of 64, the linear "
    "recurrence is that of Gated DeltaNet with keys of 48 and values of 96, the linear scan has 64 "
    "channels, the convolutions 128. *ref* is the plain twin of our op. Each runs in a process of "
    "its own."
)
TIME = 68
Op = Callable[..., Tensor]
Rivals = dict[str, Callable[[], Op]]


def jobs(size: Size) -> Iterator[Job]:
    for name in CONTESTS:
        yield Job(name, partial(lines, name, size), weight=4 * size.rounds)


def lines(name: str, size: Size) -> Iterator[Line]:
    _, _, rivals = CONTESTS[name](size)
    names = ["ours", *rivals]
    contest = run_contest(build_contestant, names, size.rounds, op=name, size=asdict(size))
    ours = contest.times.pop("ours")
    for other, theirs in contest.times.items():
        yield speedup(name, other, ours, theirs)
    for other, reason in contest.missing.items():
        yield skipped(name, other, reason)


def build_contestant(op: str, size: Mapping[str, Any], name: str) -> Callable[[], object]:
    """Return a function that runs one form of the op forward and backward."""
    inputs, ours, rivals = CONTESTS[op](Size.of(size))
    form = ours if name == "ours" else rivals[name]()
    return lambda: torch.autograd.grad(form(*inputs).sum(), inputs)


def _scan(size: Size) -> tuple[list[Tensor], Op, Rivals]:
    x, dt = _random(size, TIME, 2 * size.width), _random(size, TIME, 2 * size.width)
    B, C = _random(size, TIME, 16), _random(size, TIME, 16)
    A, D = -torch.arange(1.0, 17).repeat(2 * size.width, 1), torch.ones(2 * size.width)
    rivals: Rivals = {
        "ref": lambda: selective_scan_ref,
        "published": lambda: published_scan,
        "mambapy": mambapy_scan,
    }
    return _with_grad(x, F.softplus(dt - 3), A, B, C, D), selective_scan, rivals


def _delta(size: Size) -> tuple[list[Tensor], Op, Rivals]:
    q, k, v = (_random(size, TIME, 1, size.width) for _ in range(3))
    inputs = _with_grad(q, F.normalize(k, dim=-1), v, _random(size, TIME, 1).sigmoid())
    rivals: Rivals = {
        "ref": lambda: delta_rule_ref,
        "fla's recurrence": fla_recurrence,
        "fla's chunks": fla_chunks,
    }
    return inputs, delta_rule, rivals


def _recurrence(size: Size) -> tuple[list[Tensor], Op, Rivals]:
    d_key = size.width * 3 // 4
    q, k, v = (_random(size, TIME, 1, width) for width in (d_key, d_key, 2 * d_key))
    log_w, beta = -_random(size, TIME, 1, 1).exp(), _random(size, TIME, 1, 1).sigmoid()
    rivals: Rivals = {
        "ref": lambda: _gated_delta(recurrence_ref),
        "fla's recurrence": lambda: _gated_delta(fla_recurrences()[recurrence]),
    }
    inputs = _with_grad(q, F.normalize(k, dim=-1), v, log_w, beta)
    return inputs, _gated_delta(recurrence), rivals


def _gated_delta(form: Op) -> Op:
    """Return the form of the recurrence as a function of tensors alone."""

    def op(q: Tensor, k: Tensor, v: Tensor, log_w: Tensor, beta: Tensor) -> Tensor:
        return form(q, Writes(beta * k, v, log_w, a=log_w.exp() * k))

    return op


def _linear_scan(size: Size) -> tuple[list[Tensor], Op, Rivals]:
    inputs = _with_grad(_random(size, TIME, size.width).sigmoid(), _random(size, TIME, size.width))
    rivals: Rivals = {
        "ref": lambda: linear_scan_ref,
        "fla's recurrence": lambda: fla_recurrences()[linear_scan],
    }
    return inputs, linear_scan, rivals


def _short(size: Size) -> tuple[list[Tensor], Op, Rivals]:
    channels = 2 * size.width
    inputs = _with_grad(
        _random(size, TIME, channels), torch.randn(channels, 4), torch.zeros(channels)
    )
    return inputs, short_conv, {"ref": lambda: short_conv_ref, "conv1d": lambda: conv1d}


def _long(size: Size) -> tuple[list[Tensor], Op, Rivals]:
    inputs = _with_grad(_random(size, TIME, 2 * size.width), torch.randn(TIME, 2 * size.width))
    return inputs, long_conv, {"ref": lambda: long_conv_ref, "FFT": lambda: fft_conv}


CONTESTS: dict[str, Callable[[Size], tuple[list[Tensor], Op, Rivals]]] = {
    "selective scan": _scan,
    "delta rule": _delta,
    "linear recurrence": _recurrence,
    "linear scan": _linear_scan,
    "short convolution": _short,
    "long convolution": _long,
}


def _random(size: Size, *shape: int) -> Tensor:
    return torch.randn(size.batch, *shape)


def _with_grad(*inputs: Tensor) -> list[Tensor]:
    return [tensor.requires_grad_() for tensor in inputs]
