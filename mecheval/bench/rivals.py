"""Packages that do the same: models, scans and delta rules. None is a dependency; one that is missing is skipped."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from mecheval.models.language_model import LanguageModel


class Missing(Exception):
    """A rival is not here: its reason."""


def package(name: str) -> Any:
    """A module of somebody else's."""
    present(name.partition(".")[0])
    return import_module(name)


def present(top: str) -> None:
    """Without importing it."""
    if find_spec(top) is None:
        extra = "flash-linear-attention triton" if top == "fla" else "'mecheval[oracles]'"
        raise Missing(f"{top} is not installed: pip install {extra}")


def mambapy_scan() -> Callable[..., Tensor]:
    """mambapy's parallel scan, with all that its mixer does around it."""
    pscan = package("mambapy.pscan").pscan

    def scan(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, backend: str = "auto") -> Tensor:
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
    sizes = {"vocab_size": like.vocab_size, "hidden_size": like.config.d_model, "num_hidden_layers": like.config.layers}
    ways = {"use_mambapy": False, "use_cache": False, "tie_word_embeddings": True}
    model: nn.Module = modeling.MambaForCausalLM(modeling.MambaConfig(**sizes, **ways))
    return model.train()


def fla_delta_rule() -> Callable[..., Tensor]:
    """fla's recurrence in plain torch; it scales q by itself."""
    recurrence = package("fla.ops.delta_rule.naive").delta_rule_recurrence

    def rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, backend: str = "auto") -> Tensor:
        q, k, v, beta = (part.transpose(1, 2) for part in (q * q.shape[-1] ** 0.5, k, v, beta))
        o: Tensor = recurrence(q, k, v, beta)[0]
        return o.transpose(1, 2)

    return rule
