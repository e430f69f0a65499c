"""`check_model` passes our models and correct third-party ones, and rejects each faulty one."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mecheval.core.errors import CheckFailed
from mecheval.models.build import build_model
from mecheval.models.check_model import check_model, check_third_party, check_whole
from mecheval.models.config import ModelConfig
from mecheval.models.external import ExternalModel
from mecheval.models.registries import models
from mecheval.models.site import Site

VOCAB, TIME = 11, 17


ARCHITECTURES = ["attention", "based", "base_conv", "delta_net", "h3:d_state=8", "mamba"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_built_in_architecture_passes(architecture):
    config = ModelConfig(architecture=architecture, d_model=8, max_len=TIME)
    check_model(build_model(config, VOCAB), VOCAB, TIME)
    check_third_party(config)  # ours: nothing is built


class Mean(nn.Module):
    """Each token and the mean of what came before."""

    def __init__(self, vocab_size=VOCAB, d_model=8, layers=1, max_len=TIME):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.head = nn.Linear(d_model, vocab_size)
        self.mean = Site("batch time d_model", "the mean")

    def mixed(self, x):
        return x + self.mean(x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1)[:, None])

    def forward(self, tokens):
        return self.head(self.mixed(self.embedding(tokens)))


class ReadsSome(Mean):
    def forward(self, tokens, at=None):
        logits = super().forward(tokens)
        return logits if at is None else logits.gather(1, at[:, :, None].expand(-1, -1, VOCAB))


class Float32(Mean):
    """A model that computes in float32 only."""

    def mixed(self, x):
        past = torch.ones(2 * x.shape[1:2]).tril()
        return x + torch.einsum("ts,bsd->btd", past, self.mean(x))


@pytest.mark.parametrize("correct", [Mean, ReadsSome, Float32])
def test_a_correct_third_party_model_passes_and_is_not_changed(correct):
    model, state = ExternalModel(correct()), torch.random.get_rng_state()
    before = copy.deepcopy(model.state_dict())
    check_model(model, VOCAB, TIME)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(parameter.grad is None for parameter in model.parameters())


class SeesOneAhead(Mean):
    def mixed(self, x):
        return super().mixed(x) + F.pad(x, (0, 0, 0, 1))[:, 1:]


class SeesAheadInFloat32(Float32):
    def mixed(self, x):
        return super().mixed(x) + 1e-2 * x.mean(dim=1, keepdim=True)


class DependsOnLength(Mean):
    def mixed(self, x):
        return super().mixed(x) / x.shape[1]


class MixesRows(Mean):
    def mixed(self, x):
        return super().mixed(x - x.mean(dim=0))


class KeepsState(Mean):
    last = 0.0

    def mixed(self, x):
        x = super().mixed(x) + self.last
        self.last = float(x.detach().sum()) if x.shape[1] > 3 else 0.0
        return x


class Overflows(Mean):
    def mixed(self, x):
        late = torch.arange(x.shape[1]) > 8
        return super().mixed(x) * torch.where(late, torch.inf, 1.0)[:, None]


class UnusedParameter(Mean):
    def __init__(self):
        super().__init__()
        self.extra = nn.Parameter(torch.zeros(1))


class NaNGradient(Mean):
    def mixed(self, x):
        return super().mixed(x) + 0 * torch.sqrt(0 * x)


class IgnoredSite(Mean):
    def mixed(self, x):
        return super().mixed(x) * 0 + x


class ShortTable(Mean):
    def mixed(self, x):
        return super().mixed(x) + torch.zeros(8, 1).expand(8, 8)[: x.shape[1]]


class TooManyLogits(Mean):
    def forward(self, tokens):
        return F.pad(super().forward(tokens), (0, 1))


class ReadsElsewhere(ReadsSome):
    def forward(self, tokens, at=None):
        return super().forward(tokens, None if at is None else (at - 1).clamp(min=0))


@pytest.mark.parametrize(
    ("faulty", "reason"),
    [
        (SeesOneAhead, "must not see the future: changing token 1 and later"),
        (SeesAheadInFloat32, "must not see the future"),
        (DependsOnLength, "must not depend on the length"),
        (MixesRows, "must treat the rows of a batch independently"),
        (KeepsState, "must return the same logits for the same tokens"),
        (Overflows, "must return finite numbers; at length 17"),
        (UnusedParameter, "parameter module.extra has no gradient"),
        (NaNGradient, "parameter module.embedding.weight must have a finite gradient"),
        (IgnoredSite, "site mean is dead: editing it changes nothing"),
        (ShortTable, "keeps its shape: RuntimeError"),
        (TooManyLogits, "must return logits (batch, time, 11); at length 1 it returns (3, 1, 12)"),
        (ReadsElsewhere, "forward(tokens, at) must return what forward returns"),
    ],
)
def test_each_fault_is_rejected_with_its_reason(faulty, reason):
    with pytest.raises(CheckFailed) as error:
        check_model(ExternalModel(faulty()), VOCAB, TIME)
    assert any(reason in failure for failure in error.value.failures), error.value.failures
    assert str(error.value).startswith(faulty.__name__)


def test_a_model_is_checked_at_the_longest_documents_too(monkeypatch):
    class Table(Mean):
        def __init__(self, vocab_size, d_model, layers, max_len):
            super().__init__(vocab_size, d_model)

        def mixed(self, x):
            assert x.shape[1] <= 100, "too long for me"
            return super().mixed(x)

    models.names()
    monkeypatch.setattr(models, "_targets", {**models._targets, "table": Table})
    check_whole(ModelConfig(architecture="table", max_len=100))
    with pytest.raises(CheckFailed, match="too long for me"):
        check_whole(ModelConfig(architecture="table", max_len=101))
