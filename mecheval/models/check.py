"""The conformance checks of mixers and whole models, and `check_mixer`.

A mixer that sees the future would falsify every measurement, so third-party mixers and models are
checked before they run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from mecheval.core.errors import CheckFailed, InvalidInput
from mecheval.core.options import where
from mecheval.models.edits import add
from mecheval.models.ops import gather_reads
from mecheval.models.site import patch, record, sites

BATCH, CUTS = 3, 20
Failures = Iterator[str]


@dataclass(frozen=True)
class Subject:
    """A module under check, inputs (batch, time, …) for it, and how to name them.

    `other` differs from `inputs` at every position; `longest` are the longest inputs to try.
    `read` is the module's way to compute the output at some positions only.
    """

    module: nn.Module
    inputs: Tensor
    other: Tensor
    longest: Tensor
    shape: str
    width: int
    read: Callable[[Tensor, Tensor], Any] | None
    words: tuple[str, str, str] = ("input", "output", "read(x, at)")
    tolerance: float = 1e-9

    @property
    def output(self) -> Any:
        return self.module(self.inputs)

    def differ(self, one: Tensor, other: Tensor) -> bool:
        one, other = one.detach(), other.detach()
        scale = max(1.0, float(other.abs().max()))
        return bool((one - other).abs().max() > self.tolerance * scale)


def check_mixer(
    build: Callable[..., nn.Module],
    d_model: int = 64,
    max_len: int = 64,
    **options: Any,
) -> None:
    """Build `build(d_model, max_len, **options)` and raise CheckFailed with every failed check.

    Parameters
    ----------
    build
        A class or function that returns the mixer.
    d_model
        Width of the stream.
    max_len
        Longest input.
    options
        The mixer's options.

    Returns
    -------
    None
        CheckFailed is raised with every check that fails: shape, causality, independence of
        rows, determinism, finite gradients, live sites.

    Examples
    --------
    >>> from torch import nn
    >>> from mecheval import check_mixer
    >>> class Reverse(nn.Module):
    ...     def __init__(self, d_model, max_len):
    ...         super().__init__()
    ...     def forward(self, x):
    ...         return x.flip(1)
    >>> check_mixer(Reverse)
    Traceback (most recent call last):
    mecheval.core.errors.CheckFailed: Reverse: must not see the future: ...
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        name = getattr(build, "__name__", "mixer")
        try:
            mixer = build(d_model, max_len, **options).double()
        except Exception as error:  # third-party code may raise anything
            reason = f"cannot be built: {type(error).__name__}: {error} ({where(build)})"
            raise CheckFailed(name, [reason]) from error
        x, other = torch.randn(2, BATCH, max_len, d_model, dtype=torch.float64)
        read = getattr(mixer, "read", None)
        run_checks(name, Subject(mixer, x, other, x, "(batch, time, d_model)", d_model, read))


def run_checks(name: str, subject: Subject) -> None:
    """Raise CheckFailed with the failures of all checks; one of FIRST ends them."""
    failures: list[str] = []
    for check in CHECKS:
        try:
            failures += list(check(subject))
        except InvalidInput as error:
            failures += error.problems
        except Exception as error:  # third-party code may raise anything
            title = check.__name__.strip("_").replace("_", " ")
            failures.append(f"{title}: {type(error).__name__}: {error}")
        if failures and check in FIRST:
            break
    if failures:
        raise CheckFailed(name, failures)


