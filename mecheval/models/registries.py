"""The registries of mixers, architectures and whole models."""

from mecheval.core.registry import Registry
from mecheval.models.mixer_options import paper, recurrent, state_space

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
):
    mixers.add(name, f"mecheval.models.mixers.{name}:{cls}", getattr(family, f"{cls}Options"))

# whole models, all of them third-party
models = Registry("model", given=("vocab_size", "d_model", "layers", "max_len"))

architectures = Registry("architecture")
for name in (
    "attention",
    "base_conv",
    "based",
    "delta_net",
    "gated_delta_net",
    "h3",
    "hyena",
    "mamba",
    "mamba2",
    "mamba3",
    "hybrid",
    "parallel",
):
    architectures.add(name, f"mecheval.models.architecture:{name}")
