"""Mixing weights against the mixers' outputs and equations, and in a model with known weights."""

import numpy as np
import pytest
import torch
from support.numpy_reference import Case, at_every_shape, numbers
from support.task_facts import relative_error
from torch import nn

from mecheval.core.errors import InterventionError, InvalidInput
from mecheval.interventions.token_mixing import token_mixing
from mecheval.metrics.statistics import middle, resampled
from mecheval.models import edits
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.models.layers import l2_normalise
from mecheval.models.mixers.attention import Attention
from mecheval.models.mixers.delta_net import DeltaNet
from mecheval.models.mixers.kda import KDA
from mecheval.models.mixers.linear_attention import LinearAttention
from mecheval.models.mixers.mamba import Mamba
from mecheval.models.mixers.rwkv7 import RWKV7
from mecheval.models.site import patch, record, sites
from mecheval.tasks import tasks

CASES = {
    Attention: at_every_shape(
        (1, {}), (6, {"heads": 3}), (8, {"heads": 8}), (4, {"heads": 2}, {"qkv_proj.weight": 4})
    ),
    LinearAttention: at_every_shape(
        (1, {}),
        (6, {"heads": 3}),
        (8, {"heads": 2, "feature_dim": 5}, {"q_proj.weight": 30, "k_proj.weight": 30}),
    ),
    DeltaNet: at_every_shape(
        (4, {}),
        (6, {"heads": 3, "d_conv": 0}),
        (8, {"heads": 2}, {"b_proj.weight": 100}),
        (1, {"d_conv": 0}),
    ),
    KDA: at_every_shape((4, {}), (8, {"heads": 2, "d_conv": 0}, {"b_proj.weight": 100})),
    RWKV7: at_every_shape((4, {}), (8, {"heads": 2, "shift": False}, {"w0": 30, "a0": 100})),
    Mamba: at_every_shape(
        (3, {"d_conv": 0}),
        (3, {}),
        (5, {"expand": 3, "d_state": 5, "backend": "torch"}),
        (4, {"d_state": 5}, {"dt_proj.bias": 10}),  # all is forgotten at once
        (4, {"d_state": 5}, {"dt_proj.bias": -100}),
        (4, {"d_state": 5}, {"dt_proj.weight": 300}),  # steps of 1e2 and of 1e-30 in one document
    ),
}
OUT = {kind: "ssm_out" if kind is Mamba else "head_out" for kind in CASES}
every_mixer = pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)


@torch.no_grad()
def mixed(mixer, x, site):
    """Return weights, values, and the activation at the site."""
    with record(mixer, [site]) as seen:
        mixer(x)
    return *mixer.mixing(x), seen[site]


@pytest.mark.slow
@every_mixer
def test_weights_times_values_are_what_the_mixer_reads_and_none_sees_the_future(kind):
    for case in CASES[kind]:
        mixer, x = case.draw(kind)
        weights, values, read = mixed(mixer.double(), x.double(), OUT[kind])
        found = torch.einsum("bhts,bshd->bthd", weights, values)
        assert relative_error(found.reshape(read.shape), read) <= 1e-12, case
        assert (weights.triu(1) == 0).all(), case


@pytest.mark.parametrize("kind", [Attention, LinearAttention], ids=lambda kind: kind.__name__)
def test_weights_of_attention_are_its_scores_positive_and_sum_to_1(kind):
    for case in CASES[kind]:
        mixer, x = case.draw(kind)
        weights, _, scores = mixed(mixer.double(), x.double(), "scores")
        assert torch.equal(weights, scores), case
        assert (weights >= 0).all(), case
        # linear attention divides by its sum, which is ½ or more, and 1e-12
        assert (weights.sum(dim=-1) - 1).abs().max() <= 2.1e-12, case


def test_weights_of_the_delta_rule_are_its_recurrence_unrolled():
    """o_t = Σ_s q_tᵀ (I − β_t k_t k_tᵀ) … (I − β_{s+1} k_{s+1} k_{s+1}ᵀ) k_s β_s v_s"""
    for case in [case for case in CASES[DeltaNet] if case.time in (1, 3, 17)]:
        mixer, x = case.draw(DeltaNet)
        with record(mixer.double(), ["q_conv_out", "k_conv_out", "beta"]) as seen:
            weights, _ = mixer.mixing(x.double())
        q, k = (
            l2_normalise(seen[f"{name}_conv_out"].unflatten(-1, (mixer.heads, -1))).detach()
            for name in "qk"
        )
        beta, exact = seen["beta"].detach().numpy(), np.zeros(weights.shape)
        for b, h, t, s in np.ndindex(*weights.shape):
            read = q[b, t, h].numpy() / np.sqrt(q.shape[-1])
            for r in range(t, s, -1):
                read = read - beta[b, r, h] * (read @ k[b, r, h].numpy()) * k[b, r, h].numpy()
            exact[b, h, t, s] = beta[b, s, h] * (read @ k[b, s, h].numpy()) if s <= t else 0
        assert relative_error(weights, exact) <= 1e-12, case


