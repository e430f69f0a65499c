"""Every built-in mixer with the options that change its parameters, and what docs/weights.md says of them."""

import math
from pathlib import Path

import pytest
import torch

from mecheval.core.spec import Spec
from mecheval.models.registries import mixers
from support.numpy_reference import moved

WEIGHTS = Path(__file__).parents[2] / "docs" / "weights.md"
VARIANTS = [
    *(Spec("attention", {"heads": heads}) for heads in (1, 2)),
    *(Spec("base_conv", {"kernel": kernel}) for kernel in (1, 3, "long")),
    *(Spec("linear_attention", {"heads": heads, "feature_dim": 3}) for heads in (1, 2)),
    *(Spec("delta_net", {"heads": heads, "d_conv": d_conv}) for heads, d_conv in ((1, 4), (2, 0))),
    *(Spec("h3", {"d_state": 4, "head_dim": head_dim}) for head_dim in (1, 2, 4)),
    *(Spec("hyena", {"filter_order": 3, "short": 2, "skip": skip}) for skip in (False, True)),
    *(Spec("mamba", {"d_state": 3, "d_conv": d_conv}) for d_conv in (0, 2, 4)),
    Spec("mamba", {"d_state": 3, "backend": "torch"}),
]
NAMES = sorted({spec.name for spec in VARIANTS})
every_variant = pytest.mark.parametrize("spec", VARIANTS, ids=str)


def built(spec, d_model=4, max_len=16, dtype=torch.float64):
    """The mixer with every weight away from its start."""
    torch.manual_seed(0)
    return moved(mixers.build(spec, d_model=d_model, max_len=max_len)).to(dtype)


def sizes(spec, d_model=4, max_len=16):
    """What the words of docs/weights.md and of the sites' axes stand for."""
    given = {option.name: option.default for option in mixers.describe(spec.name).options} | dict(spec.options)
    known = {"d_model": d_model, "max_len": max_len, "projections": 3 * d_model, "head": given.get("heads")} | given
    if "heads" in given:
        known["d_head"] = known["d_key"] = known["d_value"] = d_model // given["heads"]
    if "head_dim" in given:
        known |= {"head": d_model // given["head_dim"], "ssms": d_model // given["head_dim"]}
        known |= {"pairs": given["d_state"] // 2, "d_key": given["head_dim"], "d_value": given["head_dim"]}
    if "expand" in given:
        known |= {"d_inner": given["expand"] * d_model, "dt_rank": math.ceil(d_model / 16)}
    return known


def table(name):
    """Rows of a mixer's table: name here, name there, shape here, shape there; "" where there is none."""
    section = WEIGHTS.read_text().split(f"## `{name}`\n")[1].split("\n## ")[0]
    rows = [[cell.strip(" `–") for cell in line.split("|")[1:-1]] for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]
