"""`check_mixer`: what every mixer must keep, examined in float64. One that sees the future makes every number false."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from mecheval.core.errors import CheckFailed
from mecheval.core.options import where
from mecheval.models.config import build_architecture
from mecheval.models.edits import add
from mecheval.models.ops.reads import gathered
from mecheval.models.registries import mixers
from mecheval.models.site import patch, record, sites

BATCH, CUTS, TOLERANCE = 3, 20, 1e-9
Stream = Float64[Tensor, "batch time d_model"]
Findings = Iterator[str]


def check_mixer(build: Callable[..., nn.Module], d_model: int = 16, max_len: int = 64, **options: Any) -> None:
    """Builds `build(d_model, max_len, **options)` and raises CheckFailed with every promise it breaks."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        name = getattr(build, "__name__", "mixer")
        try:
            mixer = build(d_model, max_len, **options).double()
        except Exception as error:  # a stranger's code: whatever it raises is a finding
            reason = f"cannot be built: {type(error).__name__}: {error} ({where(build)})"
            raise CheckFailed(name, [reason]) from error
        x = torch.randn(BATCH, max_len, d_model, dtype=torch.float64)
        failures: list[str] = []
        for check in CHECKS:
            try:
                failures += list(check(mixer, x))
            except Exception as error:
                failures.append(f"{check.__name__.strip('_').replace('_', ' ')}: {type(error).__name__}: {error}")
            if failures and check is _keeps_its_shape:
                break  # nothing else can be said of it
    if failures:
        raise CheckFailed(name, failures)


def check_architecture(text: str, d_model: int) -> None:
    """Every mixer of an architecture that is somebody else's; ours keep their promises."""
    for spec in build_architecture(text).pattern:
        mixer = mixers.get(spec.name)
        if not mixer.__module__.startswith("mecheval."):
            check_mixer(mixer, d_model, **mixers.check(spec))


def _keeps_its_shape(mixer: nn.Module, x: Stream) -> Findings:
    for time in sorted({1, 2, 3, x.shape[1] // 2, x.shape[1]}):
        y = mixer(x[:, :time])
        if not isinstance(y, Tensor) or y.shape != x[:, :time].shape:
            yield f"must return (batch, time, d_model) as it is given; at length {time} it returns {_shape(y)}"
        elif not y.isfinite().all():
            yield f"must return finite numbers; at length {time} it does not"


def _repeats_itself(mixer: nn.Module, x: Stream) -> Findings:
    first = mixer(x)
    mixer(x.flip(0) * 2)
    if not torch.equal(mixer(x), first):
        yield "must give the same output for the same input: it draws at random or keeps something between calls"


def _treats_rows_apart(mixer: nn.Module, x: Stream) -> Findings:
    y = mixer(x)
    others = torch.cat([x[:1], torch.randn_like(x[1:])])
    if _differ(mixer(others)[:1], y[:1]) or _differ(mixer(x[:1]), y[:1]):
        yield "must treat the rows of a batch apart: one row changes with the others"


def _sees_no_future(mixer: nn.Module, x: Stream) -> Findings:
    y, time = mixer(x), x.shape[1]
    for cut in _cuts(time):
        changed = torch.cat([x[:, :cut], torch.randn_like(x[:, cut:])], dim=1)
        if _differ(mixer(changed)[:, :cut], y[:, :cut]):
            yield f"must not see the future: changing token {cut} and later changes what comes before"
            return
        if _differ(mixer(x[:, :cut]), y[:, :cut]):
            yield f"must not depend on the length: {cut} tokens alone give another output than at the head of {time}"
            return


def _has_no_gradient_to_the_future(mixer: nn.Module, x: Stream) -> Findings:
    x = x.clone().requires_grad_()
    y = mixer(x)
    for cut in _cuts(x.shape[1]):
        (gradient,) = torch.autograd.grad(y[:, cut - 1].sum(), x, retain_graph=True)
        if gradient[:, cut:].abs().max() > TOLERANCE * max(1.0, float(gradient.abs().max())):
            yield f"must not see the future: output {cut - 1} has a gradient to later tokens"
            return


def _has_finite_gradients(mixer: nn.Module, x: Stream) -> Findings:
    mixer.zero_grad()
    mixer(x).square().sum().backward()
    for name, parameter in mixer.named_parameters():
        if parameter.requires_grad and parameter.grad is None:
            yield f"parameter {name} has no gradient: it does nothing"
        elif parameter.grad is not None and not parameter.grad.isfinite().all():
            yield f"parameter {name} must have a finite gradient"


def _has_living_sites(mixer: nn.Module, x: Stream) -> Findings:
    y = mixer(x)
    for name, site in sites(mixer).items():
        with record(mixer, [name]) as seen:
            mixer(x)
        if name not in seen:
            yield f"site {name} is dead: the forward pass does not go through it"
            continue
        value = seen[name].detach()
        if value.dim() != len(site.axes) or value.shape[site.time] != x.shape[1]:
            yield f"site {name} must have the axes {' '.join(site.axes)}; it has the shape {tuple(value.shape)}"
        with patch(mixer, {name: add(torch.randn_like(value))}):  # a constant would not move a softmax
            if not _differ(mixer(x), y):
                yield f"site {name} is dead: editing it changes nothing"


def _reads_as_it_writes(mixer: nn.Module, x: Stream) -> Findings:
    """`read` is optional: the output at some positions, for less than the output everywhere."""
    read = getattr(mixer, "read", None)
    if read is None:
        return
    at = torch.stack([torch.randperm(x.shape[1])[:5] for _ in x])
    exact = gathered(mixer(x), at)
    found = read(x, at)
    if not isinstance(found, Tensor) or found.shape != exact.shape or _differ(found, exact):
        yield "read(x, at) must return what forward returns at those positions"


CHECKS: tuple[Callable[[nn.Module, Tensor], Findings], ...] = (
    _keeps_its_shape,
    _repeats_itself,
    _treats_rows_apart,
    _sees_no_future,
    _has_no_gradient_to_the_future,
    _has_finite_gradients,
    _has_living_sites,
    _reads_as_it_writes,
)


def _cuts(time: int) -> list[int]:
    """Where to cut a sequence in past and future: at most CUTS places, both ends among them."""
    count = min(CUTS, time - 1)
    return sorted({1 + round(i * (time - 2) / max(count - 1, 1)) for i in range(count)})


def _differ(one: Tensor, other: Tensor) -> bool:
    one, other = one.detach(), other.detach()
    return bool((one - other).abs().max() > TOLERANCE * max(1.0, float(other.abs().max())))


def _shape(y: object) -> str:
    return str(tuple(y.shape)) if isinstance(y, Tensor) else type(y).__name__
