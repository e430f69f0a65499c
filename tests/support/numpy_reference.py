"""Cases and comparisons for mixers and ops that are tested against a second implementation."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mecheval.models.site import record
from support.task_facts import relative_error

PRECISION = {torch.float64: 1e-10, torch.float32: 1e-5}
MAX_LEN = 129
SHAPES = [*product([1, 3], [1, 2, 3, 5, 8]), (1, 4), (2, 6), (2, 7), (1, 16), (2, 17), (1, 33)]
SHAPES += [
    (1, time) for time in (63, 64, 65, 81, 127, 128, MAX_LEN)
]  # convolutions by FFT begin at 81


class Case(NamedTuple):
    """A mixer's input shape and options; `scaled` multiplies weights or buffers, for extremes."""

    batch: int
    time: int
    d_model: int
    options: Mapping[str, Any]
    scaled: Mapping[str, float] = {}

    def draw(self, kind: type[nn.Module]) -> tuple[nn.Module, Tensor]:
        """Return the mixer and an input, both in float32."""
        torch.manual_seed(0)
        mixer = perturb(kind(self.d_model, MAX_LEN, **self.options))
        tensors = {**dict(mixer.named_parameters()), **dict(mixer.named_buffers())}
        for name, factor in self.scaled.items():
            tensors[name].data *= factor
        return mixer, torch.randn(self.batch, self.time, self.d_model)


def at_every_shape(*variants: tuple) -> list[Case]:
    """Return each variant (d_model, options, scaled) at every shape."""
    return [Case(*shape, *variant) for variant, shape in product(variants, SHAPES)]


def some_and_all(cases: list[Case]) -> pytest.MarkDecorator:
    """Parametrise a test by every eleventh case and, among the slow tests, by all."""
    every = pytest.param(cases, marks=pytest.mark.slow)
    return pytest.mark.parametrize("cases", [cases[::11], every], ids=["some", "all"])


def perturb(mixer: nn.Module) -> nn.Module:
    """Move every weight away from its initial value: a zero bias would prove nothing."""
    with torch.no_grad():
        for weight in mixer.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return mixer


def numbers(mixer: nn.Module) -> dict[str, np.ndarray]:
    return {name: weight.detach().double().numpy() for name, weight in mixer.named_parameters()}


def silu(z: np.ndarray) -> np.ndarray:
    return z / (1 + np.exp(-z))


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def normalised(z: np.ndarray, eps: float) -> np.ndarray:
    return z / np.sqrt((z * z).sum(-1, keepdims=True) + eps)


def convolve(x: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """Return Σ_i taps_i x_{t−i} in every channel of one document, by numpy's direct sum."""
    channels = range(x.shape[1])
    return np.stack([np.convolve(x[:, c], taps[:, c])[: len(x)] for c in channels], axis=1)


def project(w: Mapping[str, np.ndarray], x: np.ndarray, which: str, d_conv: int) -> np.ndarray:
    """Return silu(conv(W x)) of one document; the last tap is on the present token."""
    z = x @ w[f"{which}_proj.weight"].T
    return silu(convolve(z, w[f"{which}_conv.weight"][:, 0, ::-1].T) if d_conv else z)


@torch.no_grad()
def assert_agreement(
    case: Case, mixer: nn.Module, x: Tensor, truth, precision=PRECISION, **sites
) -> None:
    """Compare output, recorded sites and `read` with the truth, also while sites are recorded."""
    backwards = torch.arange(case.time).flip(0).expand(case.batch, -1)
    for dtype, tolerance in precision.items():
        mixer, x = mixer.to(dtype), x.to(dtype)
        assert relative_error(mixer(x), truth) <= tolerance, (case, dtype)
        for site, exact in sites.items():
            with record(mixer, [site]) as seen:
                assert relative_error(mixer(x), truth) <= tolerance, (
                    case,
                    dtype,
                    f"recording {site}",
                )
            assert relative_error(seen[site], exact) <= tolerance, (case, dtype, site)
        if hasattr(mixer, "read"):
            assert relative_error(mixer.read(x, backwards), np.flip(truth, 1)) <= tolerance, (
                case,
                dtype,
                "read",
            )


@torch.no_grad()
def assert_built_from(twins: dict[str, Callable], kind: type[nn.Module], cases: list[Case]) -> None:
    """Compare the mixer with itself after plain twins have replaced its ops."""
    called = set()

    def plain(target: str) -> Callable:
        def twin(*inputs: Any, backend: str | None = None) -> Tensor:
            called.add(target)
            return twins[target](*inputs)

        return twin

    for case in cases:
        mixer, x = case.draw(kind)
        with pytest.MonkeyPatch.context() as patch:
            for target in twins:
                patch.setattr(f"mecheval.models.{target}", plain(target))
            truth = mixer.double()(x.double())
        assert_agreement(case, mixer, x, truth.numpy())
    assert called == set(twins)


@torch.no_grad()
def recorded(site: str, kind: type[nn.Module], cases: list[Case], time: int = 64) -> list[Tensor]:
    """Return what passes the site in each case of this length."""
    passed = []
    for case in cases:
        if case.time != time:
            continue
        mixer, x = case.draw(kind)
        with record(mixer, [site]) as seen:
            mixer(x)
        passed.append(seen[site])
    return passed


def largest_error(
    fast: Callable,
    ref: Callable,
    inputs: list[Tensor],
    least: float = 1e-30,
    sums: int = 1,
) -> float:
    """Return the largest relative error of the output and all gradients, against float64."""
    results = outcome(fast, inputs, sums)
    assert [x.dtype for x in results] == [inputs[0].dtype, *(x.dtype for x in inputs)]
    return furthest(results, outcome(ref, in_double(inputs), sums), least)


def outcome(form: Callable, inputs: list[Tensor], sums: int = 1) -> list[Tensor]:
    """Return the output and, for each input, the gradients of so many weighted sums of it."""
    y = form(*inputs)
    weights = torch.randn(sums, *y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    gradients = [torch.autograd.grad(y, inputs, g, retain_graph=True) for g in weights]
    return [y, *(torch.stack(of_one_input) for of_one_input in zip(*gradients, strict=True))]


def in_double(inputs: list[Tensor]) -> list[Tensor]:
    return [
        x.detach().to(torch.promote_types(x.dtype, torch.float64)).requires_grad_() for x in inputs
    ]


def furthest(results: list[Tensor], truths: list[Tensor], least: float = 1e-30) -> float:
    """Return the largest relative error of all, or nan if there is one."""
    pairs = zip(results, truths, strict=True)
    return float(np.max([relative_error(*pair, least) for pair in pairs]))
