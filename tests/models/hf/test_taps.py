"""Sites inside the mixers of transformers models hold the model's own tensors, and are live."""

import copy
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.tiny_transformers import CONFIGS, VOCABULARY, Tapped, build
from torch import nn

from mecheval.core.errors import InvalidInput
from mecheval.models.edits import add, put, zero
from mecheval.models.external import ExternalModel
from mecheval.models.hf.taps import KINDS, kind_of, place_taps
from mecheval.models.site import patch, record, sites

PAGE = (Path(__file__).parents[3] / "docs" / "hub-sites.md").read_text(encoding="utf-8")
QUICK = ("llama", "mamba2", "qwen3_next")
BATCH, TIME = 2, 6
ROUNDING = 5e-6  # of a path that is taken only while a site is used


def families(*names):
    return [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in names or CONFIGS
    ]


@cache
def tapped(family):
    return Tapped(family)


def draw(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCABULARY, (BATCH, TIME), generator=generator)


def padded():
    """A mask without the first two tokens of the first row."""
    mask = torch.ones(BATCH, TIME, dtype=torch.long)
    mask[0, :2] = 0
    return mask


@torch.no_grad()
def run(model, names, tokens, **options):
    with record(model, names) as seen:
        logits = model(tokens, **options)
    return seen, logits


def named(model, *ends):
    return [name for name in sites(model) if name.split(".")[-1] in ends]


@pytest.mark.parametrize("family", families())
def test_idle_sites_change_no_bit(family):
    plain, model = build(family), tapped(family)
    with torch.no_grad():
        for options in {}, {"attention_mask": padded()}:
            expected = plain(draw(0), use_cache=False, **options).logits
            assert torch.equal(model(draw(0), **options), expected)


@pytest.mark.parametrize("family", families())
def test_every_layer_has_sites_and_a_pass_meets_each_once(family):
    model = tapped(family)
    blocks = {name.split(".")[1] for name in sites(model)}
    assert len(blocks) == model.model.config.num_hidden_layers
    for name, site in sites(model).items():
        shapes = []
        with torch.no_grad(), patch(model, {name: lambda x, _, to=shapes: to.append(x.shape) or x}):
            model(draw(0))
        (shape,) = shapes
        assert len(shape) == len(site.axes), name
        assert (shape[0], shape[site.time]) == (BATCH, TIME), name


@pytest.mark.parametrize("family", families())
def test_own_values_change_nothing_and_those_of_another_document_do(family):
    model = tapped(family)
    for name in sites(model):
        (own, logits), (others, _) = (run(model, [name], draw(seed)) for seed in (0, 1))
        with torch.no_grad():
            with patch(model, {name: put(own[name])}):
                assert (model(draw(0)) - logits).abs().max() <= 1e-6, name
            with patch(model, {name: put(others[name])}):
                assert (model(draw(0)) - logits).abs().max() > 1e-5, name
            assert (model(draw(0)) - logits).abs().max() <= ROUNDING, name


@pytest.mark.parametrize("family", families())
def test_an_edit_at_a_token_is_felt_from_there_on(family):
    model, at = tapped(family), torch.full((BATCH,), 2)
    for name, site in sites(model).items():
        seen, logits = run(model, [name], draw(0))
        other = torch.rand(seen[name].select(site.time, 0).shape)
        with torch.no_grad(), patch(model, {name: add(other, at)}):
            change = (model(draw(0)) - logits).abs().amax(dim=(0, 2))
        assert change[:2].max() <= ROUNDING, name
        by_next = family == "rwkv" and name.endswith("state")  # a token reads what was before it
        assert change[3 if by_next else 2] > 1e-4, name
        if name.endswith("state"):
            assert change[3] > 1e-4, name


