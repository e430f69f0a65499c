"""Other packages that compute the same: models, scans and delta rules.

None is a dependency; the lines of one that is not installed are skipped.
"""

import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mecheval.models.language_model import LanguageModel

FLA_CHUNK = 32  # tokens, the default of fla


class Missing(Exception):
    """A package is not installed; the message says how to install it."""


def load_package(name: str) -> Any:
    """Import a module of another package, without its warnings."""
    require(name.partition(".")[0])
    with warnings.catch_warnings(action="ignore"):
        return import_module(name)


def require(package: str) -> None:
    """Raise `Missing` if the package is not installed; do not import it."""
    if find_spec(package) is None:
        extra = "flash-linear-attention triton" if package == "fla" else "'mecheval[oracles]'"
        raise Missing(f"{package} is not installed: pip install {extra}")


def mambapy_scan() -> Callable[..., Tensor]:
    """Return mambapy's parallel scan, with the surrounding computation of its mixer."""
    pscan = load_package("mambapy.pscan").pscan

    def scan(
        x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, backend: str = "auto"
    ) -> Tensor:
        states = pscan(torch.exp(dt[..., None] * A), dt[..., None] * B[:, :, None] * x[..., None])
        return (states @ C[..., None]).squeeze(-1) + D * x

    return scan


def mambapy_model(model: LanguageModel) -> LanguageModel:
    """Return the model with mambapy's mixer in every block."""
    mamba = load_package("mambapy.mamba")
    config = mamba.MambaConfig(d_model=model.config.d_model, n_layers=model.config.layers)
    for block in model.blocks:
        block.mixer = mamba.MambaBlock(config)
    return model


def transformers_model(like: LanguageModel) -> nn.Module:
    """Return a Mamba of the same size with tied embeddings, which is sequential without CUDA."""
    modeling = load_package("transformers.models.mamba.modeling_mamba")
    load_package("transformers").logging.set_verbosity_error()  # it would warn of missing CUDA
    config = modeling.MambaConfig(
        vocab_size=like.vocab_size,
        hidden_size=like.config.d_model,
        num_hidden_layers=like.config.layers,
        use_mambapy=False,
        use_cache=False,
        tie_word_embeddings=True,
    )
    model: nn.Module = modeling.MambaForCausalLM(config)
    return model.train()


def fla_recurrence() -> Callable[..., Tensor]:
    """Return fla's delta rule in plain torch, token by token."""
    return _adapt(load_package("fla.ops.delta_rule.naive").delta_rule_recurrence)


def fla_chunks() -> Callable[..., Tensor]:
    """Return fla's delta rule in plain torch, by chunks; the last one is padded."""
    return _adapt(load_package("fla.ops.delta_rule.naive").delta_rule_chunkwise, FLA_CHUNK)


def _adapt(theirs: Callable[..., tuple[Tensor, Tensor]], chunk: int = 1) -> Callable[..., Tensor]:
    """Adapt the arguments: fla has heads before time, and scales q itself."""

    def rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, backend: str = "auto") -> Tensor:
        time, padding = q.shape[1], -q.shape[1] % chunk
        q, k, v = (
            F.pad(part, (0, 0, 0, 0, 0, padding)).transpose(1, 2)
            for part in (q * q.shape[-1] ** 0.5, k, v)
        )
        y, _ = theirs(q, k, v, F.pad(beta, (0, 0, 0, padding)).transpose(1, 2))
        return y.transpose(1, 2)[:, :time]

    return rule
