"""`check_model`: what every whole model must keep, ours and a stranger's, as `check_mixer` does for a mixer.

It is examined in float64 or, where it cannot compute in that, in float32, with other roundings allowed.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from mecheval.core.errors import CheckFailed, InvalidInput
from mecheval.models.build import Model, build_model, resumes
from mecheval.models.check import BATCH, CUTS
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.edits import add
from mecheval.models.ops.reads import gathered
from mecheval.models.site import patch, record, sites

EXAMINED, LONGEST = 64, 1024  # tokens: of most passes, of the longest
VOCABULARY = 32  # of a model that is built to be examined
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
Findings = Iterator[str]


@dataclass(frozen=True)
class Examined:
    """A copy of a model, and tokens for it."""

    model: Model
    tokens: Int64[Tensor, "batch time"]
    vocab_size: int
    max_len: int

    @property
    def logits(self) -> Float[Tensor, "batch time vocab"]:
        return self.model(self.tokens)

    def others(self) -> Int64[Tensor, "batch time"]:
        """Other tokens at every position."""
        return (self.tokens + torch.randint_like(self.tokens, 1, self.vocab_size)) % self.vocab_size


def check_model(model: Model, vocab_size: int, max_len: int) -> None:
    """Raises CheckFailed with every promise that the model breaks; it is left as it was."""
    name = model.config.architecture if resumes(model) else str(model.name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tokens = torch.randint(vocab_size, (BATCH, min(max_len, EXAMINED)))
        examined = Examined(_exact(model, tokens), tokens, vocab_size, max_len)
        failures: list[str] = []
        for check in CHECKS:
            try:
                failures += list(check(examined))
            except InvalidInput as error:
                failures += error.problems
            except Exception as error:  # a stranger's code: whatever it raises is a finding
                failures.append(f"{check.__name__.strip('_').replace('_', ' ')}: {type(error).__name__}: {error}")
            if failures and check is _gives_logits:
                break  # nothing else can be said of it
    if failures:
        raise CheckFailed(name, failures)


def check_whole(config: ModelConfig) -> None:
    """A stranger's model, where the architecture is one, with few tokens to know."""
    if build_architecture(config.architecture).whole:
        small = replace(config, max_len=min(config.max_len, LONGEST))
        check_model(build_model(small, VOCABULARY), VOCABULARY, small.max_len)


def _exact(model: Model, tokens: Tensor) -> Model:
    exact = copy.deepcopy(model).cpu().double()
    try:
        with torch.no_grad():
            return exact if exact(tokens).dtype == torch.float64 else copy.deepcopy(model).cpu()
    except Exception:  # it makes tensors of another type itself
        return copy.deepcopy(model).cpu()


def _gives_logits(given: Examined) -> Findings:
    longest = torch.randint(given.vocab_size, (BATCH, min(given.max_len, LONGEST)))
    for time in sorted({1, min(2, longest.shape[1]), longest.shape[1] // 2, longest.shape[1]} - {0}):
        y = given.model(longest[:, :time])
        if y.shape != (BATCH, time, given.vocab_size):
            yield f"must return logits (batch, time, {given.vocab_size}); at length {time} it returns {tuple(y.shape)}"
        elif not y.isfinite().all():
            yield f"must return finite numbers; at length {time} it does not"


def _repeats_itself(given: Examined) -> Findings:
    first = given.logits
    given.model(given.others())
    if not torch.equal(given.logits, first):
        yield "must give the same logits for the same tokens: it draws at random or keeps something between calls"


def _treats_rows_apart(given: Examined) -> Findings:
    y, alone = given.logits[:1], given.model(given.tokens[:1])
    among_others = given.model(torch.cat([given.tokens[:1], given.others()[1:]]))[:1]
    if _differ(among_others, y) or _differ(alone, y):
        yield "must treat the rows of a batch apart: one row changes with the others"


def _sees_no_future(given: Examined) -> Findings:
    tokens, y, time = given.tokens, given.logits, given.tokens.shape[1]
    for cut in torch.linspace(1, time - 1, min(CUTS, time - 1)).long().tolist():
        changed = torch.cat([tokens[:, :cut], given.others()[:, cut:]], dim=1)
        if _differ(given.model(changed)[:, :cut], y[:, :cut]):
            yield f"must not see the future: changing token {cut} and later changes what comes before"
            return
        if _differ(given.model(tokens[:, :cut]), y[:, :cut]):
            yield f"must not depend on the length: {cut} tokens alone give other logits than at the head of {time}"
            return


def _has_finite_gradients(given: Examined) -> Findings:
    given.model.zero_grad()
    given.logits.square().sum().backward()  # type: ignore[no-untyped-call]
    for name, parameter in given.model.named_parameters():
        if parameter.requires_grad and parameter.grad is None:
            yield f"parameter {name} has no gradient: it does nothing"
        elif parameter.grad is not None and not parameter.grad.isfinite().all():
            yield f"parameter {name} must have a finite gradient"


def _has_living_sites(given: Examined) -> Findings:
    y = given.logits
    for name in sites(given.model):
        with record(given.model, [name]) as seen:
            given.model(given.tokens)
        if name not in seen:
            yield f"site {name} is dead: the forward pass does not go through it"
            continue
        noise = torch.randn_like(seen[name].detach())  # a constant would not move a softmax
        with patch(given.model, {name: add(noise)}):
            if not _differ(given.logits, y):
                yield f"site {name} is dead: editing it changes nothing"


def _reads_as_it_writes(given: Examined) -> Findings:
    at = torch.stack([torch.randperm(given.tokens.shape[1])[:5] for _ in given.tokens])
    found, exact = given.model(given.tokens, at), gathered(given.logits, at)
    if found.shape != exact.shape or _differ(found, exact):
        yield "must return for (tokens, at) what it returns for (tokens) at those positions"


CHECKS: tuple[Callable[[Examined], Findings], ...] = (
    _gives_logits,
    _repeats_itself,
    _treats_rows_apart,
    _sees_no_future,
    _has_finite_gradients,
    _has_living_sites,
    _reads_as_it_writes,
)


def _differ(one: Tensor, other: Tensor) -> bool:
    one, other = one.detach(), other.detach()
    return bool((one - other).abs().max() > TOLERANCE[other.dtype] * max(1.0, float(other.abs().max())))
