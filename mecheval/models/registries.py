"""The registries of mixers, architectures and whole models."""

from mecheval.core.registry import Registry
from mecheval.models import mixer_options, recurrent_options

mixers = Registry("mixer", given=("d_model", "max_len"))
for name, cls in {
    "attention": "Attention",
    "base_conv": "BaseConv",
    "delta_net": "DeltaNet",
    "h3": "H3",
    "hyena": "Hyena",
    "linear_attention": "LinearAttention",
    "mamba": "Mamba",
}.items():
    options = getattr(mixer_options, f"{cls}Options")
    mixers.add(name, f"mecheval.models.mixers.{name}:{cls}", options)
for name, cls in {
    "gated_delta_net": "GatedDeltaNet",
}.items():
    options = getattr(recurrent_options, f"{cls}Options")
    mixers.add(name, f"mecheval.models.mixers.{name}:{cls}", options)

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
    "hybrid",
    "parallel",
):
    architectures.add(name, f"mecheval.models.architecture:{name}")
