"""Rotary positions (Su et al. 2021, §3.2): queries and keys turn by an angle that grows with time.

Channel i of the first half and channel i of the second half are one pair, as in Llama, GPT-NeoX
and fla; the paper pairs neighbours instead. A query at t and a key at s, both rotated, have a
product that depends on the positions only by t − s.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Angles = Float[Tensor, "*batch time pair"]
Heads = Float[Tensor, "batch time head channel"]


def rotary_angles(time: int, d: int, base: float = 10000.0) -> Float[Tensor, "time pair"]:
    """Return t · base^(−2i/d) for every position t and pair i of d channels.

    They are in float64, because a late position times a frequency loses digits in float32.
    """
    rates = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    return torch.outer(torch.arange(time, dtype=torch.float64), rates)


def rotate(x: Heads, angles: Angles) -> Heads:
    """Turn every pair of channels of x by its angle, which all heads share."""
    cos, sin = (turn[..., None, :].to(x) for turn in (angles.cos(), angles.sin()))
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def rotate_ref(x: Heads, angles: Angles) -> Heads:
    """Multiply every pair, as a complex number, by exp(i · angle)."""
    pairs = torch.complex(*x.chunk(2, dim=-1))
    turns = torch.polar(torch.ones_like(angles), angles)[..., None, :].to(pairs)
    turned = pairs * turns
    return torch.cat([turned.real, turned.imag], dim=-1)
