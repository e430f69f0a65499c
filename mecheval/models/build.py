"""Builds a model from its configuration: our backbone with mixers, or a third-party model."""

from typing import Protocol, TypeGuard, runtime_checkable

import torch
from torch import Tensor, nn

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Spec
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.external import ExternalModel
from mecheval.models.language_model import LanguageModel
from mecheval.models.ops import Reads
from mecheval.models.registries import models

Model = LanguageModel | ExternalModel  # model(tokens, at) returns the logits at some positions


def build_model(config: ModelConfig, vocab_size: int, seed: int = 0) -> Model:
    """Build a model; its weights depend on (config, vocab_size, seed) alone."""
    whole = build_architecture(config.architecture).whole
    if whole is None:
        return LanguageModel(config, vocab_size, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = _build_whole(whole, config, vocab_size)
    _scale_weights(module, config)
    return module if isinstance(module, ExternalModel) else ExternalModel(module)


@runtime_checkable
class Resumable(Protocol):
    """A model whose forward pass can be resumed at the input of each of its `depth` blocks."""

    @property
    def depth(self) -> int: ...

    def resume(self, layer: int, x: Tensor, at: Reads | None = None) -> Tensor:
        """Continue from the input of a block, or with `layer` equal to `depth` after the last."""
        ...


def resumes(model: Model) -> TypeGuard[Resumable]:
    """Return whether the forward pass can be resumed at a block."""
    return hasattr(model, "resume")


def is_ours(model: Model) -> TypeGuard[LanguageModel]:
    """Return whether the model is our backbone, whose blocks and mixers are known."""
    return isinstance(model, LanguageModel)


def ours(model: Model, reason: str) -> LanguageModel:
    """Return the model if it is a LanguageModel, else raise InvalidInput with the reason."""
    if not is_ours(model):
        raise InvalidInput(f"model={model.name} must be a mecheval LanguageModel: {reason}")
    return model


def _build_whole(whole: Spec, config: ModelConfig, vocab_size: int) -> nn.Module:
    sizes = {"d_model": config.d_model, "layers": config.layers, "max_len": config.max_len}
    try:
        module = models.build(whole, vocab_size=vocab_size, **sizes)
    except InvalidInput:
        raise
    except Exception as error:  # third-party code can raise anything
        problem = f"{whole.name} cannot be built: {type(error).__name__}: {error}"
        raise InvalidInput(problem) from error
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"{whole.name} must be a torch.nn.Module")
    return module


@torch.no_grad()
def _scale_weights(module: nn.Module, config: ModelConfig) -> None:
    """Multiply the model's own initial weights; a head tied to the embedding is the embedding."""
    parts = list(module.modules())
    factors = {p.weight: config.init_linear for p in parts if isinstance(p, nn.Linear)}
    factors |= {p.weight: config.init_embedding for p in parts if isinstance(p, nn.Embedding)}
    for weight, factor in factors.items():
        weight *= factor
