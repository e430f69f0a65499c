"""Rotary positions equal the complex rotation and transformers' and depend on distances alone."""

import numpy as np
import pytest
import torch
from support.numpy_reference import largest_error
from support.task_facts import relative_error

from mecheval.models.ops import gather_reads
from mecheval.models.ops.rotary import rotary_angles, rotate, rotate_ref

SHAPES = [(1, 1, 1, 2), (2, 5, 3, 4), (1, 67, 2, 6), (3, 129, 1, 16)]


def draw(*shape, dtype=torch.float64):
    rng = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=rng, dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_it_is_a_complex_rotation_in_values_and_gradients(shape, dtype, tolerance):
    angles = rotary_angles(shape[1], shape[3])
    x = draw(*shape, dtype=dtype).requires_grad_()

    def turned(form):
        return lambda x: form(x, angles)

    assert largest_error(turned(rotate), turned(rotate_ref), [x]) <= tolerance


@pytest.mark.parametrize("base", [100.0, 10000.0])
def test_the_angles_are_position_times_frequency(base):
    time, d = 7, 6
    truth = [[t / base ** (2 * i / d) for i in range(d // 2)] for t in range(time)]
    assert relative_error(rotary_angles(time, d, base), np.array(truth)) <= 1e-14


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_equals_transformers_llama(shape):
    llama = pytest.importorskip(
        "transformers.models.llama.modeling_llama", reason="needs transformers"
    )
    config = llama.LlamaConfig(
        hidden_size=shape[2] * shape[3], num_attention_heads=shape[2], head_dim=shape[3]
    )
    q, k = draw(*shape), draw(*shape).flip(1)
    angles = rotary_angles(shape[1], shape[3])
    both = torch.cat([angles, angles], dim=-1)[None]
    theirs = llama.apply_rotary_pos_emb(q, k, both.cos(), both.sin(), unsqueeze_dim=2)
    for x, truth in zip((q, k), theirs, strict=True):
        assert relative_error(rotate(x, angles), truth) <= 1e-12
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(shape[1])[None])
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=2)
    for x, truth in zip((q, k), theirs, strict=True):
        assert relative_error(rotate(x, angles), truth) <= 1e-5, "its angles are in float32"


def test_products_depend_on_the_distance_alone():
    angles, q, k = rotary_angles(40, 8), draw(1, 1, 1, 8), draw(1, 1, 1, 8).flip(3)
    queries, keys = (rotate(x.expand(1, 40, 1, 8), angles)[0, :, 0] for x in (q, k))
    products = queries @ keys.T
    for distance in (0, 3, 17):
        same = products.diagonal(-distance)
        assert relative_error(same, same[:1].expand_as(same)) <= 1e-12
    assert (products[:, 0] - products[0, 0]).abs().max() > 0.1, "but they do depend on it"


def test_each_row_can_have_positions_of_its_own():
    x, angles = draw(2, 5, 3, 4), rotary_angles(9, 4)
    at = torch.tensor([[8, 0, 3, 3, 1], [2, 7, 5, 0, 4]])
    rows = torch.cat([rotate(x[i : i + 1], angles[at[i]]) for i in range(2)])
    gathered = gather_reads(angles.expand(2, -1, -1), at)
    assert torch.equal(rotate(x, gathered), rows)


def test_an_empty_batch_is_accepted():
    assert rotate(torch.empty(0, 3, 2, 4), rotary_angles(3, 4)).shape == (0, 3, 2, 4)
