"""Other packages that compute the same: models, scans and recurrences.

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
from mecheval.models.ops.linear_scan import linear_scan
from mecheval.models.ops.recurrence import Writes, recurrence

FLA_CHUNK = 32  # tokens, the default of fla


class Missing(Exception):
    """A package is not installed; the message says how to install it."""


def load_package(name: str) -> Any:
    """Import a module of another package, without its warnings."""
    require(name.partition(".")[0])
    with warnings.catch_warnings(action="ignore"):
        return import_module(name)


def load_modeling(family: str) -> Any:
    """Import the modules of a model of transformers, which would warn of missing kernels."""
    modeling = load_package(f"transformers.models.{family}.modeling_{family}")
    load_package("transformers").logging.set_verbosity_error()
    return modeling


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
    modeling = load_modeling("mamba")
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


def fla_recurrences() -> dict[Callable[..., Any], Callable[..., Tensor]]:
    """Return fla's recurrences in plain torch, token by token, by the op that each replaces."""
    erasing = load_package("fla.ops.generalized_delta_rule.dplr.naive").dplr_recurrence
    additive = load_package("fla.ops.gla.naive").naive_recurrent_gla
    scan = load_package("fla.ops.hgrn.naive").naive_recurrent_hgrn

    def whole(q: Tensor, writes: Writes, backend: str = "auto") -> Tensor:
        k, v, a, b, steps = writes.k, writes.v, writes.a, writes.erased_at, writes.steps
        log_w = torch.zeros_like(k) if writes.log_w is None else writes.log_w.expand_as(k)
        q = q.repeat_interleave(steps, dim=1) * q.shape[-1] ** 0.5  # both scale q themselves
        if a is None or b is None:
            y, _ = additive(q, k, v, log_w)
        else:
            y, _ = erasing(*(part.transpose(1, 2) for part in (q, k, v, a, b, log_w)))
            y = y.transpose(1, 2)
        return y[:, steps - 1 :: steps]

    def vectors(a: Tensor, x: Tensor, backend: str = "auto") -> Tensor:
        y: Tensor = scan(x, a.log())[0]
        return y

    return {recurrence: whole, linear_scan: vectors}


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
