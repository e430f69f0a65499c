"""`check_model`: the checks of a whole model, ours or a third-party one."""

import copy
from dataclasses import replace

import torch
from torch import Tensor

from mecheval.core.errors import CheckFailed, InvalidInput
from mecheval.models.build import Model, build_model, is_ours
from mecheval.models.check import BATCH, Subject, check_mixer, run_checks
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.registries import mixers

MOST_CHECKS_LEN, LONGEST_LEN = 64, 1024  # tokens
VOCABULARY = 32  # tokens of a model that is built only to be checked


def check_model(model: Model, vocab_size: int, max_len: int) -> None:
    """Raise CheckFailed with every failed check; the model itself is not changed.

    The checks compute in float64 or, where the model cannot, with a larger tolerance.

    Parameters
    ----------
    model
        A LanguageModel or an ExternalModel.
    vocab_size
        Number of tokens that it knows.
    max_len
        Longest input.

    Returns
    -------
    None
        CheckFailed is raised with every check that fails.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, check_model
    >>> model = LanguageModel(ModelConfig("attention", d_model=8, max_len=16), vocab_size=12)
    >>> check_model(model, vocab_size=12, max_len=16)
    """
    name = model.config.architecture if is_ours(model) else str(model.name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        longest = torch.randint(vocab_size, (BATCH, min(max_len, LONGEST_LEN)))
        tokens = longest[:, :MOST_CHECKS_LEN]
        other = (tokens + torch.randint_like(tokens, 1, vocab_size)) % vocab_size
        module, tolerance = _exact_copy(model, tokens)
        subject = Subject(
            module,
            tokens,
            other,
            longest,
            shape=f"logits (batch, time, {vocab_size})",
            width=vocab_size,
            read=module,
            words=("tokens", "logits", "forward(tokens, at)"),
            tolerance=tolerance,
        )
        run_checks(name, subject)


def check_whole(config: ModelConfig) -> None:
    """Check a third-party model with a small vocabulary."""
    small = replace(config, max_len=min(config.max_len, LONGEST_LEN))
    check_model(build_model(small, VOCABULARY), VOCABULARY, small.max_len)


def check_third_party(config: ModelConfig) -> None:
    """Refuse a mixer or model that sees the future: it would make every number wrong."""
    architecture = build_architecture(config.architecture)
    for spec in architecture.mixers:
        if not mixers.is_built_in(spec.name):
            check_mixer(mixers.get(spec.name), config.d_model, **mixers.check(spec))
    try:
        if architecture.whole:
            check_whole(config)
    except CheckFailed as error:
        raise InvalidInput(str(error).splitlines()) from error


def _exact_copy(model: Model, tokens: Tensor) -> tuple[Model, float]:
    """Copy the model in float64 if it can compute in that, and return the tolerance."""
    exact = copy.deepcopy(model).cpu().double()
    try:
        with torch.no_grad():
            if exact(tokens).dtype == torch.float64:
                return exact, getattr(model, "tolerance", 1e-9)
    except Exception:  # the model creates tensors of another type itself
        pass
    return copy.deepcopy(model).cpu(), 1e-4
