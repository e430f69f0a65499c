"""Single ops, forward and backward, against their plain forms and other people's."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.plain import conv1d, fft_conv, published_scan
from benchmarks.ratio import Job, Line, skipped, times_as_fast
from benchmarks.rivals import fla_chunks, fla_recurrence, mambapy_scan
from benchmarks.rounds import contest
from benchmarks.size import Size
from mecheval.models.ops.delta_rule import delta_rule, delta_rule_ref
from mecheval.models.ops.long_conv import long_conv, long_conv_ref
from mecheval.models.ops.selective_scan import selective_scan, selective_scan_ref
from mecheval.models.ops.short_conv import short_conv, short_conv_ref

CAPTION = (
    "Forward and backward at the sizes of a model of width 64 on AR: 68 tokens, a batch of 32; the scan with 128 "
    "channels of 16 states, the delta rule with one head of 64, convolutions of 128 channels. *ref* is our own plain "
    "twin. Each has a process of its own."
)
TIME = 68
Op = Callable[..., Tensor]
Rivals = dict[str, Callable[[], Op]]


def jobs(size: Size) -> Iterator[Job]:
    for name in CONTESTS:
        yield Job(name, partial(lines, name, size), weight=4 * size.rounds)


def lines(name: str, size: Size) -> Iterator[Line]:
    """Those that are here, then why the others are not."""
    _, _, rivals = CONTESTS[name](size)
    found = contest(contestant, ["ours", *rivals], size.rounds, op=name, size=asdict(size))
    ours = found.times.pop("ours")
    for other, theirs in found.times.items():
        yield times_as_fast(name, other, ours, theirs)
    yield from (skipped(name, other, reason) for other, reason in found.absent.items())


def contestant(op: str, size: Mapping[str, Any], name: str) -> Callable[[], object]:
    """Forward and backward, for a process of its own."""
    inputs, ours, rivals = CONTESTS[op](Size.of(size))
    form = ours if name == "ours" else rivals[name]()
    return lambda: torch.autograd.grad(form(*inputs).sum(), inputs)


def _scan(size: Size) -> tuple[list[Tensor], Op, Rivals]:
    x, dt = _drawn(size, TIME, 2 * size.width), _drawn(size, TIME, 2 * size.width)
    B, C = _drawn(size, TIME, 16), _drawn(size, TIME, 16)
    A, D = -torch.arange(1.0, 17).repeat(2 * size.width, 1), torch.ones(2 * size.width)
    rivals: Rivals = {
        "ref": lambda: selective_scan_ref,
        "published": lambda: published_scan,
        "mambapy": mambapy_scan,
    }
    return _trained(x, F.softplus(dt - 3), A, B, C, D), selective_scan, rivals


def _delta(size: Size) -> tuple[list[Tensor], Op, Rivals]:
    q, k, v = (_drawn(size, TIME, 1, size.width) for _ in range(3))
    inputs = _trained(q, F.normalize(k, dim=-1), v, _drawn(size, TIME, 1).sigmoid())
    rivals: Rivals = {
        "ref": lambda: delta_rule_ref,
        "fla's recurrence": fla_recurrence,
        "fla's chunks": fla_chunks,
    }
    return inputs, delta_rule, rivals


def _short(size: Size) -> tuple[list[Tensor], Op, Rivals]:
    channels = 2 * size.width
    inputs = _trained(_drawn(size, TIME, channels), torch.randn(channels, 4), torch.zeros(channels))
    return inputs, short_conv, {"ref": lambda: short_conv_ref, "conv1d": lambda: conv1d}


def _long(size: Size) -> tuple[list[Tensor], Op, Rivals]:
    inputs = _trained(_drawn(size, TIME, 2 * size.width), torch.randn(TIME, 2 * size.width))
    return inputs, long_conv, {"ref": lambda: long_conv_ref, "FFT": lambda: fft_conv}


CONTESTS: dict[str, Callable[[Size], tuple[list[Tensor], Op, Rivals]]] = {
    "selective scan": _scan,
    "delta rule": _delta,
    "short convolution": _short,
    "long convolution": _long,
}


def _drawn(size: Size, *shape: int) -> Tensor:
    return torch.randn(size.batch, *shape)


def _trained(*inputs: Tensor) -> list[Tensor]:
    return [tensor.requires_grad_() for tensor in inputs]