def _keeps_its_shape(subject: Subject) -> Failures:
    most = subject.longest.shape[1]
    for time in sorted({1, min(2, most), min(3, most), max(most // 2, 1), most}):
        y = subject.module(subject.longest[:, :time])
        if not isinstance(y, Tensor) or y.shape != (BATCH, time, subject.width):
            shape = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            yield f"must return {subject.shape}; at length {time} it returns {shape}"
        elif not y.isfinite().all():
            yield f"must return finite numbers; at length {time} it does not"


def _is_deterministic(subject: Subject) -> Failures:
    first = subject.output
    subject.module(subject.other)
    if not torch.equal(subject.output, first):
        given, returned, _ = subject.words
        yield f"must return the same {returned} for the same {given}; {_why_it_varies(subject)}"


def _why_it_varies(subject: Subject) -> str:
    """Tell dropout, other randomness and state between calls apart."""
    torch.manual_seed(0)
    first = subject.output
    subject.module(subject.other)
    torch.manual_seed(0)
    if not torch.equal(subject.output, first):
        return "it keeps state between calls"
    dropouts = [
        f"{name}.p={module.p:g}"
        for name, module in subject.module.named_modules()
        if isinstance(module, _DropoutNd) and module.p > 0
    ]
    active = f" ({', '.join(dropouts)})" if dropouts else ""
    return f"its output is random{active}: dropout must be 0, here and in training"


def _treats_rows_independently(subject: Subject) -> Failures:
    y, alone = subject.output[:1], subject.module(subject.inputs[:1])
    among_others = subject.module(torch.cat([subject.inputs[:1], subject.other[1:]]))[:1]
    if subject.differ(among_others, y) or subject.differ(alone, y):
        yield "must treat the rows of a batch independently; one row changes with the others"


def _is_causal(subject: Subject) -> Failures:
    x, y, time = subject.inputs, subject.output, subject.inputs.shape[1]
    for cut in _cuts(time):
        changed = torch.cat([x[:, :cut], subject.other[:, cut:]], dim=1)
        if subject.differ(subject.module(changed)[:, :cut], y[:, :cut]):
            yield f"must not see the future: changing token {cut} and later changes earlier outputs"
            return
        if subject.differ(subject.module(x[:, :cut]), y[:, :cut]):
            change = f"{cut} tokens alone differ from the first {cut} of {time}"
            yield f"must not depend on the length: {change}"
            return


def _has_causal_gradients(subject: Subject) -> Failures:
    if not subject.inputs.is_floating_point():
        return
    x = subject.inputs.clone().requires_grad_()
    y = subject.module(x)
    for cut in _cuts(x.shape[1]):
        (gradient,) = torch.autograd.grad(y[:, cut - 1].sum(), x, retain_graph=True)
        most = subject.tolerance * max(1.0, float(gradient.abs().max()))
        if gradient[:, cut:].abs().max() > most:
            yield f"must not see the future: output {cut - 1} has a gradient to later tokens"
            return


def _has_finite_gradients(subject: Subject) -> Failures:
    subject.module.zero_grad()
    subject.output.square().sum().backward()
    for name, parameter in subject.module.named_parameters():
        if parameter.requires_grad and parameter.grad is None:
            yield f"parameter {name} has no gradient; use it or remove it"
        elif parameter.grad is not None and not parameter.grad.isfinite().all():
            yield f"parameter {name} must have a finite gradient"


def _has_live_sites(subject: Subject) -> Failures:
    time = subject.inputs.shape[1]
    for name, site in sites(subject.module).items():
        with record(subject.module, [name]) as recorded:  # a materialised site rounds differently
            y = subject.output
        if name not in recorded:
            yield f"site {name} is dead: the forward pass does not go through it"
            continue
        value = recorded[name].detach()
        if value.dim() != len(site.axes) or value.shape[site.time] != time:
            axes = " ".join(site.axes)
            yield f"site {name} must have the axes {axes}; it has the shape {tuple(value.shape)}"
        noise = torch.randn_like(value)  # softmax would ignore a constant
        with patch(subject.module, {name: add(noise)}):
            if torch.equal(subject.output, y):
                yield f"site {name} is dead: editing it changes nothing"


def _read_equals_forward(subject: Subject) -> Failures:
    """Compare the output at some positions only with the whole output there.

    In the last layer of a `LanguageModel`, where nothing is recorded, a mixer's `read` replaces
    `forward`: it computes only the positions that are read and skips the mixer's sites.
    """
    if subject.read is None:
        return
    x = subject.inputs
    at = torch.stack([torch.randperm(x.shape[1])[:5] for _ in x])
    exact, y = gather_reads(subject.output, at), subject.read(x, at)
    if not isinstance(y, Tensor) or y.shape != exact.shape or subject.differ(y, exact):
        yield f"{subject.words[2]} must return what forward returns at those positions"


CHECKS: tuple[Callable[[Subject], Failures], ...] = (
    _keeps_its_shape,
    _is_deterministic,
    _treats_rows_independently,
    _is_causal,
    _has_causal_gradients,
    _has_finite_gradients,
    _has_live_sites,
    _read_equals_forward,
)
FIRST = (_keeps_its_shape, _is_deterministic)  # without these no other check means anything


def _cuts(time: int) -> list[int]:
    """Return at most CUTS positions that divide past from future, both ends included."""
    count = min(CUTS, time - 1)
    return sorted({1 + round(i * (time - 2) / max(count - 1, 1)) for i in range(count)})
