"""Packages that do the same: models, scans and delta rules. None is a dependency; one that is missing is skipped."""

import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mecheval.models.language_model import LanguageModel

FLA_CHUNK = 32  # tokens, its own default


class Missing(Exception):
    """A rival is not here: its reason."""


def package(name: str) -> Any:
    """A module of somebody else's."""
    present(name.partition(".")[0])
    with warnings.catch_warnings(
        action="ignore"
    ):  # of what they import, and of what this machine lacks
        return import_module(name)


def present(top: str) -> None:
    """Without importing it."""
    if find_spec(top) is None:
        extra = "flash-linear-attention triton" if top == "fla" else "'mecheval[oracles]'"
        raise Missing(f"{top} is not installed: pip install {extra}")


def mambapy_scan() -> Callable[..., Tensor]:
    """mambapy's parallel scan, with all that its mixer does around it."""
    pscan = package("mambapy.pscan").pscan

    def scan(
        x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, backend: str = "auto"
    ) -> Tensor:
        states = pscan(torch.exp(dt[..., None] * A), dt[..., None] * B[:, :, None] * x[..., None])
        return (states @ C[..., None]).squeeze(-1) + D * x

    return scan


def mambapy_model(model: LanguageModel) -> LanguageModel:
    """The same backbone around mambapy's mixer."""
    mamba = package("mambapy.mamba")
    config = mamba.MambaConfig(d_model=model.config.d_model, n_layers=model.config.layers)
    for block in model.blocks:
        block.mixer = mamba.MambaBlock(config)
    return model


def transformers_model(like: LanguageModel) -> nn.Module:
    """A Mamba of the same size with tied embeddings; without CUDA it takes its own sequential path."""
    modeling = package("transformers.models.mamba.modeling_mamba")
    package("transformers").logging.set_verbosity_error()  # it would say that there is no CUDA
    sizes = {
        "vocab_size": like.vocab_size,
        "hidden_size": like.config.d_model,
        "num_hidden_layers": like.config.layers,
    }
    ways = {"use_mambapy": False, "use_cache": False, "tie_word_embeddings": True}
    model: nn.Module = modeling.MambaForCausalLM(modeling.MambaConfig(**sizes, **ways))
    return model.train()


def fla_recurrence() -> Callable[..., Tensor]:
    """fla's delta rule in plain torch, token by token."""
    return _as_ours(package("fla.ops.delta_rule.naive").delta_rule_recurrence)


def fla_chunks() -> Callable[..., Tensor]:
    """fla's delta rule in plain torch, by whole chunks: tokens that write nothing fill the last one."""
    return _as_ours(package("fla.ops.delta_rule.naive").delta_rule_chunkwise, FLA_CHUNK)


def _as_ours(theirs: Callable[..., tuple[Tensor, Tensor]], chunk: int = 1) -> Callable[..., Tensor]:
    """Heads first, and q scaled by itself."""

    def rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, backend: str = "auto") -> Tensor:
        time, more = q.shape[1], -q.shape[1] % chunk
        q, k, v = (
            F.pad(part, (0, 0, 0, 0, 0, more)).transpose(1, 2)
            for part in (q * q.shape[-1] ** 0.5, k, v)
        )
        return theirs(q, k, v, F.pad(beta, (0, 0, 0, more)).transpose(1, 2))[0].transpose(1, 2)[
            :, :time
        ]

    return rule
