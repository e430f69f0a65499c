"""`check_model`: the conformance checks of a whole model, ours or a third-party one.

They are computed in float64 or, where the model cannot, in float32 with a larger tolerance.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from mecheval.models.build import Model, build_model, resumes
from mecheval.models.check import BATCH, CUTS, Failures, differ, gradient_failures, run_checks
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.edits import add
from mecheval.models.ops import gather_reads
from mecheval.models.site import patch, record, sites

MOST_CHECKS_LEN, LONGEST_LEN = 64, 1024  # tokens
VOCABULARY = 32  # tokens of a model that is built only to be checked
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True)
class Subject:
    """A copy of the model under check, and tokens for it."""

    model: Model
    tokens: Int64[Tensor, "batch time"]
    vocab_size: int
    max_len: int

    @property
    def logits(self) -> Float[Tensor, "batch time vocab"]:
        return self.model(self.tokens)

    def other_tokens(self) -> Int64[Tensor, "batch time"]:
        """Draw tokens that differ at every position."""
        offsets = torch.randint_like(self.tokens, 1, self.vocab_size)
        return (self.tokens + offsets) % self.vocab_size


def check_model(model: Model, vocab_size: int, max_len: int) -> None:
    """Raise CheckFailed with every failed check; the model itself is not changed."""
    name = model.config.architecture if resumes(model) else str(model.name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tokens = torch.randint(vocab_size, (BATCH, min(max_len, MOST_CHECKS_LEN)))
        subject = Subject(_exact_copy(model, tokens), tokens, vocab_size, max_len)
        run_checks(name, CHECKS, subject)


def check_whole(config: ModelConfig) -> None:
    """Check the architecture's third-party model, if it is one, with a small vocabulary."""
    if build_architecture(config.architecture).whole:
        small = replace(config, max_len=min(config.max_len, LONGEST_LEN))
        check_model(build_model(small, VOCABULARY), VOCABULARY, small.max_len)


def _exact_copy(model: Model, tokens: Tensor) -> Model:
    """Copy the model in float64 if it can compute in that, else as it is."""
    exact = copy.deepcopy(model).cpu().double()
    try:
        with torch.no_grad():
            return exact if exact(tokens).dtype == torch.float64 else copy.deepcopy(model).cpu()
    except Exception:  # the model creates tensors of another type itself
        return copy.deepcopy(model).cpu()


def _gives_logits(subject: Subject) -> Failures:
    vocab_size = subject.vocab_size
    longest = torch.randint(vocab_size, (BATCH, min(subject.max_len, LONGEST_LEN)))
    most = longest.shape[1]
    for time in sorted({1, min(2, most), most // 2, most} - {0}):
        y = subject.model(longest[:, :time])
        if y.shape != (BATCH, time, vocab_size):
            shape = f"at length {time} it returns {tuple(y.shape)}"
            yield f"must return logits (batch, time, {vocab_size}); {shape}"
        elif not y.isfinite().all():
            yield f"must return finite numbers; at length {time} it does not"


def _is_deterministic(subject: Subject) -> Failures:
    first = subject.logits
    subject.model(subject.other_tokens())
    if not torch.equal(subject.logits, first):
        reason = "it draws random numbers or keeps state between calls"
        yield f"must return the same logits for the same tokens; {reason}"


def _treats_rows_independently(subject: Subject) -> Failures:
    y, alone = subject.logits[:1], subject.model(subject.tokens[:1])
    batch = torch.cat([subject.tokens[:1], subject.other_tokens()[1:]])
    if _differ(subject.model(batch)[:1], y) or _differ(alone, y):
        yield "must treat the rows of a batch independently; one row changes with the others"


def _is_causal(subject: Subject) -> Failures:
    tokens, y, time = subject.tokens, subject.logits, subject.tokens.shape[1]
    for cut in torch.linspace(1, time - 1, min(CUTS, time - 1)).long().tolist():
        changed = torch.cat([tokens[:, :cut], subject.other_tokens()[:, cut:]], dim=1)
        if _differ(subject.model(changed)[:, :cut], y[:, :cut]):
            changes = f"changing token {cut} and later changes earlier logits"
            yield f"must not see the future: {changes}"
            return
        if _differ(subject.model(tokens[:, :cut]), y[:, :cut]):
            changes = f"{cut} tokens alone give other logits than as the first of {time}"
            yield f"must not depend on the length: {changes}"
            return


def _has_finite_gradients(subject: Subject) -> Failures:
    subject.model.zero_grad()
    subject.logits.square().sum().backward()  # type: ignore[no-untyped-call]
    yield from gradient_failures(subject.model)


def _has_live_sites(subject: Subject) -> Failures:
    y = subject.logits
    for name in sites(subject.model):
        with record(subject.model, [name]) as recorded:
            subject.model(subject.tokens)
        if name not in recorded:
            yield f"site {name} is dead: the forward pass does not go through it"
            continue
        noise = torch.randn_like(recorded[name].detach())  # softmax ignores a constant
        with patch(subject.model, {name: add(noise)}):
            if not _differ(subject.logits, y):
                yield f"site {name} is dead: editing it changes nothing"


def _reads_some_positions(subject: Subject) -> Failures:
    at = torch.stack([torch.randperm(subject.tokens.shape[1])[:5] for _ in subject.tokens])
    y, exact = subject.model(subject.tokens, at), gather_reads(subject.logits, at)
    if y.shape != exact.shape or _differ(y, exact):
        yield "must return for (tokens, at) what it returns for (tokens) at those positions"


CHECKS: tuple[Callable[[Subject], Failures], ...] = (
    _gives_logits,
    _is_deterministic,
    _treats_rows_independently,
    _is_causal,
    _has_finite_gradients,
    _has_live_sites,
    _reads_some_positions,
)


def _differ(one: Tensor, other: Tensor) -> bool:
    return differ(one, other, TOLERANCE[other.dtype])
