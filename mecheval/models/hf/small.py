"""The configuration of a small model of each family, for `hf-config:FAMILY`.

A model of width 64 with two layers has less than a million weights. Every `attention_every`-th
layer of a hybrid has full attention. Dropout is off, and no token is special.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from mecheval.models.hf.options import SmallOptions as Sizes

Fields = dict[str, Any]
CHUNK = 32  # tokens that the chunked scans pad a document to
# transformers 5 sets these to zero, as it does gates: the name contains "gate". The MLP would
# begin without an effect, and its input could not be intervened on.
DRAWN_AGAIN = {"xlstm": "ffn.proj_up_gate.weight"}


def fields_of(sizes: Sizes) -> tuple[str, Fields]:
    """Return the model type of a family in transformers, and the fields of its configuration."""
    model_type, fields = SIZES[sizes.family]
    tokens = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    return model_type, {**tokens, "vocab_size": sizes.vocab_size, **fields(sizes)}


def _common(s: Sizes) -> Fields:
    return {
        "hidden_size": s.d_model,
        "num_hidden_layers": s.layers,
        "intermediate_size": 4 * s.d_model,
        "num_attention_heads": s.n_heads,
        "num_key_value_heads": s.n_kv_heads,
        "max_position_embeddings": s.max_len,
    }


def _with_head(s: Sizes) -> Fields:
    return {**_common(s), "head_dim": s.d_head}


def _gpt2(s: Sizes) -> Fields:
    sizes = {
        "n_embd": s.d_model,
        "n_layer": s.layers,
        "n_head": s.n_heads,
        "n_positions": s.max_len,
    }
    return {**sizes, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def _gemma3(s: Sizes) -> Fields:
    window = {"sliding_window": max(s.max_len // 2, 2), "query_pre_attn_scalar": s.d_head}
    return {**_with_head(s), **window, "layer_types": s.pattern("sliding_attention")}


def _mamba(s: Sizes) -> Fields:
    sizes = {"hidden_size": s.d_model, "num_hidden_layers": s.layers, "state_size": s.state}
    return {**sizes, "residual_in_fp32": False}


def _mamba2(s: Sizes) -> Fields:
    heads = {"num_heads": 2 * s.n_heads, "head_dim": s.d_head, "n_groups": 1, "chunk_size": CHUNK}
    return {**_mamba(s), **heads}


def _rwkv(s: Sizes) -> Fields:
    sizes = {"hidden_size": s.d_model, "num_hidden_layers": s.layers, "context_length": s.max_len}
    return {**sizes, "rescale_every": 0}


def _recurrent_gemma(s: Sizes) -> Fields:
    fields = {**_common(s), "attention_window_size": s.max_len}
    del fields["max_position_embeddings"]
    return {**fields, "block_types": s.pattern("recurrent", "attention")}


def _xlstm(s: Sizes) -> Fields:
    sizes = {"hidden_size": s.d_model, "num_hidden_layers": s.layers, "num_heads": s.n_heads}
    return {**sizes, "autocast_kernel_dtype": "float32"}


def _jamba(s: Sizes) -> Fields:
    every = {"attn_layer_period": s.attention_every, "attn_layer_offset": s.attention_every - 1}
    mamba = {"mamba_d_state": s.state, "num_experts": s.experts, "num_experts_per_tok": 2}
    return {**_common(s), **every, **mamba}


def _mamba2_inside(s: Sizes) -> Fields:
    heads = {"mamba_n_heads": 2 * s.n_heads, "mamba_d_head": s.d_head, "mamba_n_groups": 1}
    return {**_common(s), **heads, "mamba_d_state": s.state, "mamba_chunk_size": CHUNK}


def _bamba(s: Sizes) -> Fields:
    kinds = s.pattern("mamba2")
    attention = [layer for layer, kind in enumerate(kinds) if kind == "full_attention"]
    return {**_mamba2_inside(s), "attn_layer_indices": attention}


def _falcon_h1(s: Sizes) -> Fields:
    return {**_mamba2_inside(s), "mamba_d_ssm": 2 * s.d_model}


def _zamba2(s: Sizes) -> Fields:
    kinds = s.pattern("linear_attention", "hybrid")
    mamba = {"n_mamba_heads": 2 * s.n_heads, "mamba_d_state": s.state, "chunk_size": CHUNK}
    return {**_common(s), **mamba, "layers_block_type": kinds, "adapter_rank": 8}


def _nemotron_h(s: Sizes) -> Fields:
    mamba = {"mamba_num_heads": 2 * s.n_heads, "mamba_head_dim": s.d_head, "n_groups": 1}
    fields = {**_with_head(s), **mamba, "ssm_state_size": s.state, "chunk_size": CHUNK}
    del fields["num_hidden_layers"]
    kinds = s.pattern("linear_attention")
    if s.layers >= 2 * s.attention_every:  # there is room for MLPs, each a block of its own
        kinds = [kind for mixer in kinds for kind in (mixer, "mlp")][: s.layers]
    return {**fields, "layer_types": kinds}


def _linear_heads(s: Sizes) -> Fields:
    """Return the sizes of gated delta rules: as many heads as attention, of the same width."""
    heads = {"linear_num_key_heads": s.n_heads, "linear_num_value_heads": s.n_heads}
    return {**heads, "linear_key_head_dim": s.d_head, "linear_value_head_dim": s.d_head}


def _qwen3_next(s: Sizes) -> Fields:
    moe = {"num_experts": s.experts, "num_experts_per_tok": 2}
    width = {"moe_intermediate_size": s.d_model, "shared_expert_intermediate_size": s.d_model}
    kinds = {"layer_types": s.pattern("linear_attention")}
    return {**_with_head(s), **_linear_heads(s), **moe, **width, **kinds}


def _olmo_hybrid(s: Sizes) -> Fields:
    return {**_common(s), **_linear_heads(s), "layer_types": s.pattern("linear_attention")}


def _kimi_linear(s: Sizes) -> Fields:
    heads = {"linear_head_dim": s.d_head, "linear_num_heads": s.n_heads, "v_head_dim": s.d_head}
    latent = {"kv_lora_rank": s.d_model // 2, "qk_rope_head_dim": s.d_head // 2}
    moe = {"num_local_experts": s.experts, "num_experts_per_tok": 2}
    rest = {"qk_nope_head_dim": s.d_head // 2, "moe_intermediate_size": s.d_model}
    kinds = {"layer_types": s.pattern("linear_attention")}
    return {**_common(s), **heads, **latent, **moe, **rest, **kinds}


def _minimax(s: Sizes) -> Fields:
    moe = {"num_local_experts": s.experts, "num_experts_per_tok": 2, "block_size": CHUNK}
    return {**_with_head(s), **moe, "layer_types": s.pattern("linear_attention")}


def _lfm2(s: Sizes) -> Fields:
    width = {"block_auto_adjust_ff_dim": False}
    return {**_common(s), **width, "layer_types": s.pattern("conv")}


SIZES: dict[str, tuple[str, Callable[[Sizes], Fields]]] = {
    "gpt2": ("gpt2", _gpt2),
    "gpt_neox": ("gpt_neox", _common),
    "llama": ("llama", _common),
    "qwen3": ("qwen3", _with_head),
    "gemma3": ("gemma3_text", _gemma3),
    "mamba": ("mamba", _mamba),
    "mamba2": ("mamba2", _mamba2),
    "falcon_mamba": ("falcon_mamba", _mamba),
    "rwkv": ("rwkv", _rwkv),
    "xlstm": ("xlstm", _xlstm),
    "recurrent_gemma": ("recurrent_gemma", _recurrent_gemma),
    "jamba": ("jamba", _jamba),
    "zamba2": ("zamba2", _zamba2),
    "bamba": ("bamba", _bamba),
    "falcon_h1": ("falcon_h1", _falcon_h1),
    "nemotron_h": ("nemotron_h", _nemotron_h),
    "qwen3_next": ("qwen3_next", _qwen3_next),
    "kimi_linear": ("kimi_linear", _kimi_linear),
    "olmo_hybrid": ("olmo_hybrid", _olmo_hybrid),
    "minimax": ("minimax", _minimax),
    "lfm2": ("lfm2", _lfm2),
}


def build_small(**options: Any) -> nn.Module:
    """Build a random small model of a family."""
    from mecheval.models.hf.locate import import_transformers
    from mecheval.models.hf.model import HubModel

    transformers = import_transformers()
    model_type, fields = fields_of(Sizes(**options))
    config = transformers.AutoConfig.for_model(model_type, **fields)
    module = transformers.AutoModelForCausalLM.from_config(config)
    for name, weight in module.named_parameters():
        if model_type in DRAWN_AGAIN and name.endswith(DRAWN_AGAIN[model_type]):
            nn.init.normal_(weight, std=math.sqrt(2 / (5 * weight.shape[1])))
    return HubModel(module.float(), f"hf-config:{options['family']}")
