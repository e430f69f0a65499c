"""`check_mixer`: the conformance checks of a mixer, computed in float64.

A mixer that sees the future would falsify every measurement, so third-party mixers are checked
before they run.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from mecheval.core.errors import CheckFailed, InvalidInput
from mecheval.core.options import where
from mecheval.models.config import build_architecture
from mecheval.models.edits import add
from mecheval.models.ops import gather_reads
from mecheval.models.registries import mixers
from mecheval.models.site import patch, record, sites

BATCH, CUTS, TOLERANCE = 3, 20, 1e-9
Stream = Float64[Tensor, "batch time d_model"]
Failures = Iterator[str]


def check_mixer(
    build: Callable[..., nn.Module],
    d_model: int = 16,
    max_len: int = 64,
    **options: Any,
) -> None:
    """Build `build(d_model, max_len, **options)` and raise CheckFailed with every failed check."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        name = getattr(build, "__name__", "mixer")
        try:
            mixer = build(d_model, max_len, **options).double()
        except Exception as error:  # third-party code may raise anything
            reason = f"cannot be built: {type(error).__name__}: {error} ({where(build)})"
            raise CheckFailed(name, [reason]) from error
        x = torch.randn(BATCH, max_len, d_model, dtype=torch.float64)
        run_checks(name, CHECKS, mixer, x)


def check_architecture(text: str, d_model: int) -> None:
    """Check every third-party mixer of an architecture."""
    for spec in build_architecture(text).pattern:
        mixer = mixers.get(spec.name)
        if not mixer.__module__.startswith("mecheval."):
            check_mixer(mixer, d_model, **mixers.check(spec))


def run_checks(name: str, checks: Sequence[Callable[..., Failures]], *subject: Any) -> None:
    """Raise CheckFailed with the failures of all checks; stop early if the first one fails."""
    failures: list[str] = []
    for check in checks:
        try:
            failures += list(check(*subject))
        except InvalidInput as error:
            failures += error.problems
        except Exception as error:  # third-party code may raise anything
            title = check.__name__.strip("_").replace("_", " ")
            failures.append(f"{title}: {type(error).__name__}: {error}")
        if failures and check is checks[0]:
            break
    if failures:
        raise CheckFailed(name, failures)


def _keeps_its_shape(mixer: nn.Module, x: Stream) -> Failures:
    for time in sorted({1, 2, 3, x.shape[1] // 2, x.shape[1]}):
        y = mixer(x[:, :time])
        if not isinstance(y, Tensor) or y.shape != x[:, :time].shape:
            shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            yield f"must return (batch, time, d_model); at length {time} it returns {shape}"
        elif not y.isfinite().all():
            yield f"must return finite numbers; at length {time} it does not"


def _is_deterministic(mixer: nn.Module, x: Stream) -> Failures:
    first = mixer(x)
    mixer(x.flip(0) * 2)
    if not torch.equal(mixer(x), first):
        reason = "it draws random numbers or keeps state between calls"
        yield f"must return the same output for the same input; {reason}"


def _treats_rows_independently(mixer: nn.Module, x: Stream) -> Failures:
    y = mixer(x)
    others = torch.cat([x[:1], torch.randn_like(x[1:])])
    if differ(mixer(others)[:1], y[:1]) or differ(mixer(x[:1]), y[:1]):
        yield "must treat the rows of a batch independently; one row changes with the others"


def _is_causal(mixer: nn.Module, x: Stream) -> Failures:
    y, time = mixer(x), x.shape[1]
    for cut in _cuts(time):
        changed = torch.cat([x[:, :cut], torch.randn_like(x[:, cut:])], dim=1)
        if differ(mixer(changed)[:, :cut], y[:, :cut]):
            changes = f"changing token {cut} and later changes earlier outputs"
            yield f"must not see the future: {changes}"
            return
        if differ(mixer(x[:, :cut]), y[:, :cut]):
            changes = f"{cut} tokens alone give another output than as the first of {time}"
            yield f"must not depend on the length: {changes}"
            return


def _has_causal_gradients(mixer: nn.Module, x: Stream) -> Failures:
    x = x.clone().requires_grad_()
    y = mixer(x)
    for cut in _cuts(x.shape[1]):
        (gradient,) = torch.autograd.grad(y[:, cut - 1].sum(), x, retain_graph=True)
        if gradient[:, cut:].abs().max() > TOLERANCE * max(1.0, float(gradient.abs().max())):
            yield f"must not see the future: output {cut - 1} has a gradient to later tokens"
            return


def _has_finite_gradients(mixer: nn.Module, x: Stream) -> Failures:
    mixer.zero_grad()
    mixer(x).square().sum().backward()
    yield from gradient_failures(mixer)


def gradient_failures(module: nn.Module) -> Failures:
    """Yield a line for each parameter without a finite gradient."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.grad is None:
            yield f"parameter {name} has no gradient; use it or remove it"
        elif parameter.grad is not None and not parameter.grad.isfinite().all():
            yield f"parameter {name} must have a finite gradient"


def _has_live_sites(mixer: nn.Module, x: Stream) -> Failures:
    y = mixer(x)
    for name, site in sites(mixer).items():
        with record(mixer, [name]) as recorded:
            mixer(x)
        if name not in recorded:
            yield f"site {name} is dead: the forward pass does not go through it"
            continue
        value = recorded[name].detach()
        if value.dim() != len(site.axes) or value.shape[site.time] != x.shape[1]:
            axes = " ".join(site.axes)
            yield f"site {name} must have the axes {axes}; it has the shape {tuple(value.shape)}"
        with patch(mixer, {name: add(torch.randn_like(value))}):  # softmax ignores a constant
            if not differ(mixer(x), y):
                yield f"site {name} is dead: editing it changes nothing"


def _read_equals_forward(mixer: nn.Module, x: Stream) -> Failures:
    """Compare the optional `read(x, at)` with `forward` at those positions.

    A `LanguageModel` uses it in the last layer, where nothing is recorded: it computes only the
    positions that are read, and does not pass the mixer's sites.
    """
    read = getattr(mixer, "read", None)
    if read is None:
        return
    at = torch.stack([torch.randperm(x.shape[1])[:5] for _ in x])
    exact = gather_reads(mixer(x), at)
    y = read(x, at)
    if not isinstance(y, Tensor) or y.shape != exact.shape or differ(y, exact):
        yield "read(x, at) must return what forward returns at those positions"


CHECKS: tuple[Callable[[nn.Module, Tensor], Failures], ...] = (
    _keeps_its_shape,
    _is_deterministic,
    _treats_rows_independently,
    _is_causal,
    _has_causal_gradients,
    _has_finite_gradients,
    _has_live_sites,
    _read_equals_forward,
)


def _cuts(time: int) -> list[int]:
    """Return at most CUTS positions that divide past from future, both ends included."""
    count = min(CUTS, time - 1)
    return sorted({1 + round(i * (time - 2) / max(count - 1, 1)) for i in range(count)})


def differ(one: Tensor, other: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Tell whether two tensors differ by more than the tolerance, relative to the second."""
    one, other = one.detach(), other.detach()
    return bool((one - other).abs().max() > tolerance * max(1.0, float(other.abs().max())))