PROJECTIONS = {  # what is convolved, and by what
    "mamba": lambda mixer, x: (mixer.in_proj(x).chunk(2, dim=-1)[0], mixer.conv1d),
    "mamba2": lambda mixer, x: (
        mixer.in_proj(x).split([mixer.intermediate_size, mixer.conv_dim, mixer.num_heads], -1)[1],
        mixer.conv1d,
    ),
    "qwen3_next": lambda mixer, x: (
        torch.cat(
            [
                part.flatten(start_dim=2)
                for part in mixer.fix_query_key_value_ordering(
                    mixer.in_proj_qkvz(x), mixer.in_proj_ba(x)
                )[:3]
            ],
            dim=-1,
        ),
        mixer.conv1d,
    ),
    "kimi_linear": lambda mixer, x: (
        torch.cat([mixer.q_proj(x), mixer.k_proj(x), mixer.v_proj(x)], dim=-1),
        mixer.conv1d,
    ),
    "lfm2": lambda mixer, x: (
        mixer.in_proj(x).chunk(3, dim=-1)[0] * mixer.in_proj(x).chunk(3, dim=-1)[2],
        mixer.conv,
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("family", families(*PROJECTIONS))
def test_conv_out_is_the_convolution_of_the_projections(family):
    model, x = tapped(family), torch.randn(BATCH, TIME, 32)
    mixer = model.mixers[prefix := next(iter(model.mixers))]
    names = [name for name in sites(model) if name.endswith("conv_out") and prefix in name]
    with record(model, names) as seen:
        mixer(x)
    inputs, conv = PROJECTIONS[family](mixer, x)
    weights = conv.weight[:, 0].T  # (width, channel)
    before = torch.cat([torch.zeros_like(inputs[:, : len(weights) - 1]), inputs], dim=1)
    y = sum(before[:, j : j + TIME] * weight for j, weight in enumerate(weights))
    y = y if conv.bias is None else y + conv.bias
    y = y if family == "lfm2" else F.silu(y)
    together = torch.cat([seen[name].flatten(start_dim=2) for name in names], dim=-1)
    torch.testing.assert_close(together, y)


@torch.no_grad()
def test_query_and_head_out_are_those_of_the_weights():
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    model = tapped("llama")
    mixer, llama = model.model.model.layers[0].self_attn, model.model.model
    names = [f"blocks.0.self_attn.{name}" for name in ("query", "key", "value", "head_out")]
    seen, _ = run(model, names, draw(0))
    query, key, value, head_out = (seen[name] for name in names)
    x = llama.layers[0].input_layernorm(llama.embed_tokens(draw(0)))
    q, k = (p(x).view(BATCH, TIME, -1, 8).transpose(1, 2) for p in (mixer.q_proj, mixer.k_proj))
    q, k = apply_rotary_pos_emb(q, k, *llama.rotary_emb(x, torch.arange(TIME)[None]))
    torch.testing.assert_close(query, q.transpose(1, 2))
    torch.testing.assert_close(key, k.transpose(1, 2))
    torch.testing.assert_close(value.flatten(start_dim=2), mixer.v_proj(x))
    k, v = (y.repeat_interleave(2, dim=2) for y in (key, value))  # two heads share them
    logits = torch.einsum("bthd,bshd->bhts", query, k) / 8**0.5
    logits = logits.masked_fill(torch.ones(TIME, TIME).triu(1).bool(), -torch.inf)
    expected = torch.einsum("bhts,bshd->bthd", logits.softmax(dim=-1), v)
    torch.testing.assert_close(head_out, expected)


def cached_states(family, tokens):
    """What a model without sites keeps of some tokens, by layer, laid out as our states."""
    model = build(family)
    out, layers = model(tokens, use_cache=True), range(model.config.num_hidden_layers)
    if family == "rwkv":
        sums, weights, largest = (out.state[i] for i in (2, 3, 4))
        return dict(
            enumerate((torch.stack([sums, weights], -1) * largest[..., None].exp()).unbind(2))
        )
    if family == "recurrent_gemma":
        return {0: model.model.layers[0].temporal_block.rg_lru.recurrent_states}
    memory = out.get("past_key_values") or out.get("cache_params")
    if family == "minimax":
        return {0: memory.get_linear_cache(0)}
    kept = {i: memory.layers[i] for i in layers if hasattr(memory.layers[i], "recurrent_states")}
    states = {i: memory.get_recurrent_state(i, state_idx=0) for i in kept}
    transposed = "mamba2" in tapped(family).kinds.values()
    return {i: state.mT if transposed else state for i, state in states.items()}


KEEPING = ("mamba", "falcon_mamba", "jamba", "mamba2", "bamba", "nemotron_h", "falcon_h1", "zamba2")
KEEPING += ("qwen3_next", "olmo_hybrid", "kimi_linear", "minimax", "recurrent_gemma", "rwkv")


@torch.no_grad()
@pytest.mark.parametrize("family", families(*KEEPING, "granitemoehybrid"))
def test_the_state_after_a_token_is_what_the_model_would_keep(family):
    model = tapped(family)
    seen, _ = run(model, named(model, "state"), draw(0))
    for time in (2, TIME - 1):
        kept = cached_states(family, draw(0)[:, : time + 1])
        states = {int(name.split(".")[1]): state[:, time] for name, state in seen.items()}
        assert kept.keys() == states.keys()
        for layer, state in states.items():
            torch.testing.assert_close(state.float(), kept[layer], rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.slow
def test_the_state_of_mlstm_is_that_of_its_recurrent_form():
    model, name = tapped("xlstm"), "blocks.1.mlstm_layer."
    parts = ("query", "key", "value", "log_input", "log_decay", "state")
    seen, _ = run(model, [name + part for part in parts], draw(0))
    q, k, v, log_i, log_f, state = (seen[name + part].transpose(1, 2) for part in parts)
    module = sys.modules[type(build("xlstm")).__module__]
    fgate = -torch.log(torch.expm1(-log_f))  # whose log sigmoid is log f
    inputs = {"query": q, "key": k, "value": v, "igate": log_i, "fgate": fgate}
    _, (C, n, m) = module.mlstm_recurrent_sequence_native(**inputs, return_last_states=True)
    last = torch.cat([C, n[..., None]], dim=-1) * m[..., None].exp()
    torch.testing.assert_close(state[:, :, -1], last, rtol=1e-4, atol=1e-5)


ATTENTIVE = ("llama", "gpt2", "gpt_neox", "qwen3", "gemma2", "gemma3_text", "gpt_oss", "lfm2")
ATTENTIVE += ("kimi_linear", "recurrent_gemma", "olmo_hybrid", "qwen3_next", "zamba2")


@torch.no_grad()
@pytest.mark.parametrize("family", families(*ATTENTIVE))
def test_scores_are_the_weights_that_the_eager_form_returns(family):
    model, eager = tapped(family), build(family, "eager")
    for options in {}, {"attention_mask": padded()}:
        seen, _ = run(model, named(model, "scores"), draw(0), **options)
        returned = eager(draw(0), output_attentions=True, use_cache=False, **options).attentions
        returned = [weights for weights in returned if weights is not None and weights.dim() == 4]
        assert len(returned) == len(seen) > 0
        for scores, weights in zip(seen.values(), returned, strict=True):
            for row, start in enumerate((2, 0) if options else (0, 0)):  # padding reads anything
                torch.testing.assert_close(scores[row, :, start:], weights[row, :, start:])


VALUES = {"mamba2": "x_conv_out", "qwen3_next": "v_conv_out", "olmo_hybrid": "v_conv_out"}
VALUES |= {"mamba": "conv_out", "recurrent_gemma": "written", "rwkv": "value"}  # by channel
VALUES |= {"kimi_linear": "v_conv_out", "minimax": "value", "xlstm": "value"}


@torch.no_grad()
@pytest.mark.parametrize("family", families(*VALUES))
def test_mixing_times_the_values_is_what_the_heads_read(family):
    model = tapped(family)
    prefix = named(model, "mixing")[0].removesuffix("mixing")
    (read,) = {"head_out", "ssm_out", "lru_out", "wkv_out"} & {
        name.removeprefix(prefix) for name in sites(model) if name.startswith(prefix)
    }
    seen, _ = run(model, [prefix + name for name in ("mixing", VALUES[family], read)], draw(0))
    mixing, out = seen[prefix + "mixing"], seen[prefix + read]
    values = seen[prefix + VALUES[family]].reshape(BATCH, TIME, mixing.shape[1], -1)
    expected = torch.einsum("bhts,bshv->bthv", mixing.float(), values)
    if family == "xlstm":
        size = mixing.sum(dim=-1).abs().clamp(min=1).transpose(1, 2)
        expected = expected / size[..., None]
    torch.testing.assert_close(out, expected.reshape(out.shape), rtol=1e-4, atol=1e-5)
    assert (mixing.triu(1) == 0).all()


@pytest.mark.parametrize("family", families())
def test_an_external_model_takes_all_sites_at_once(family):
    model = ExternalModel(tapped(family))
    assert list(sites(model.module)) == list(sites(tapped(family)))


@pytest.mark.parametrize("family", families("llama", "mamba2", "qwen3_next", "kimi_linear"))
def test_edits_of_the_state_and_of_the_weights_add_up(family):
    model = tapped(family)
    names = named(model, "state", "mixing") or named(model, "query", "scores")
    first, second = names[:2]
    seen, logits = run(model, [first, second], draw(0))
    with torch.no_grad(), patch(model, {name: put(seen[name]) for name in (first, second)}):
        assert (model(draw(0)) - logits).abs().max() <= 1e-6


@pytest.mark.parametrize("family", families())
def test_gradients_are_those_of_the_model_whatever_is_recorded(family):
    plain, model = build(family).train(), Tapped(family).train()
    plain(draw(0), use_cache=False).logits.square().sum().backward()
    model(draw(0)).square().sum().backward()
    expected = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    for name, parameter in model.model.named_parameters():
        if name in expected:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=0, atol=0)
    model.zero_grad()
    with record(model, list(sites(model))):
        model(draw(0)).square().sum().backward()
    for name, parameter in model.model.named_parameters():
        if name in expected:
            size = expected[name].abs().max()
            assert (parameter.grad - expected[name]).abs().max() <= 1e-3 * size + 1e-5, name


@pytest.mark.parametrize("family", families("llama", "mamba2", "qwen3_next", "minimax", "xlstm"))
def test_nothing_of_the_module_changes_even_if_a_pass_fails(family):
    def fail(x, site):
        raise ZeroDivisionError

    plain = build(family)
    module = vars(sys.modules[type(plain).__module__])
    before = dict(module)
    model = Tapped(family)
    with pytest.raises(ZeroDivisionError), patch(model, dict.fromkeys(sites(model), fail)):
        model(draw(0))
    assert module == before
    assert not any(hasattr(part, "tapped_forward") for part in plain.modules())
    assert torch.equal(model(draw(0)), plain(draw(0), use_cache=False).logits)


@pytest.mark.parametrize("family", families())
def test_a_copy_has_sites_of_its_own(family):
    model = Tapped(family)
    model(draw(0)).sum().backward()
    copied = copy.deepcopy(model)
    seen, logits = run(copied, list(sites(copied)), draw(0))
    assert seen.keys() == sites(model).keys()
    with torch.no_grad(), patch(copied, {name: put(0 * x) for name, x in seen.items()}):
        assert not torch.allclose(copied(draw(0)), logits, atol=1e-3)
        torch.testing.assert_close(model(draw(0)), logits)


def test_a_module_with_two_names_is_refused():
    attention = build("llama").model.layers[0].self_attn
    with pytest.raises(InvalidInput, match="two are one module"):
        place_taps({"blocks.0.mixer": attention, "blocks.1.mixer": attention}, "llama")


def test_a_pass_with_a_cache_is_refused_while_a_site_is_used():
    model = tapped("llama")
    used = patch(model, {"blocks.1.self_attn.key": zero()})
    with used, pytest.raises(InvalidInput, match="use_cache=False"):
        model.model(draw(0), use_cache=True)
    with torch.no_grad():
        idle, plain = (m(draw(0), use_cache=True).logits for m in (model.model, build("llama")))
    assert torch.equal(idle, plain)


def test_attention_that_no_site_would_see_is_refused():
    model = build("gpt2", "eager")
    model.transformer.h[0].attn.reorder_and_upcast_attn = True
    with pytest.raises(InvalidInput, match=r"blocks.0.mixer of gpt2 .* attn_implementation='sdpa'"):
        place_taps({"blocks.0.mixer": model.transformer.h[0].attn}, "gpt2")


def test_a_mixer_of_another_kind_has_no_sites():
    assert kind_of(nn.Linear(2, 2)) is None
    assert place_taps({"blocks.0.mixer": nn.Linear(2, 2)}, "linear") == {}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_page_has_the_sites_of_a_kind(kind):
    (part,) = (part for part in PAGE.split("\n## ") if part.startswith(f"{kind.name}\n"))
    rows = set()
    for tap in kind.taps:
        for place in tap.places if tap.name != "o_proj" else ():  # others call it out_proj
            star = " *" if place.materialised else ""
            rows.add(f"| `{place.name}`{star} | {place.axes} | {place.about} | `{tap.name}` |")
    assert {line for line in part.splitlines() if line.startswith("| `")} == rows


@pytest.mark.parametrize("family", families())
def test_the_page_has_the_kinds_of_a_family(family):
    kinds = ", ".join(dict.fromkeys(tapped(family).kinds.values()))
    assert f"| `{family}` | {kinds} |" in PAGE
