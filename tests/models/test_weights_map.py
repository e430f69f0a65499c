"""docs/weights.md maps our parameters to published ones: mapped weights give the same output."""

import math
import re

import pytest
import torch
from support.mixer_variants import NAMES, VARIANTS, WEIGHTS, built, every_variant, sizes, table
from support.task_facts import relative_error

from mecheval.models.registries import mixers

# attention's other options are compared with transformers, in mixers/test_attention.py
ZOOLOGY = [
    spec for spec in VARIANTS if spec.name in ("base_conv", "linear_attention", "h3", "hyena")
]
ZOOLOGY += [
    spec for spec in VARIANTS if spec.name == "attention" and set(spec.options) <= {"heads"}
]


def shape(text, known):
    """Return the shape that a text such as "2·d_inner × d_model" describes."""
    return tuple(
        sum(
            math.prod(int(known.get(word, word)) for word in term.split("·"))
            for term in axis.split(" + ")
        )
        for axis in text.split(" × ")
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_tables_name_every_parameter_and_nothing_else(name):
    there = [row[1] for row in table(name)]
    here = [row[0] for row in table(name) if row[0]]
    assert all(there)
    assert (len(set(there)), len(set(here))) == (len(there), len(here))
    assert set(here) == {
        key for spec in VARIANTS if spec.name == name for key in built(spec).state_dict()
    }


def test_every_mixer_has_a_table():
    assert (
        sorted(re.findall(r"^## `(\w+)`$", WEIGHTS.read_text(), flags=re.MULTILINE))
        == NAMES
        == sorted(mixers.names())
    )


@every_variant
def test_the_tables_give_the_shapes(spec):
    known, rows = sizes(spec), {row[0]: row for row in table(spec.name)}
    for name, weight in built(spec).named_parameters():
        assert tuple(weight.shape) == shape(rows[name][2], known)
        assert weight.numel() == math.prod(shape(rows[name][3] or rows[name][2], known))


def published(spec, d_model, max_len):
    """Build the mixer in zoology."""
    known = sizes(spec, d_model, max_len)
    heads = {key: known.get("heads") for key in ("num_heads", "num_key_value_heads")}
    name, options = {
        "attention": ("attention.MHA", {"num_heads": known.get("heads"), "bias": False}),
        "base_conv": (
            "base_conv.BaseConv",
            {"kernel_size": -1 if known.get("kernel") == "long" else known.get("kernel")},
        ),
        "linear_attention": (
            "based.Based",
            heads | {"feature_dim": known.get("feature_dim"), "train_view": "quadratic"},
        ),
        "h3": ("h3.H3", {"d_state": known.get("d_state"), "head_dim": known.get("head_dim")}),
        "hyena": (
            "hyena.Hyena",
            {"filter_order": 3, "short_filter_order": 2, "bias": known.get("skip")},
        ),
    }[spec.name]
    module, _, cls = name.partition(".")
    length = {} if spec.name == "attention" else {"l_max": max_len}
    reason = "needs a checkout of HazyResearch/zoology on PYTHONPATH, einops and opt_einsum"
    published = pytest.importorskip(f"zoology.mixers.{module}", reason=reason, exc_type=ImportError)
    return getattr(published, cls)(d_model, **length, **options)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("spec", ZOOLOGY, ids=str)
def test_mapped_weights_give_the_same_output_in_zoology(spec):
    dtype = torch.float32 if spec.name == "h3" else torch.float64  # H3 casts there
    mixer, peer = built(spec, 8, 48, dtype), published(spec, 8, 48).to(dtype)
    ours, theirs, rows = dict(mixer.named_parameters()), peer.state_dict(), table(spec.name)
    shapes = {
        row[1]: shape(row[3] or row[2], sizes(spec, 8, 48)) for row in rows if row[1] in theirs
    }
    assert shapes == {key: tuple(weight.shape) for key, weight in theirs.items()}
    carried = {
        row[1]: ours[row[0]].detach().reshape(shapes[row[1]]) for row in rows if row[0] in ours
    }
    only_there = {
        row[1] for row in rows if not row[0] or ("skip" in spec.options and row[0] == "D")
    }
    assert set(theirs) - set(carried) <= only_there
    peer.load_state_dict(carried, strict=False)
    x = torch.randn(2, 33, 8, dtype=dtype)
    # positions as float32 may differ in the last bit
    positions = spec.name == "hyena" or spec.options.get("kernel") == "long"
    assert relative_error(mixer(x), peer(x)) <= (
        1e-5 if spec.name == "h3" else 1e-6 if positions else 1e-10
    )
