"""The families of `transformers` models: where their tensors are, as paths of submodules.

A family is a `model_type`. What a layer is, its kind, follows from the mixer that it has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mecheval.core.options import did_you_mean

ATTENTION = {"self_attn": "attention"}
Kinds = str | Mapping[str, str]  # the kind of a mixer, or a kind for each class


@dataclass(frozen=True)
class Family:
    """The paths at which a family has its tensors.

    `embed`, `layers`, `norm` and `head` are paths in the model; all others are paths in a layer.
    `mixers` maps those that a layer may have to their kind. `places` says for a mixer where a
    tensor is that is not simply the input or output of mixer or MLP. `sums` names the mixers
    that stand side by side, each with the layer's attribute by which its output is multiplied.
    `carries` is the position of a second stream among the arguments of a layer. `settings` are
    fields of the configuration that must have these values, or a tensor would not pass its site.
    `replaced_by` is a package that, where it is installed, replaces the family's classes.
    """

    layers: str = "model.layers"
    embed: str = "model.embed_tokens"
    norm: str = "model.norm"
    head: str = "lm_head"
    mixers: Mapping[str, Kinds] = field(default_factory=lambda: ATTENTION)
    mlps: tuple[str, ...] = ("mlp",)
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sums: Mapping[str, str] = field(default_factory=dict)
    carries: int | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    replaced_by: str = ""
    notes: tuple[str, ...] = ()


POST_NORM = {
    "mixer_out": "output of post_attention_layernorm",
    "mlp_out": "output of post_feedforward_layernorm",
}
SSM = Family(
    layers="backbone.layers",
    embed="backbone.embeddings",
    norm="backbone.norm_f",
    mixers={"mixer": "mamba"},
    mlps=(),
)
HYBRID = Family(
    norm="model.final_layernorm",
    mixers={"mamba": "mamba2", **ATTENTION},
    mlps=("feed_forward",),
)

FAMILIES = {
    "gpt2": Family(
        layers="transformer.h",
        embed="transformer.drop",  # tokens and positions are added before it
        norm="transformer.ln_f",
        mixers={"attn": "attention"},
    ),
    "gpt_neox": Family(
        layers="gpt_neox.layers",
        embed="gpt_neox.emb_dropout",
        norm="gpt_neox.final_layer_norm",
        mixers={"attention": "attention"},
        notes=("mixer and MLP of a block read the same stream, if use_parallel_residual",),
    ),
    "llama": Family(),
    "qwen3": Family(),
    "gemma3_text": Family(
        places={"self_attn": POST_NORM},
        notes=("mixer_out and mlp_out are after the norms that follow mixer and MLP",),
    ),
    "mamba": SSM,
    "mamba2": replace(SSM, mixers={"mixer": "mamba2"}),
    "falcon_mamba": SSM,
    "rwkv": Family(
        layers="rwkv.blocks",
        embed="rwkv.embeddings",
        norm="rwkv.ln_out",
        head="head",
        mixers={"attention": "rwkv4"},
        mlps=("feed_forward",),
        settings={"rescale_every": 0},
        notes=("the MLP mixes each token with the one before it",),
    ),
    "xlstm": Family(
        layers="backbone.blocks",
        embed="backbone.embeddings",
        norm="backbone.out_norm",
        mixers={"mlstm_layer": "mlstm"},
        mlps=("ffn",),
        settings={"max_inference_chunksize": 2**31},
        replaced_by="xlstm",
    ),
    "recurrent_gemma": Family(
        norm="model.final_norm",
        mixers={
            "temporal_block": {
                "RecurrentGemmaRecurrentBlock": "rg_lru",
                "RecurrentGemmaAttention": "attention",
            }
        },
        mlps=("mlp_block",),
    ),
    "jamba": replace(HYBRID, mixers={"mamba": "mamba", **ATTENTION}),
    "zamba2": Family(
        norm="model.final_layernorm",
        mixers={
            "mamba": "mamba2",
            "mamba_decoder.mamba": "mamba2",
            "shared_transformer.self_attn": "attention",
        },
        mlps=("shared_transformer.feed_forward",),
        carries=0,
        notes=(
            "the embedding is read again by every shared block: block_in is the stream and the "
            "embedding, side by side",
            "the shared block adds to the input of the block's Mamba-2, not to the stream",
        ),
    ),
    "bamba": HYBRID,
    "falcon_h1": replace(
        HYBRID,
        places={"mamba": {"mixer_in": "output of input_layernorm"}},
        sums={"mamba": "ssm_out_multiplier", "self_attn": "attn_out_multiplier"},
        notes=("mixer_out is the sum of both mixers, each times its multiplier",),
    ),
    "nemotron_h": Family(
        embed="model.embeddings",
        norm="model.norm_f",
        mixers={
            "mixer": {
                "NemotronHMamba2Mixer": "mamba2",
                "NemotronHAttention": "attention",
                "NemotronHMLP": "mlp",
                "NemotronHMoE": "moe",
            }
        },
        mlps=(),
        notes=("an MLP is a block of its own; its sites are mixer_in and mixer_out",),
    ),
    "qwen3_next": Family(
        mixers={"linear_attn": "gated_delta_net", **ATTENTION},
    ),
    "kimi_linear": Family(
        mixers={
            "self_attn": {
                "KimiLinearDeltaAttention": "kda",
                "KimiLinearAttention": "latent_attention",
            }
        }
    ),
    "olmo_hybrid": Family(
        mixers={"linear_attn": "gated_delta_net", **ATTENTION},
        places={"self_attn": POST_NORM},
        notes=("blocks with attention are normalised after mixer and MLP, not before",),
    ),
    "minimax": Family(
        mixers={
            "self_attn": {
                "MiniMaxLightningAttention": "lightning_attention",
                "MiniMaxAttention": "attention",
            }
        },
        notes=("the residual is the normalised stream: mixer_in is a part of it",),
    ),
    "lfm2": Family(
        norm="model.embedding_norm",
        mixers={"conv": "conv", **ATTENTION},
        mlps=("feed_forward",),
    ),
}
ALIASES = {"gemma3_text": "gemma3"}  # as people say it
NAMES = tuple(ALIASES.get(name, name) for name in FAMILIES)


def unknown_family(text: str) -> str:
    """Return an error line for a family that is not in the table."""
    return f"no family {text!r}{did_you_mean(text, NAMES)}"
