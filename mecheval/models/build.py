"""A model by the name of its architecture: our backbone with mixers, or a stranger's whole model."""

from typing import TypeGuard

import torch
from torch import nn

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Spec
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.external import ExternalModel
from mecheval.models.language_model import LanguageModel
from mecheval.models.registries import models

Model = LanguageModel | ExternalModel  # model(tokens, at) gives logits where they are read, and it has sites


def build_model(config: ModelConfig, vocab_size: int, seed: int = 0) -> Model:
    """Its weights depend on (config, vocab_size, seed) alone."""
    whole = build_architecture(config.architecture).whole
    if whole is None:
        return LanguageModel(config, vocab_size, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = _built(whole, config, vocab_size)
    _scale(module, config)
    return ExternalModel(module)


def resumes(model: Model) -> TypeGuard[LanguageModel]:
    """Whether it has our blocks, so that its forward pass can be gone on with from the input of each."""
    return hasattr(model, "resume")


def ours(model: Model, why: str) -> LanguageModel:
    """The model, if it has our blocks; else it is refused with the reason why it must."""
    if not resumes(model):
        raise InvalidInput(f"model={model.name} must be made of our blocks: {why}")
    return model


def _built(whole: Spec, config: ModelConfig, vocab_size: int) -> nn.Module:
    given = {"d_model": config.d_model, "layers": config.layers, "max_len": config.max_len}
    try:
        module = models.build(whole, None, vocab_size=vocab_size, **given)
    except InvalidInput:
        raise
    except Exception as error:  # a stranger's code: whatever it raises
        raise InvalidInput(f"{whole.name} cannot be built: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"{whole.name} must be a torch.nn.Module")
    return module


@torch.no_grad()
def _scale(module: nn.Module, config: ModelConfig) -> None:
    """`init_*` multiply the start that the stranger chose; a head tied to the embedding is the embedding."""
    parts = list(module.modules())
    factors = {part.weight: config.init_linear for part in parts if isinstance(part, nn.Linear)}
    factors |= {part.weight: config.init_embedding for part in parts if isinstance(part, nn.Embedding)}
    for weight, factor in factors.items():
        weight *= factor
