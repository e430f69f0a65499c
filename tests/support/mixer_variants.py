"""Built-in mixers with options that change their parameters, and the tables of docs/weights.md."""

import math
from pathlib import Path

import pytest
import torch

from mecheval.core.spec import Spec
from mecheval.models.registries import mixers
from support.numpy_reference import perturb

WEIGHTS = Path(__file__).parents[2] / "docs" / "weights.md"
VARIANTS = [
    *(Spec("attention", {"heads": heads}) for heads in (1, 2)),
    *(Spec("base_conv", {"kernel": kernel}) for kernel in (1, 3, "long")),
    *(Spec("linear_attention", {"heads": heads, "feature_dim": 3}) for heads in (1, 2)),
    *(Spec("delta_net", {"heads": heads, "d_conv": d_conv}) for heads, d_conv in ((1, 4), (2, 0))),
    *(
        Spec("gated_delta_net", options)
        for options in (
            {},
            {"heads": 2, "expand_k": 1.0, "householders": 2, "neg_eigval": True},
            {"decay": "channel", "d_conv": 2, "gate": False},
            {"decay": "constant", "delta": False, "beta": False, "norm": False},
            {"decay": "none", "delta": False, "d_conv": 0, "normaliser": True},
        )
    ),
    *(
        Spec("mamba2", {"head_dim": 4, "d_state": 3} | options)
        for options in (
            {},
            {"groups": 2, "d_conv": 2, "gate": False},
            {"head_dim": 2, "d_conv": 0, "norm": False, "skip": False, "decay": False},
        )
    ),
    *(
        Spec("mamba3", {"head_dim": 4, "d_state": 4} | options)
        for options in (
            {},
            {"groups": 2, "d_conv": 3, "norm": True, "rotary": 1.0, "decay": "heavy_tail"},
            {"head_dim": 2, "trapezoid": False, "rotary": 0.0, "bias": False, "bc_norm": False},
            {"decay": "none", "gate": False, "skip": False},
        )
    ),
    *(Spec("h3", {"d_state": 4, "head_dim": head_dim}) for head_dim in (1, 2, 4)),
    *(Spec("hyena", {"filter_order": 3, "short": 2, "skip": skip}) for skip in (False, True)),
    *(Spec("mamba", {"d_state": 3, "d_conv": d_conv}) for d_conv in (0, 2, 4)),
    Spec("mamba", {"d_state": 3, "backend": "torch"}),
]
NAMES = sorted({spec.name for spec in VARIANTS})
every_variant = pytest.mark.parametrize("spec", VARIANTS, ids=str)


def built(spec, d_model=4, max_len=16, dtype=torch.float64):
    """Build the mixer with every weight moved away from its initial value."""
    torch.manual_seed(0)
    return perturb(mixers.build(spec, d_model=d_model, max_len=max_len)).to(dtype)


def sizes(spec, d_model=4, max_len=16):
    """Return the sizes that the words of docs/weights.md and of the sites' axes stand for."""
    options = {option.name: option.default for option in mixers.describe(spec.name).options}
    options |= dict(spec.options)
    known = {"d_model": d_model, "max_len": max_len, "projections": 3 * d_model}
    known |= {"head": options.get("heads")} | options
    if "heads" in options:
        known["d_head"] = known["d_key"] = known["d_value"] = d_model // options["heads"]
    if "expand_k" in options:
        known |= recurrent_sizes(options, d_model)
    if spec.name == "h3":
        known |= {"head": d_model // options["head_dim"], "ssms": d_model // options["head_dim"]}
        known |= {
            "pairs": options["d_state"] // 2,
            "d_key": options["head_dim"],
            "d_value": options["head_dim"],
        }
    if "expand" in options:
        known |= {"d_inner": options["expand"] * d_model, "dt_rank": math.ceil(d_model / 16)}
    if "groups" in options:
        known |= state_space_sizes(options, d_model)
    return known


def recurrent_sizes(options, d_model):
    """Return the sizes of mixers whose keys and values have widths of their own."""
    keys, values = (int(options[f"expand_{which}"] * d_model) for which in "kv")
    heads, times = options["heads"], options.get("householders", 1)
    decays = keys if options.get("decay") == "channel" else heads
    known = {"key_width": keys, "value_width": values, "writes": times * heads, "decays": decays}
    known |= {"written_keys": times * keys, "written_values": times * values}
    known |= {"d_key": keys // heads, "d_value": values // heads, "d_decay": decays // heads}
    known["d_head"] = values // heads
    if options.get("normaliser"):
        known["d_value"] += 1
    return known


def state_space_sizes(options, d_model):
    """Return the sizes of Mamba-2 and Mamba-3."""
    d_state, head_dim, groups = (options[name] for name in ("d_state", "head_dim", "groups"))
    heads = options["expand"] * d_model // head_dim
    known = {"head": heads, "heads": heads, "d_key": d_state, "d_value": head_dim}
    known |= {"group": groups, "group_states": groups * d_state}
    return known | {"angle": int(options.get("rotary", 0) * d_state) // 2}


def table(name):
    """Return the rows of a mixer's table: our name, published name, our shape, published shape."""
    section = WEIGHTS.read_text().split(f"## `{name}`\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line[:1] == "|"]
    rows = [[cell.strip(" `–") for cell in line.split("|")[1:-1]] for line in lines]
    return rows[2:]
