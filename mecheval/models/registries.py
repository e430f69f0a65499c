"""The mixers, architectures and whole models that can be named."""

from mecheval.core.registry import Registry
from mecheval.models import mixer_options as choices

mixers = Registry("mixer", given=("d_model", "max_len"))
for name, target in {
    "attention": "attention:Attention",
    "base_conv": "base_conv:BaseConv",
    "delta_net": "delta_net:DeltaNet",
    "h3": "h3:H3",
    "hyena": "hyena:Hyena",
    "linear_attention": "linear_attention:LinearAttention",
    "mamba": "mamba:Mamba",
}.items():
    mixers.add(name, f"mecheval.models.mixers.{target}", options=getattr(choices, target.partition(":")[2]))

models = Registry("model", given=("vocab_size", "d_model", "layers", "max_len"))  # all of them strangers'

architectures = Registry("architecture")
for name in ("attention", "base_conv", "based", "delta_net", "h3", "hyena", "mamba"):
    architectures.add(name, f"mecheval.models.architecture:{name}")
