"""Mamba agrees with its recurrence, written in numpy, and with other packages."""

import math

import numpy as np
import pytest
import torch
from support.mixer_variants import table
from support.numpy_reference import (
    Case,
    assert_agreement,
    assert_built_from,
    at_every_shape,
    convolve,
    numbers,
    recorded,
    silu,
)
from support.task_facts import relative_error

from mecheval.models.mixers.mamba import Mamba
from mecheval.models.ops.selective_scan import selective_scan_ref
from mecheval.models.ops.short_conv import short_conv_silu_ref
from mecheval.models.site import record

CASES = at_every_shape(
    (3, {"d_conv": 1}),
    (3, {"d_conv": 2}),
    (65, {"d_conv": 3, "expand": 1, "d_state": 2}),  # the kernel takes channels 64 at a time
    (5, {"expand": 3}),
    (1, {"d_state": 1}),
    (17, {"d_state": 5, "backend": "torch"}),
    (3, {"d_state": 5, "backend": "numba"}),
    (4, {"d_state": 5}, {"dt_proj.bias": 10}),
    (4, {"d_state": 5}, {"dt_proj.bias": -100}),
)
WITHOUT_CONVOLUTION = at_every_shape((3, {"d_conv": 0}))  # not in other packages


def reference(w, x):
    d_inner, d_state = w["A_log"].shape
    dt_rank = math.ceil(x.shape[-1] / 16)
    y, states = np.empty_like(x), np.empty((*x.shape[:2], d_inner, d_state))
    for b in range(len(x)):
        stream, gate = np.split(x[b] @ w["in_proj.weight"].T, 2, axis=1)
        if "conv.weight" in w:  # its last tap is on the present token
            stream = convolve(stream, w["conv.weight"][:, 0, ::-1].T) + w["conv.bias"]
        h = np.zeros((d_inner, d_state))
        for t, u in enumerate(silu(stream)):
            selected = w["x_proj.weight"] @ u
            low, B, C = (
                selected[:dt_rank],
                selected[dt_rank : dt_rank + d_state],
                selected[dt_rank + d_state :],
            )
            dt = np.logaddexp(0, w["dt_proj.weight"] @ low + w["dt_proj.bias"])
            h = np.exp(-dt[:, None] * np.exp(w["A_log"])) * h + np.outer(dt * u, B)
            states[b, t] = h
            y[b, t] = w["out_proj.weight"] @ ((h @ C + w["D"] * u) * silu(gate[t]))
    return y, states


def test_the_output_is_the_recurrence():
    for case in CASES + WITHOUT_CONVOLUTION:
        mixer, x = case.draw(Mamba)
        y, states = reference(numbers(mixer), x.double().numpy())
        assert_agreement(case, mixer, x, y, state=states)


@pytest.mark.slow
def test_it_equals_the_mixer_built_from_plain_ops():
    twins = {
        "layers.short_conv_silu": short_conv_silu_ref,
        "mixers.mamba.selective_scan": selective_scan_ref,
    }
    assert_built_from(twins, Mamba, CASES + WITHOUT_CONVOLUTION)


def test_some_cases_decay_to_0_and_some_not_at_all():
    decays = torch.cat([torch.exp(-dt.flatten()) for dt in recorded("dt", Mamba, CASES)])
    assert float(decays.min()) == 0
    assert float(decays.max()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("package", ["transformers", "mambapy"])
def test_the_same_weights_give_the_same_output_in(package):
    build = {"transformers": in_transformers, "mambapy": in_mambapy}[package]
    names = {here: there for here, there, *_ in table("mamba")}
    for case in CASES:
        mixer, x = case.draw(Mamba)
        peer = build(case.d_model, **case.options)
        peer.load_state_dict({there: mixer.get_parameter(here) for here, there in names.items()})
        with pytest.MonkeyPatch.context() as patch, torch.no_grad():
            patch.setattr(
                torch.Tensor, "float", torch.Tensor.double
            )  # both would compute in float32
            truth = peer.double().eval()(x.double())
        assert_agreement(case, mixer, x, truth.numpy())


def in_transformers(d_model, d_state=16, expand=2, d_conv=4, backend=None):
    reason = "transformers is not installed: pip install mecheval[oracles]"
    modeling = pytest.importorskip("transformers.models.mamba.modeling_mamba", reason=reason)
    sizes = {"hidden_size": d_model, "state_size": d_state, "expand": expand, "conv_kernel": d_conv}
    return modeling.MambaMixer(
        modeling.MambaConfig(**sizes, num_hidden_layers=1, use_mambapy=False), layer_idx=0
    )


def in_mambapy(d_model, d_state=16, expand=2, d_conv=4, backend=None):
    mambapy = pytest.importorskip(
        "mambapy.mamba", reason="mambapy is not installed: pip install mecheval[oracles]"
    )
    sizes = {"d_model": d_model, "d_state": d_state, "expand_factor": expand, "d_conv": d_conv}
    return mambapy.MambaBlock(mambapy.MambaConfig(**sizes, n_layers=1))


def test_the_scan_agrees_with_mamba_ssms_reference(monkeypatch):
    reason = "needs mamba-ssm and triton"
    peer = pytest.importorskip(
        "mamba_ssm.ops.selective_scan_interface", reason=reason, exc_type=ImportError
    )
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # it would compute in float32
    mixer, x = Case(2, 33, 17, {}).draw(Mamba)
    with record(mixer.double(), ["conv_out", "dt", "ssm_out"]) as seen, torch.no_grad():
        mixer(x.double())
        B, C = mixer.x_proj(seen["conv_out"])[..., mixer.dt_rank :].chunk(2, dim=-1)
        x, dt, B, C = (part.transpose(1, 2) for part in (seen["conv_out"], seen["dt"], B, C))
        y = peer.selective_scan_ref(x, dt, -mixer.A_log.exp(), B, C, mixer.D)
    assert relative_error(seen["ssm_out"], y.transpose(1, 2)) <= 1e-10