def test_weights_of_mamba_are_its_recurrence_unrolled():
    """y_t = Σ_s Σ_n C_tn exp(A_n Σ_{s<r≤t} dt_r) dt_s B_sn x_s + D x_t"""
    steps = []
    for case in [case for case in CASES[Mamba] if case.time in (1, 3, 17)]:
        mixer, x = case.draw(Mamba)
        with record(mixer.double(), ["conv_out", "dt"]) as seen:
            weights, values = mixer.mixing(x.double())
        assert torch.equal(values[..., 0], seen["conv_out"])
        w, dt = numbers(mixer), seen["dt"].detach().numpy()
        B, C = np.split(
            (seen["conv_out"].detach().numpy() @ w["x_proj.weight"].T)[..., mixer.dt_rank :],
            2,
            axis=-1,
        )
        A, exact = -np.exp(w["A_log"]), np.zeros(weights.shape)
        for b, c, t, s in np.ndindex(*weights.shape):
            kept = np.exp(A[c] * dt[b, s + 1 : t + 1, c].sum())
            exact[b, c, t, s] = (C[b, t] * kept * B[b, s]).sum() * dt[b, s, c] if s <= t else 0
            exact[b, c, t, s] += w["D"][c] if s == t else 0
        assert relative_error(weights, exact) <= 1e-12, case
        steps.append(dt.ravel())
    assert np.concatenate(steps).min() < 1e-30
    assert np.concatenate(steps).max() > 30


@pytest.mark.parametrize(
    ("kind", "site"),
    [
        (Attention, "query"),
        (Attention, "scores"),
        (LinearAttention, "key"),
        (DeltaNet, "beta"),
        (Mamba, "dt"),
    ],
)
def test_an_edit_inside_the_mixer_is_in_the_weights(kind, site):
    mixer, x = Case(2, 9, 4, {}).draw(kind)
    before, _ = mixer.double().mixing(x.double())
    with patch(mixer, {site: edits.zero(torch.tensor([4, 6]))}):
        weights, values, read = mixed(mixer, x.double(), OUT[kind])
    assert (
        relative_error(torch.einsum("bhts,bshd->bthd", weights, values).reshape(read.shape), read)
        <= 1e-12
    )
    assert relative_error(weights, before) > 1e-3


RECALL = tasks.build("recall:pairs=4,vocab=16")


def reading_back() -> LanguageModel:
    """Return attention whose head 0 reads the token before, and head 1 the token itself."""
    model = LanguageModel(
        ModelConfig(architecture="attention:heads=2", d_model=32, layers=1, max_len=16), 19
    )
    block, steps = model.blocks[0], torch.eye(16)
    block.norm1 = nn.Identity()
    with torch.no_grad():
        model.embedding.weight.zero_()
        model.positions.weight.copy_(torch.cat([steps, 0 * steps], dim=1))
        before, own = steps.roll(1, dims=1), steps  # as matrices: e_t ↦ e_{t−1}, and e_t ↦ e_t
        q, k = 1e3 * torch.cat([before, own]), torch.cat([steps, steps])
        block.mixer.qkv_proj.weight[:64] = torch.cat(
            [torch.cat([part, 0 * part], dim=1) for part in (q, k)]
        )
    return model


def test_a_head_that_reads_the_token_before_has_its_weight_there():
    roles = ("bos", "key", "value", "next_key", "divider", "query", "value+1", "@0")
    places = (*roles, "value-1", "query-2")
    model = reading_back()
    found = token_mixing(model, RECALL, documents=50, from_roles=roles, to_roles=places)
    docs = RECALL.documents(0, "test", 0, 50)
    where = {name: docs.roles[name] for name in docs.roles}
    where |= {"value+1": where["value"] + 1, "@0": 0 * where["key"], "value-1": where["value"] - 1}
    where |= {"query-2": where["query"] - 2}
    for row in found.rows():
        here, there = where[row.from_role], where[row.to_role]
        aim = np.maximum(here - 1, 0) if row.head == 0 else here
        expected = (
            (there == aim).mean() if row.from_role not in ("bos", "@0") else (there == 0).mean()
        )
        assert row.weight == pytest.approx(expected, abs=1e-6), row
        assert row.share == pytest.approx(expected, abs=1e-6), row
        assert (row.layer, row.n) == (0, 50)
        assert row.low - 1e-6 <= row.weight <= row.high + 1e-6
    assert len(found.rows()) == 2 * len(roles) * len(places)
    assert found.weights[0].shape == (50, 2, len(roles), len(places))


SETTINGS = [
    ("attention:heads=2", "recall:pairs=4,vocab=16"),
    ("based:feature_dim=3", "recall:pairs=6,vocab=16,min_pairs=2"),
    ("delta_net:heads=2", "recall:pairs=4,vocab=16,queries=2"),
    ("mamba:d_state=3", "recall:pairs=6,vocab=16,min_pairs=2"),
    ("attention", "treecall:terminals=8,nonterminals=3,max_len=24"),
    ("mamba:d_state=3", "treecall:terminals=8,nonterminals=3,max_len=24"),
]
every_setting = pytest.mark.parametrize(("architecture", "task"), SETTINGS)


