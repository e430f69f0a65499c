"""Mamba worked out again by its recurrence, and beside the packages that implement it."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import drawn, error, numbers

from mecheval.models.mixers.mamba import Mamba
from mecheval.models.site import record

SHAPES = [(1, 1), (3, 1), (1, 2), (2, 5), (1, 16), (2, 33)]
OPTIONS = [
    {"d_conv": 0},
    {"d_conv": 1},
    {"d_conv": 2},
    {"d_conv": 3, "expand": 1},
    {"d_conv": 4, "expand": 3},
    {"d_state": 1},
    {"d_state": 5, "backend": "torch"},
    {"d_state": 5, "backend": "numba"},
]
PRECISION = [(torch.float64, 1e-10), (torch.float32, 1e-5)]
WEIGHTS = Path(__file__).parents[3] / "docs" / "weights.md"


def silu(z):
    return z / (1 + np.exp(-z))


def by_hand(w, x):
    d_inner, d_state = w["A_log"].shape
    dt_rank = math.ceil(x.shape[-1] / 16)
    y, states = np.empty_like(x), np.empty((*x.shape[:2], d_inner, d_state))
    for b in range(len(x)):
        z = x[b] @ w["in_proj.weight"].T
        h = np.zeros((d_inner, d_state))
        for t in range(x.shape[1]):
            u, gate = z[t, :d_inner], z[t, d_inner:]
            if "conv.weight" in w:
                taps = w["conv.weight"][:, 0, ::-1].T  # the last tap is the present token's
                u = w["conv.bias"] + sum(taps[i] * z[t - i, :d_inner] for i in range(min(len(taps), t + 1)))
            u = silu(u)
            selected = w["x_proj.weight"] @ u
            low, B, C = selected[:dt_rank], selected[dt_rank : dt_rank + d_state], selected[dt_rank + d_state :]
            dt = np.log1p(np.exp(w["dt_proj.weight"] @ low + w["dt_proj.bias"]))
            for c in range(d_inner):
                h[c] = np.exp(-dt[c] * np.exp(w["A_log"][c])) * h[c] + dt[c] * B * u[c]
            states[b, t] = h
            y[b, t] = w["out_proj.weight"] @ ((h @ C + w["D"] * u) * silu(gate))
    return y, states


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("batch", "time"), SHAPES)
def test_the_output_is_the_recurrence(batch, time, options, dtype, tolerance):
    for d_model in (3, 17):  # a dt_rank of 1 and of 2
        mixer = drawn(Mamba(d_model, 64, **options), dtype)
        x = torch.randn(batch, time, d_model, dtype=dtype)
        y, states = by_hand(numbers(mixer), x.double().numpy())
        assert error(mixer(x), y) <= tolerance
        with record(mixer, ["state"]) as seen:
            assert error(mixer(x), y) <= tolerance, "the output must not depend on who looks"
        assert error(seen["state"], states) <= tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISION, ids=["float64", "float32"])
@pytest.mark.parametrize("d_conv", [1, 2, 3, 4])
@pytest.mark.parametrize("package", ["transformers", "mambapy"])
def test_the_same_weights_give_the_same_output_in(package, d_conv, dtype, tolerance, monkeypatch):
    mixer = drawn(Mamba(17, 64, d_state=5, expand=3, d_conv=d_conv), dtype)
    peer = {"transformers": in_transformers, "mambapy": in_mambapy}[package](d_conv).to(dtype)
    ours = dict(mixer.named_parameters())
    peer.load_state_dict({there: ours[here].detach() for here, there in published_names().items()})
    if dtype == torch.float64:
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # both would compute in float32
    x = torch.randn(2, 33, 17, dtype=dtype)
    with torch.no_grad():
        assert error(mixer(x), peer.eval()(x).double().numpy()) <= tolerance


def in_transformers(d_conv):
    reason = "transformers is not installed: pip install mecheval[oracles]"
    modeling = pytest.importorskip("transformers.models.mamba.modeling_mamba", reason=reason)
    config = modeling.MambaConfig(
        hidden_size=17, state_size=5, expand=3, conv_kernel=d_conv, num_hidden_layers=1, use_mambapy=False
    )
    return modeling.MambaMixer(config, layer_idx=0)


def in_mambapy(d_conv):
    mambapy = pytest.importorskip("mambapy.mamba", reason="mambapy is not installed: pip install mecheval[oracles]")
    return mambapy.MambaBlock(mambapy.MambaConfig(d_model=17, n_layers=1, d_state=5, expand_factor=3, d_conv=d_conv))


def test_the_scan_reads_what_mamba_ssms_reference_reads(monkeypatch):
    reason = "needs mamba-ssm and triton"
    peer = pytest.importorskip("mamba_ssm.ops.selective_scan_interface", reason=reason, exc_type=ImportError)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # it would compute in float32
    mixer = drawn(Mamba(17, 64), torch.float64)
    with record(mixer, ["conv_out", "dt", "ssm_out"]) as seen, torch.no_grad():
        mixer(torch.randn(2, 33, 17, dtype=torch.float64))
        B, C = mixer.x_proj(seen["conv_out"])[..., mixer.dt_rank :].chunk(2, dim=-1)
        x, dt, B, C = (part.transpose(1, 2) for part in (seen["conv_out"], seen["dt"], B, C))
        y = peer.selective_scan_ref(x, dt, -mixer.A_log.exp(), B, C, mixer.D)
    assert error(seen["ssm_out"], y.transpose(1, 2).numpy()) <= 1e-10


def published_names():
    """Name here → name there, as docs/weights.md has it."""
    section = WEIGHTS.read_text().split("## `mamba`")[1]
    return dict(re.findall(r"^\| `(\S+)` \| `(\S+)`", section, flags=re.MULTILINE))
