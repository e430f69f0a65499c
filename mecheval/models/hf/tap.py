"""Descriptions of what is tapped in a kind of mixer, and taps that several kinds share.

A tap stands for a function that the mixer's forward pass calls, or for a method of one of its
submodules, and passes tensors inside through sites.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mecheval.models.ops.recurrence import (
    Outputs,
    Queries,
    Values,
    Writes,
    propagate_edit,
    read_states,
    recurrence_states,
    recurrence_weights,
)
from mecheval.models.site import Site

Function = Callable[..., Any]
Sites = Mapping[str, Site]
Wrap = Callable[[Function, Sites, nn.Module], Function]  # of what is tapped, for one mixer
STATE = "the memory after each token; later tokens continue from an edited one"
MIXING = "how much of each value is in what each head reads"
BY_CHANNEL = "how much of each token is in what each channel reads"


ByChannel = Float[Tensor, "batch time channel"]
ChannelWeights = Float[Tensor, "batch channel time source"]


@dataclass(frozen=True)
class Place:
    """A site as it is created in every layer of a kind.

    Its axis `kv_head` is `head` where heads share no keys.
    """

    name: str
    axes: str
    about: str
    materialised: bool = False

    def site(self, shared: bool) -> Site:
        axes = self.axes if shared else self.axes.replace("kv_head", "head")
        return Site(axes, self.about, self.materialised)


@dataclass(frozen=True)
class Tap:
    """A function, or with `method` a submodule, that is wrapped so that it passes sites."""

    name: str
    wrap: Wrap
    places: tuple[Place, ...] = ()
    method: str = ""


@dataclass(frozen=True)
class Kind:
    """A kind of mixer: known by a name in the code of its forward pass.

    A mixer with more than one of `single` is of another kind.
    """

    name: str
    mark: str
    taps: tuple[Tap, ...]
    single: str = ""


def pass_input(name: str) -> Wrap:
    """Return a wrap by which the first argument passes a site."""

    def wrap(function: Function, sites: Sites, mixer: nn.Module) -> Function:
        return lambda x, *args, **kwargs: function(sites[name](x), *args, **kwargs)

    return wrap


def switch_off(function: Function, sites: Sites, mixer: nn.Module) -> Function:
    """Return a function that declines, so that the mixer does not take a fused path."""
    return lambda *args, **kwargs: None


def gate_out(part: str) -> Tap:
    about = "what is read out, gated, before the output projection"
    place = Place("gate_out", "batch time d_inner", about)
    return Tap(part, pass_input("gate_out"), (place,), method="forward")


def used(sites: Sites, *names: str) -> bool:
    return any(sites[name].used for name in names)


def by_time(site: Site, x: Tensor) -> Tensor:
    """Pass a tensor (batch, other, time, …) through a site of (batch, time, other, …)."""
    return site(x.transpose(1, 2)).transpose(1, 2)


def impulse_weights(scan: Callable[[ByChannel], ByChannel], x: ByChannel) -> ChannelWeights:
    """Return how much of each x_s is in y_t, for a scan that is linear in every channel.

    Its output for a 1 at s alone is column s.
    """
    ones = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)[..., None]
    return torch.stack([scan(one.expand_as(x)) for one in ones], dim=-1).transpose(1, 2)


def edit_weights(y: ByChannel, weights: ChannelWeights, x: ByChannel, site: Site) -> ByChannel:
    """Return y = weights · x of every channel after an edit of the weights."""
    return y + torch.einsum("bcts,bsc->btc", site(weights) - weights, x)


def read_memory(
    q: Queries, writes: Writes, sites: Sites, skip: Float[Tensor, " head"] | None = None
) -> Outputs:
    """Return what the heads read, while the memory and the weights pass their sites.

    `skip` is how much of its own value a token reads past the memory.
    """
    states = recurrence_states(writes)
    edited = sites["state"](states) if sites["state"].used else states
    o = read_states(q, propagate_edit(states, edited, writes))
    if skip is not None:
        o = o + skip[:, None] * writes.v
    if sites["mixing"].used:
        o = o + _difference(q, writes, sites["mixing"], skip)
    return o


def _difference(
    q: Queries, writes: Writes, site: Site, skip: Float[Tensor, " head"] | None
) -> Values:
    """Return what an edit of the weights adds to what the heads read."""
    weights = recurrence_weights(q, writes)
    if skip is not None:
        weights = weights + skip[:, None, None] * torch.eye(q.shape[1]).to(weights)
    return torch.einsum("bhts,bshv->bthv", site(weights) - weights, writes.v)
