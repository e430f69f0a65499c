"""`check_mixer` passes every built-in mixer and rejects each faulty one with the reason."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mecheval.core.errors import CheckFailed
from mecheval.models.check import check_mixer
from mecheval.models.registries import mixers
from mecheval.models.site import Site

VARIANTS = [(name, {}) for name in mixers.names() if name != "h3"]
VARIANTS += [
    ("h3", {"d_state": 32}),
    ("mamba", {"d_conv": 0}),
    ("base_conv", {"kernel": "long"}),
    ("attention", {"heads": 4}),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_every_built_in_mixer_passes(name, options):
    check_mixer(mixers.get(name), d_model=16, max_len=33, **options)


class Mean(nn.Module):
    """A third-party mixer: the mean of the past."""

    def __init__(self, d_model, max_len):
        super().__init__()
        self.proj = nn.Linear(d_model, d_model)
        self.inner = Site("batch time d_model", "what is averaged")

    def forward(self, x):
        x = self.inner(self.proj(x))
        return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1)[:, None]


class SeesOneAhead(Mean):
    def forward(self, x):
        return super().forward(x) + F.pad(x, (0, 0, 0, 1))[:, 1:]


class CircularFFT(Mean):
    def forward(self, x):
        return torch.fft.irfft(
            torch.fft.rfft(super().forward(x), dim=1) * 0.5j, n=x.shape[1], dim=1
        )


class NormalisesOverTime(Mean):
    def forward(self, x):
        return super().forward(x) / (1e-3 + x.std(dim=1, keepdim=True, correction=0))


class MixesRows(Mean):
    def forward(self, x):
        return super().forward(x - x.mean(dim=0, keepdim=True))


class KeepsState(Mean):
    last = 0.0

    def forward(self, x):
        y = super().forward(x) + self.last
        self.last = x.mean().item()
        return y


class DrawsAtRandom(Mean):
    def forward(self, x):
        return super().forward(x) + torch.randn_like(x)


class NaNAtTheStart(Mean):
    def forward(self, x):
        return super().forward(x) / torch.arange(x.shape[1])[:, None]


class NaNGradient(Mean):
    def forward(self, x):
        return super().forward(x) + (self.proj.bias * 0).sqrt()


class DeadSite(Mean):
    def __init__(self, d_model, max_len):
        super().__init__(d_model, max_len)
        self.unused = Site("batch time d_model", "never visited")


class IgnoredSite(Mean):
    def forward(self, x):
        self.inner(x)
        x = self.proj(x)
        return x.cumsum(dim=1)


class WrongAxes(Mean):
    def __init__(self, d_model, max_len):
        super().__init__(d_model, max_len)
        self.inner = Site("batch head time d_model", "it has no heads")


class UnusedParameter(Mean):
    def __init__(self, d_model, max_len):
        super().__init__(d_model, max_len)
        self.extra = nn.Parameter(torch.zeros(3))


class WrongWidth(Mean):
    def forward(self, x):
        return super().forward(x)[..., :-1]


class OnlyLong(Mean):
    def forward(self, x):
        assert x.shape[1] > 2, "too short for me"
        return super().forward(x)


class DependsOnLength(Mean):
    def forward(self, x):
        return super().forward(x) * x.shape[1]


class ReadsElsewhere(Mean):
    def read(self, x, at):
        return self.forward(x)[:, : at.shape[1]]


class DropsOut(Mean):
    def __init__(self, d_model, max_len):
        super().__init__(d_model, max_len)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(super().forward(x))


class Needs64(Mean):
    def __init__(self, d_model, max_len):
        assert d_model % 64 == 0, "a multiple of 64"
        super().__init__(d_model, max_len)


class CannotBeBuilt(Mean):
    def __init__(self, d_model, max_len):
        raise RuntimeError("out of luck")


def test_a_correct_third_party_mixer_passes():
    check_mixer(Mean)


@pytest.mark.parametrize(
    ("faulty", "reason"),
    [
        (SeesOneAhead, "must not see the future: changing token"),
        (SeesOneAhead, "has a gradient to later tokens"),
        (CircularFFT, "must not see the future"),
        (NormalisesOverTime, "must not see the future"),
        (MixesRows, "must treat the rows of a batch independently"),
        (KeepsState, "must return the same output for the same input"),
        (KeepsState, "it keeps state between calls"),
        (DrawsAtRandom, "must return the same output for the same input"),
        (DrawsAtRandom, "its output is random: dropout must be 0"),
        (DropsOut, "its output is random (drop.p=0.1): dropout must be 0"),
        (NaNAtTheStart, "must return finite numbers"),
        (NaNGradient, "parameter proj.bias must have a finite gradient"),
        (DeadSite, "site unused is dead: the forward pass does not go through it"),
        (IgnoredSite, "site inner is dead: editing it changes nothing"),
        (WrongAxes, "site inner must have the axes batch head time d_model"),
        (UnusedParameter, "parameter extra has no gradient"),
        (WrongWidth, "must return (batch, time, d_model)"),
        (OnlyLong, "AssertionError: too short for me"),
        (DependsOnLength, "must not depend on the length"),
        (ReadsElsewhere, "read(x, at) must return what forward returns"),
        (CannotBeBuilt, "cannot be built: RuntimeError: out of luck"),
    ],
)
def test_each_fault_is_rejected_with_its_reason(faulty, reason):
    with pytest.raises(CheckFailed) as error:
        check_mixer(faulty)
    assert any(reason in failure for failure in error.value.failures), error.value.failures


@pytest.mark.parametrize("faulty", [DropsOut, DrawsAtRandom, KeepsState])
def test_what_varies_between_calls_is_said_once_and_not_as_seeing_the_future(faulty):
    with pytest.raises(CheckFailed) as error:
        check_mixer(faulty)
    assert len(error.value.failures) == 1
    assert "future" not in str(error.value)


def test_the_default_width_is_that_of_a_run():
    check_mixer(Needs64)
    with pytest.raises(CheckFailed, match="cannot be built: AssertionError: a multiple of 64"):
        check_mixer(Needs64, d_model=48)


def test_the_global_generator_is_not_advanced():
    state = torch.random.get_rng_state()
    check_mixer(Mean)
    assert torch.equal(torch.random.get_rng_state(), state)
