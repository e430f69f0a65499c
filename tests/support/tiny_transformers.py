"""Random transformers models of every family, small enough for a test."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from mecheval.models.external import add_site
from mecheval.models.hf.taps import kind_of, place_taps
from mecheval.models.site import record, sites

VOCABULARY = 24
QUICK = ("llama", "mamba2", "qwen3_next")
BATCH, TIME = 2, 6
STREAM = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
MLP = {"intermediate_size": 48}
SSM = {"mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2}
SSM2 = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_chunk_size": 4, **SSM}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1}
NO_DROPOUT = {"attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0}
LINEAR, FULL = "linear_attention", "full_attention"

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": HEADS | MLP,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **NO_DROPOUT},
    "gpt_neox": {"num_attention_heads": 4} | MLP,
    "qwen3": HEADS | MLP,
    "gemma3_text": HEADS
    | MLP
    | {"sliding_window": 3, "layer_types": ["sliding_attention", FULL], "query_pre_attn_scalar": 8},
    "mamba": {"state_size": 8, "time_step_rank": 4},
    "falcon_mamba": {"state_size": 8, "time_step_rank": 4},
    "mamba2": {"state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 2, "chunk_size": 4},
    "rwkv": {"attention_hidden_size": 32, "rescale_every": 0},
    "gemma2": HEADS | MLP | {"sliding_window": 3, "query_pre_attn_scalar": 8},
    "gpt_oss": HEADS
    | MLP
    | {"sliding_window": 3, "num_local_experts": 2, "num_experts_per_tok": 1},
    "zamba": {
        "num_hidden_layers": 5,
        "attention_hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "attention_head_dim": 16,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_dt_rank": 4,
        "n_mamba_heads": 2,
    }
    | MLP
    | SSM,
    "granitemoehybrid": HEADS
    | MLP
    | SSM2
    | {
        "layer_types": ["mamba", "attention"],
        "num_local_experts": 0,
        "shared_intermediate_size": 48,
    },
    "recurrent_gemma": HEADS
    | MLP
    | {"lru_width": 32, "attention_window_size": 16, "block_types": ["recurrent", "attention"]},
    "xlstm": {"num_heads": 4, "num_blocks": 2, "chunk_size": 16, "qk_dim_factor": 1.0},
    "jamba": HEADS
    | MLP
    | EXPERTS
    | SSM
    | {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4},
    "zamba2": HEADS
    | MLP
    | {
        "num_hidden_layers": 4,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "hybrid_layer_ids": [1, 3],
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "num_mem_blocks": 1,
        "mamba_ngroups": 1,
        "n_mamba_heads": 4,
        "mamba_d_state": 8,
        "mamba_expand": 2,
        "chunk_size": 4,
        "num_key_value_heads": 4,
    },
    "bamba": HEADS | MLP | SSM2 | {"attn_layer_indices": [1]},
    "falcon_h1": HEADS | MLP | SSM2 | {"mamba_d_ssm": 64},
    "nemotron_h": HEADS
    | MLP
    | {
        "layers_block_type": ["mamba", "attention"],
        "ssm_state_size": 8,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "chunk_size": 4,
    },
    "qwen3_next": HEADS
    | MLP
    | DELTA
    | EXPERTS
    | {
        "layer_types": [LINEAR, FULL],
        "mlp_only_layers": [0, 1],
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
    "kimi_linear": MLP
    | EXPERTS
    | {
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "layer_types": [LINEAR, FULL],
        "linear_num_heads": 4,
        "linear_head_dim": 8,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "q_lora_rank": None,
        "first_k_dense_replace": 2,
        "moe_intermediate_size": 16,
        "n_routed_experts": 2,
    },
    "olmo_hybrid": HEADS | MLP | DELTA | {"layer_types": [LINEAR, FULL]},
    "minimax": HEADS
    | MLP
    | {
        "layer_types": [LINEAR, FULL],
        "block_size": 4,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
    },
    "lfm2": HEADS | MLP | {"layer_types": ["conv", FULL], "conv_L_cache": 3},
}


def build(family: str, attention: str | None = None) -> nn.Module:
    """Return a model of a family with random weights, in float32, that computes without a cache."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()  # of kernels that are not installed
    torch.manual_seed(0)
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    options = STREAM | CONFIGS[family] | special
    config = AutoConfig.for_model(family, **options, use_cache=False)
    config._attn_implementation = attention
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.set_experts_implementation("eager")  # the grouped product has no float64
    with torch.no_grad():  # far from 0, so that every path matters
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)
            elif name.endswith("dt_bias") or name.endswith("dt_proj.bias"):
                parameter.uniform_(-1, 1)
    return model.eval()


def mixers_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return every module with a kind by `blocks.LAYER.NAME`."""
    found = {}
    for path, module in model.named_modules():
        layer = [part for part in path.split(".") if part.isdigit()]
        if layer and kind_of(module) is not None:
            found[f"blocks.{layer[0]}.{path.split('.')[-1]}"] = module
    return found


class Tapped(nn.Module):
    """A model whose sites are found by name."""

    def __init__(self, family: str, attention: str | None = None) -> None:
        super().__init__()
        self.model = build(family, attention)
        self.mixers = mixers_of(self.model)
        self.kinds = {name: kind_of(mixer).name for name, mixer in self.mixers.items()}
        for name, site in place_taps(self.mixers, family).items():
            add_site(self, name, site)

    def forward(self, tokens: torch.Tensor, **options: Any) -> torch.Tensor:
        return self.model(tokens, use_cache=False, **options).logits


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
