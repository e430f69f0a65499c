"""The registries of mixers, architectures and whole models."""

from mecheval.core.registry import Registry
from mecheval.models.hf.options import SmallOptions
from mecheval.models.mixer_options import additive, gated, paper, recurrent, rwkv, state_space

mixers = Registry("mixer", given=("d_model", "max_len"))
for name, cls, family in (
    ("attention", "Attention", paper),
    ("base_conv", "BaseConv", paper),
    ("delta_net", "DeltaNet", paper),
    ("h3", "H3", paper),
    ("hyena", "Hyena", paper),
    ("linear_attention", "LinearAttention", paper),
    ("mamba", "Mamba", paper),
    ("gated_delta_net", "GatedDeltaNet", recurrent),
    ("mamba2", "Mamba2", state_space),
    ("mamba3", "Mamba3", state_space),
    ("kda", "KDA", recurrent),
    ("rwkv7", "RWKV7", rwkv),
    ("gla", "GLA", additive),
    ("hgrn2", "HGRN2", additive),
    ("retnet", "RetNet", additive),
    ("mlstm", "MLSTM", gated),
    ("rg_lru", "RGLRU", gated),
):
    mixers.add(name, f"mecheval.models.mixers.{name}:{cls}", getattr(family, f"{cls}Options"))

# whole models, all of them of other packages
models = Registry("model", given=("vocab_size", "d_model", "layers", "max_len"))
models.add("hf-config", "mecheval.models.hf.small:build_small", SmallOptions)

architectures = Registry("architecture")
for name in (
    "attention",
    "base_conv",
    "based",
    "delta_net",
    "gated_delta_net",
    "gla",
    "h3",
    "hgrn2",
    "hyena",
    "kda",
    "mamba",
    "mamba2",
    "mamba3",
    "rwkv7",
    "retnet",
    "mlstm",
    "rg_lru",
    "transformer",
    "hybrid",
    "parallel",
):
    architectures.add(name, f"mecheval.models.architecture:{name}")
