"""Sites inside the mixers of transformers models hold what is computed from their weights."""

import sys

import pytest
import torch
import torch.nn.functional as F
from support.tiny_transformers import BATCH, TIME, build, draw, families, named, padded, run, tapped

from mecheval.models.site import record, sites


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


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