def drawn(architecture, task):
    built = tasks.build(task)
    config = ModelConfig(
        architecture=architecture, d_model=8, max_len=32, init_linear=10.0, init_embedding=20.0
    )
    return LanguageModel(config, built.vocab_size, seed=1).double(), built


@every_setting
def test_what_is_seen_is_what_the_weights_of_each_document_say(architecture, task):
    model, task = drawn(architecture, task)
    found = token_mixing(
        model, task, documents=13, seed=3, split="dev", to_roles=("bos", "key", "value+1", "query")
    )
    docs = task.documents(3, "dev", 0, 13)
    assert set(found.weights) | set(found.without_weights) == {0, 1}
    for layer in found.weights:
        for i in range(13):
            name = f"blocks.{layer}.mixer_in"
            with record(model, [name]) as seen, torch.no_grad():
                model(torch.from_numpy(docs.tokens[i : i + 1, : docs.lengths[i]]).long())
                weights = model.blocks[layer].mixer.mixing(seen[name])[0][0].numpy()
            here = [int(docs.roles[role][i]) for role in ("query", "value")]
            there = [
                0,
                *(
                    int(docs.roles[role][i]) + step
                    for role, step in (("key", 0), ("value", 1), ("query", 0))
                ),
            ]
            exact = weights[:, here][:, :, there]
            shares = np.abs(exact) / np.abs(weights[:, here]).sum(axis=-1, keepdims=True)
            np.testing.assert_allclose(found.weights[layer][i], exact, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found.shares[layer][i], shares, rtol=1e-9, atol=1e-12)
            assert (np.abs(shares).max(axis=(0, 2)) > 0).all()


@every_setting
def test_it_does_not_matter_where_blocks_end_and_nothing_is_left_behind(architecture, task):
    model, task = drawn(architecture, task)
    whole, again = (token_mixing(model, task, documents=13) for _ in range(2))
    for memory in (1, 20_000):
        parts = token_mixing(model, task, documents=13, memory=memory)
        for layer, weights in whole.weights.items():
            assert np.array_equal(again.weights[layer], weights)
            np.testing.assert_allclose(parts.weights[layer], weights, rtol=1e-9, atol=1e-13)
            np.testing.assert_allclose(
                parts.shares[layer], whole.shares[layer], rtol=1e-9, atol=1e-13
            )
    assert not any(site.used for site in sites(model).values())


def test_rows_are_means_over_the_documents_that_have_both_tokens_and_intervals_those_of_the_means():
    model, task = drawn("delta_net:heads=2", "recall:pairs=4,vocab=16")
    found = token_mixing(
        model,
        task,
        documents=60,
        from_roles=("query", "value-3", "query+1"),
        to_roles=("key", "key-2"),
    )
    inside = task.documents(0, "test", 0, 60).roles["value"] >= 3
    assert 0 < inside.sum() < 60
    by_name = {(row.layer, row.head, row.from_role, row.to_role): row for row in found.rows()}
    assert {key[2] for key in by_name} == {"query", "value-3"}
    for (layer, head, start, end), row in by_name.items():
        i, j = found.from_roles.index(start), found.to_roles.index(end)
        values = found.weights[layer][:, head, i, j]
        there = inside if "-" in start + end else np.ones(60, bool)
        assert np.array_equal(np.isnan(values), ~there)
        assert row.n == there.sum()
        assert row.weight == pytest.approx(values[there].mean())
        assert row.share == pytest.approx(found.shares[layer][there, head, i, j].mean())
        assert (row.low, row.high) == pytest.approx(middle(resampled(values)))


def test_layers_whose_mixers_define_no_mixing_are_left_out_and_listed():
    model, task = drawn("based", "recall:pairs=4,vocab=16")
    found = token_mixing(model, task, documents=5)
    assert found.without_weights == (0,)
    assert {row.layer for row in found.rows()} == {1}


@pytest.mark.parametrize(
    ("architecture", "options", "line"),
    [
        ("hyena", {}, "architecture=hyena has no mixer that defines `mixing`"),
        ("attention", {"documents": 0}, "documents=0"),
        ("attention", {"to_roles": ()}, "to_roles=() must not be empty"),
        ("attention", {"from_roles": ("qeury",)}, "did you mean 'query'?"),
    ],
)
def test_what_cannot_be_meant_is_refused(architecture, options, line):
    model, task = drawn(architecture, "recall:pairs=4,vocab=16")
    with pytest.raises(InvalidInput) as error:
        token_mixing(model, task, **options)
    assert line in str(error.value)


def test_a_model_that_is_not_finite_has_no_mixing_weights():
    model, task = drawn("attention", "recall:pairs=4,vocab=16")
    with torch.no_grad():
        model.blocks[1].mixer.qkv_proj.weight[0, 0] = torch.nan
    with pytest.raises(InterventionError, match="mixing weights of layer 1 are not finite"):
        token_mixing(model, task, documents=4)
