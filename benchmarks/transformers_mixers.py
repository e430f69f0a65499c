"""The mixers of transformers in the blocks of our models, in the sizes of ours.

They are torch modules without compiled kernels. Weights are their own: a speed does not depend on
them. The tests of our mixers carry weights and compare outputs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.rivals import Missing, load_modeling
from mecheval.models.language_model import LanguageModel

# transformers leaves these empty until a whole model of theirs is built
LEFT_EMPTY = ("A_log", "dt_bias", "D", "recurrent_param", "gate_weight", "gate_bias")
Build = Callable[[Any, int], tuple[nn.Module, dict[str, Any]]]


class Adapted(nn.Module):
    """Calls a module of transformers with its other arguments, and returns its first output."""

    def __init__(self, inner: nn.Module, others: dict[str, Any]) -> None:
        super().__init__()
        self.inner, self.others = inner, others

    def forward(self, x: Tensor) -> Tensor:
        output = self.inner(x, **self.others)
        y: Tensor = output[0] if isinstance(output, tuple) else output
        return y


def with_mixers_of_transformers(model: LanguageModel, time: int) -> LanguageModel:
    """Return the model with a mixer of transformers in every block, for documents of one length."""
    build = MIXERS[model.config.architecture]
    for block in model.blocks:
        inner, others = build(block.mixer, time)
        for name, weight in inner.named_parameters():
            if name.endswith(LEFT_EMPTY):
                nn.init.normal_(weight, std=0.02)
        block.mixer = Adapted(inner, others)
    return model


def _qwen3_next(ours: Any, time: int) -> tuple[nn.Module, dict[str, Any]]:
    modeling = load_modeling("qwen3_next")
    config = modeling.Qwen3NextConfig(
        hidden_size=ours.d_model,
        linear_num_key_heads=ours.heads,
        linear_num_value_heads=ours.heads,
        linear_key_head_dim=ours.d_key // ours.heads,
        linear_value_head_dim=ours.d_value // ours.heads,
        linear_conv_kernel_dim=ours.d_conv,
    )
    return modeling.Qwen3NextGatedDeltaNet(config, 0), {}


def _kimi_linear(ours: Any, time: int) -> tuple[nn.Module, dict[str, Any]]:
    modeling = load_modeling("kimi_linear")
    config = modeling.KimiLinearConfig(
        hidden_size=ours.d_model,
        linear_num_heads=ours.heads,
        linear_head_dim=ours.d_key // ours.heads,
        linear_conv_kernel_dim=ours.d_conv,
    )
    return modeling.KimiLinearDeltaAttention(config, 0), {}


def _mamba2(ours: Any, time: int) -> tuple[nn.Module, dict[str, Any]]:
    modeling = load_modeling("mamba2")
    config = modeling.Mamba2Config(
        hidden_size=ours.d_model,
        num_heads=ours.heads,
        head_dim=ours.head_dim,
        state_size=ours.d_state,
        expand=ours.expand,
        n_groups=ours.groups,
        conv_kernel=ours.d_conv,
        num_hidden_layers=1,
    )
    return modeling.Mamba2Mixer(config, 0), {}


def _xlstm(ours: Any, time: int) -> tuple[nn.Module, dict[str, Any]]:
    modeling = load_modeling("xlstm")
    if modeling.external_xlstm:
        raise Missing("the mLSTM of transformers is not installed: the package xlstm replaces it")
    config = modeling.xLSTMConfig(
        hidden_size=ours.d_model,
        num_heads=ours.heads,
        mode="train",
        chunk_size=time,  # must divide the length, which is prime here
    )
    return modeling.xLSTMLayer(config), {}


def _recurrent_gemma(ours: Any, time: int) -> tuple[nn.Module, dict[str, Any]]:
    modeling = load_modeling("recurrent_gemma")
    config = modeling.RecurrentGemmaConfig(
        hidden_size=ours.d_model,
        lru_width=ours.d_rnn,
        num_attention_heads=ours.heads,
        conv1d_width=ours.d_conv,
    )
    others = {"position_ids": torch.arange(time)[None], "attention_mask": None, "use_cache": False}
    return modeling.RecurrentGemmaRecurrentBlock(config, 0), others


def _llama(ours: Any, time: int) -> tuple[nn.Module, dict[str, Any]]:
    modeling = load_modeling("llama")
    config = modeling.LlamaConfig(
        hidden_size=ours.d_model,
        num_attention_heads=ours.heads,
        num_key_value_heads=ours.kv_heads or ours.heads,
        attn_implementation="sdpa",
    )
    rotary = modeling.LlamaRotaryEmbedding(config)
    angles = rotary(torch.zeros(1, time, ours.d_model), torch.arange(time)[None])
    return modeling.LlamaAttention(config, 0), {"position_embeddings": angles}


MIXERS: dict[str, Build] = {
    "gated_delta_net": _qwen3_next,
    "kda": _kimi_linear,
    "mamba2": _mamba2,
    "mlstm": _xlstm,
    "rg_lru": _recurrent_gemma,
    "transformer": _llama,
}
