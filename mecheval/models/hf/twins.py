"""Our architectures in transformers: what a twin there needs, its configuration, its weights.

A block's weights are given by their names there. Where a class there can do more than ours, the
part is neutral: an MLP that adds nothing, a gate of one, a convolution of one tap.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mecheval.models.language_model import LanguageModel

EPS = 1e-5  # of our norms
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Twin:
    """A class of transformers that computes what our model does.

    `block_needs` and `mixer_needs` are the options without which it does not. `config` takes the
    model and its first mixer, `outside` the model, `weights` a block; `blocks` is the path of the
    list of blocks there.
    """

    name: str
    block_needs: Mapping[str, Any]
    mixer_needs: Mapping[str, Any]
    config: Callable[[LanguageModel, Any], dict[str, Any]]
    outside: Callable[[LanguageModel], Weights]
    blocks: str
    weights: Callable[[Any], Weights]


def _gpt2_config(model: LanguageModel, mixer: Any) -> dict[str, Any]:
    return {
        "n_embd": mixer.d_model,
        "n_head": mixer.heads,
        "n_positions": model.config.max_len,
        "activation_function": "gelu",
        "layer_norm_epsilon": EPS,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    }


def _gpt2_weights(block: Any) -> Weights:
    """Return the weights of a block; GPT-2 stores matrices transposed, and has more biases."""
    mixer, mlp = block.mixer, block.mlp
    matrices = {
        "attn.c_attn": mixer.qkv_proj,
        "attn.c_proj": mixer.out_proj,
        "mlp.c_fc": mlp.fc1,
        "mlp.c_proj": mlp.fc2,
    }
    weights = {f"{name}.weight": layer.weight.T for name, layer in matrices.items()}
    weights |= {f"{name}.bias": _bias(layer) for name, layer in matrices.items()}
    return weights | _parameters(block, {"ln_1": "norm1", "ln_2": "norm2"})


def _llama_config(model: LanguageModel, mixer: Any) -> dict[str, Any]:
    return {
        "hidden_size": mixer.d_model,
        "intermediate_size": 4 * mixer.d_model,
        "num_attention_heads": mixer.heads,
        "num_key_value_heads": mixer.kv_heads or mixer.heads,
        "max_position_embeddings": model.config.max_len,
        "rope_parameters": {"rope_type": "default", "rope_theta": mixer.rotary_base},
        "rms_norm_eps": EPS,
        "hidden_act": "gelu",
        "attention_bias": True,
        "mlp_bias": True,
    }


def _llama_weights(block: Any) -> Weights:
    """Return the weights of a block; a gate of gelu whose other factor is one is our MLP."""
    mixer, mlp = block.mixer, block.mlp
    parts = mixer.qkv_proj.weight.split(mixer.part_widths["qkv_proj"])
    weights: Weights = {}
    for name, w in zip("qkv", parts, strict=True):
        weights[f"self_attn.{name}_proj.weight"] = w
        weights[f"self_attn.{name}_proj.bias"] = w.new_zeros(len(w))
    weights["mlp.up_proj.weight"] = torch.zeros_like(mlp.fc1.weight)
    weights["mlp.up_proj.bias"] = torch.ones_like(mlp.fc1.bias)
    linear = {"self_attn.o_proj": "mixer.out_proj", "mlp.gate_proj": "mlp.fc1"}
    linear |= {"mlp.down_proj": "mlp.fc2"}
    norms = {"input_layernorm": "norm1", "post_attention_layernorm": "norm2"}
    return weights | _parameters(block, linear | norms)


def _mamba_config(model: LanguageModel, mixer: Any) -> dict[str, Any]:
    return {
        "hidden_size": mixer.d_model,
        "state_size": mixer.d_state,
        "expand": mixer.expand,
        "conv_kernel": max(mixer.d_conv, 1),
        "layer_norm_epsilon": EPS,
        "use_mambapy": False,
    }


def _mamba_weights(block: Any) -> Weights:
    weights = _parameters(block, {"norm": "norm1", "mixer": "mixer"})
    weights = {name: w for name, w in weights.items() if ".conv." not in name}
    return weights | _conv("mixer", block.mixer, {"conv": len(block.mixer.D)})


def _mamba2_config(model: LanguageModel, mixer: Any) -> dict[str, Any]:
    sizes = {"num_heads": mixer.heads, "head_dim": mixer.head_dim, "n_groups": mixer.groups}
    return {**_mamba_config(model, mixer), **sizes}


def _mamba2_weights(block: Any) -> Weights:
    """Return the weights of a block, whose projections and convolutions are one each there."""
    w = block.mixer.state_dict()
    mixer = {
        "in_proj.weight": torch.cat([w[f"{name}_proj.weight"] for name in ("z", *"xBC", "dt")]),
        "norm.weight": w["o_norm.weight"],
        **{name: w[name] for name in ("dt_bias", "A_log", "D", "out_proj.weight")},
    }
    weights = {f"mixer.{name}": x for name, x in mixer.items()}
    widths = {f"{name}_conv": len(w[f"{name}_proj.weight"]) for name in "xBC"}
    return weights | _conv("mixer", block.mixer, widths) | _parameters(block, {"norm": "norm1"})


def _qwen3_next_config(model: LanguageModel, mixer: Any) -> dict[str, Any]:
    layers = range(len(model.blocks))
    return {
        "hidden_size": mixer.d_model,
        "layer_types": ["linear_attention" for _ in layers],
        "mlp_only_layers": list(layers),  # no experts
        "intermediate_size": 1,
        "linear_num_key_heads": mixer.heads,
        "linear_num_value_heads": mixer.heads,
        "linear_key_head_dim": mixer.d_key // mixer.heads,
        "linear_value_head_dim": mixer.d_value // mixer.heads,
        "linear_conv_kernel_dim": max(mixer.d_conv, 1),
        "rms_norm_eps": EPS,
        "max_position_embeddings": model.config.max_len,
    }


def _qwen3_next_weights(block: Any) -> Weights:
    """Return the weights of a block; there, projections lie interleaved by head."""
    w, heads = block.mixer.state_dict(), block.mixer.heads

    def by_head(*names: str) -> Tensor:
        parts = [w[f"{name}_proj.weight"].unflatten(0, (heads, -1)) for name in names]
        return torch.cat(parts, dim=1).flatten(end_dim=1)

    mixer = {
        "in_proj_qkvz.weight": by_head("q", "k", "v", "g"),
        "in_proj_ba.weight": by_head("b", "a"),
        "A_log": w["A_log"],
        "dt_bias": w["dt_bias"],
        "norm.weight": w["o_norm.weight"],
        "out_proj.weight": w["o_proj.weight"],
    }
    nothing = torch.zeros_like(block.norm1.weight)[None]
    weights = {f"linear_attn.{name}": x for name, x in mixer.items()}
    widths = {f"{name}_conv": len(w[f"{name}_proj.weight"]) for name in "qkv"}
    weights |= _conv("linear_attn", block.mixer, widths, bias=False)
    weights |= {f"mlp.{name}_proj.weight": nothing for name in ("gate", "up")}
    weights["mlp.down_proj.weight"] = nothing.T
    weights["input_layernorm.weight"] = block.norm1.weight - 1  # theirs adds one to the weight
    return {**weights, "post_attention_layernorm.weight": nothing[0]}


def _conv(there: str, mixer: Any, widths: Mapping[str, int], bias: bool = True) -> Weights:
    """Return several convolutions as the one that stands there; without any, one tap of one."""
    w = mixer.state_dict()
    if mixer.d_conv:
        weight = torch.cat([w[f"{name}.weight"] for name in widths])
        biases = torch.cat([w[f"{name}.bias"] for name in widths]) if bias else None
    else:
        weight = mixer.A_log.new_ones(sum(widths.values()), 1, 1)
        biases = torch.zeros_like(weight[:, 0, 0])
    weights = {f"{there}.conv1d.weight": weight}
    return weights | ({f"{there}.conv1d.bias": biases} if bias and biases is not None else {})


def _parameters(own: nn.Module, names: Mapping[str, str]) -> Weights:
    """Return every parameter of some of our modules, by the names of the modules there."""
    return {
        f"{there}.{name}": weight
        for there, here in names.items()
        for name, weight in own.get_submodule(here).state_dict().items()
    }


def _bias(layer: nn.Linear) -> Tensor:
    return layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias


def _in_model(model: LanguageModel) -> Weights:
    return _parameters(model, {"model.embed_tokens": "embedding", "model.norm": "norm"})


def _in_qwen3_next(model: LanguageModel) -> Weights:
    weights = _in_model(model)
    return {**weights, "model.norm.weight": weights["model.norm.weight"] - 1}


def _in_backbone(model: LanguageModel) -> Weights:
    names = {"backbone.embeddings": "embedding", "backbone.norm_f": "norm"}
    return _parameters(model, names)


def _in_transformer(model: LanguageModel) -> Weights:
    names = {"wte": "embedding", "wpe": "positions", "ln_f": "norm"}
    return _parameters(model, {f"transformer.{there}": here for there, here in names.items()})


_LAYER_NORM = {"sconv": "", "positions": True, "norm": "layer", "final_norm": "layer"}
_RMS_NORM = {"sconv": "", "positions": False, "norm": "rms", "final_norm": "rms"}
_SOFTMAX = {"window": 0, "qk_norm": False}
_MAMBA2 = {"groups": 1, **dict.fromkeys(("gate", "skip", "decay", "norm"), True)}
_DELTA = {"decay": "head", **dict.fromkeys(("delta", "beta", "gate", "norm"), True)}
_DELTA |= {"normaliser": False, "householders": 1, "neg_eigval": False}

TWINS = {  # by the name of the mixer; attention with rotary positions is "transformer"
    "attention": Twin(
        "GPT2",
        {**_LAYER_NORM, "mlp": True},
        {**_SOFTMAX, "kv_heads": 0},
        _gpt2_config,
        _in_transformer,
        "transformer.h",
        _gpt2_weights,
    ),
    "transformer": Twin(
        "Llama",
        {**_RMS_NORM, "mlp": True},
        _SOFTMAX,
        _llama_config,
        _in_model,
        "model.layers",
        _llama_weights,
    ),
    "mamba": Twin(
        "Mamba",
        {**_RMS_NORM, "mlp": False},
        {},
        _mamba_config,
        _in_backbone,
        "backbone.layers",
        _mamba_weights,
    ),
    "mamba2": Twin(
        "Mamba2",
        {**_RMS_NORM, "mlp": False},
        _MAMBA2,
        _mamba2_config,
        _in_backbone,
        "backbone.layers",
        _mamba2_weights,
    ),
    "gated_delta_net": Twin(
        "Qwen3Next",
        {**_RMS_NORM, "mlp": False},
        _DELTA,
        _qwen3_next_config,
        _in_qwen3_next,
        "model.layers",
        _qwen3_next_weights,
    ),
}
