"""HGRN2 is a gated RNN with one channel a head, and its memory a mean of the values."""

import torch
from support.numpy_reference import (
    Case,
)
from support.task_facts import relative_error

from mecheval.models.mixers.hgrn2 import HGRN2


@torch.no_grad()
def test_with_one_channel_a_head_it_is_a_gated_rnn():
    """With as many heads as channels: h_t = f_t ∘ h_{t−1} + (1 − f_t) ∘ i_t, as in HGRN."""
    mixer, x = Case(2, 67, 6, {"heads": 6, "norm": False}).draw(HGRN2)
    mixer, x = mixer.double(), x.double()
    h, truth = torch.zeros(2, 6, dtype=torch.float64), []
    for t in range(67):
        q, f, i = mixer.q_proj(x[:, t]), mixer.f_proj(x[:, t]).sigmoid(), mixer.i_proj(x[:, t])
        h = f * h + (1 - f) * i
        truth.append(mixer.o_proj(q * q.sigmoid() * h))
    assert relative_error(mixer(x), torch.stack(truth, dim=1)) <= 1e-12


@torch.no_grad()
def test_what_is_held_is_a_mean_of_the_values():
    """The weights of all values in a row of the memory add up to 1 − Π f."""
    mixer, x = Case(1, 67, 6, {"heads": 2, "lower_bound": 0.4}).draw(HGRN2)
    mixer, x = mixer.double(), x.double()
    writes = mixer.writes(x)
    ones = torch.ones_like(writes.v)
    held = torch.zeros(1, 2, 3, 3, dtype=torch.float64)
    for t in range(67):
        held = writes.w[:, t, :, :, None] * held + writes.k[:, t, :, :, None] * ones[:, t, :, None]
        truth = 1 - writes.log_w[:, : t + 1].sum(dim=1).exp()
        assert relative_error(held, truth[..., None].expand_as(held)) <= 1e-12
    assert float(writes.w.min()) >= 0.4


def test_its_state_is_the_memory_and_what_the_convolutions_keep():
    memory, inputs = 2 * 4 * 4, 3 * 3 * 8
    assert HGRN2(8, 129, heads=2, d_conv=4).state_size(7) == memory + inputs
    assert HGRN2(8, 129, heads=2).state_size(7) == memory
