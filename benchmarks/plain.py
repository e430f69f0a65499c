"""The plain form of a train step, which computes what the authors' code computes.

It has logits at all positions, cross-entropy over all of them with the label −100 at tokens that
are no query, torch's default AdamW, and the `*_ref` twin of every op. Linear attention computes its
features explicitly.
"""

import itertools
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mecheval.models import ops as ops_room
from mecheval.models.inputs import Batch
from mecheval.models.ops.linear_attention import EPSILON, mixing_weights, taylor_features
from mecheval.models.ops.long_conv import long_conv
from mecheval.models.ops.selective_scan import selective_scan
from mecheval.models.ops.short_conv import short_conv
from mecheval.models.registries import mixers
from mecheval.training.batches import Batches

Op = Callable[..., Any]
Ops = Mapping[Op, Op]  # from an op of mecheval to its replacement
IGNORED = -100


def twins() -> dict[Op, Op]:
    """Return every op of mecheval with its plain form."""
    pairs: dict[Op, Op] = {mixing_weights: _mixing_weights}
    for info in pkgutil.iter_modules(ops_room.__path__, f"{ops_room.__name__}."):
        names = {} if info.ispkg else vars(import_module(info.name))
        for name in names:
            if f"{name}_ref" in names:
                pairs[names[name]] = _without_backend(names[f"{name}_ref"])
    return pairs


def usual_convolutions() -> dict[Op, Op]:
    """Return the convolutions as zoology and most others write them: torch's conv1d and FFT."""
    return {short_conv: conv1d, long_conv: fft_conv}


def published() -> dict[Op, Op]:
    """Return the op for which state-spaces/mamba publishes a reference."""
    return {selective_scan: _without_backend(published_scan)}


@contextmanager
def replace_ops(ops: Ops) -> Iterator[None]:
    """Replace ops, inside the `with`, in every module of the models that calls them."""
    for name in mixers.names():
        mixers.get(name)  # imports all of them, so that none is missed
    replacements = {id(ours): other for ours, other in ops.items()}
    places = []
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("mecheval.models."):
            for name, value in vars(module).items():
                if id(value) in replacements:
                    places.append((module, name, value))
    try:
        for module, name, ours in places:
            setattr(module, name, replacements[id(ours)])
        yield
    finally:
        for module, name, ours in places:
            setattr(module, name, ours)


def plain_step(
    logits: Callable[[Tensor], Tensor],
    weights: Iterator[torch.nn.Parameter],
    batches: Batches,
    ops: Ops,
) -> Callable[[], float]:
    """Return a function that trains on the next batch and returns the loss.

    `logits` computes those of all positions.
    """
    parameters, numbers = list(weights), itertools.count()
    optimiser = torch.optim.AdamW(parameters, lr=batches.config.lr, weight_decay=0.0)

    def step() -> float:
        batch = Batch.of(batches[next(numbers)])
        labels = torch.full_like(batch.tokens, IGNORED).scatter(1, batch.at, batch.answers)
        with replace_ops(ops):
            loss = F.cross_entropy(logits(batch.tokens).flatten(0, 1), labels.flatten())
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        gradients = [weight.grad for weight in parameters if weight.grad is not None]
        torch.nn.utils.get_total_norm(gradients)
        optimiser.step()
        return loss.item()

    return step


def published_scan(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Compute the scan as the sequential reference of state-spaces/mamba does.

    Channels come before time; exp(dt A) and dt B x of all tokens are computed first, then a loop
    runs over their slices. The gradient of each slice is as large as the table.
    """
    x, dt, B, C = (tensor.transpose(1, 2) for tensor in (x, dt, B, C))
    decay = torch.exp(torch.einsum("bdt,dn->bdtn", dt, A))
    written = torch.einsum("bdt,bnt,bdt->bdtn", dt, B, x)
    state, outputs = torch.zeros_like(written[:, :, 0]), []
    for t in range(x.shape[2]):
        state = decay[:, :, t] * state + written[:, :, t]
        outputs.append(torch.einsum("bdn,bn->bd", state, C[:, :, t]))
    return (torch.stack(outputs, dim=2) + D[:, None] * x).transpose(1, 2)


def conv1d(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    past = F.pad(x.mT, (weight.shape[1] - 1, 0))
    return F.conv1d(past, weight[:, None], bias, groups=weight.shape[0]).mT


def fft_conv(x: Tensor, k: Tensor) -> Tensor:
    size = 2 * len(k)
    product = torch.fft.rfft(x.mT, n=size) * torch.fft.rfft(k.t(), n=size)
    return torch.fft.irfft(product, n=size)[..., : len(k)].mT


def _mixing_weights(q: Tensor, k: Tensor) -> Tensor:
    similarity = torch.tril(torch.einsum("bthf,bshf->bhts", taylor_features(q), taylor_features(k)))
    return similarity / (similarity.sum(dim=-1, keepdim=True) + EPSILON)


def _without_backend(ref: Op) -> Op:
    def op(*tensors: Any, backend: str = "auto") -> Any:
        return ref(*tensors)

    return op
