"""The receptive field is measured by perturbation: of the model, and of each of its blocks."""

import pytest
import torch.nn.functional as F
from torch import nn

from mecheval.interventions.reach import MATTERS, reach
from mecheval.models.build import build_model
from mecheval.models.config import ModelConfig
from mecheval.models.registries import mixers
from mecheval.tasks.recall import Recall

TASK = Recall(pairs=4, vocab=16)


class Near(nn.Module):
    """Reads its own token and the two before it."""

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(d_model, d_model, 3)

    def forward(self, x):
        return self.conv(F.pad(x.mT, (2, 0))).mT


def measured(architecture, layers=2):
    config = ModelConfig(architecture, d_model=16, layers=layers, max_len=32, init_linear=10.0)
    return reach(build_model(config, TASK.vocab_size), TASK, documents=16)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_window_reaches_two_tokens_further_with_every_layer(layers, monkeypatch):
    monkeypatch.setattr(mixers, "_targets", {**mixers._targets, "near": Near})
    whole, *blocks = measured("near", layers)
    assert whole.possible == min(2 * layers, TASK.max_len - 1)
    assert [(block.layer, block.possible) for block in blocks] == [(i, 2) for i in range(layers)]
    assert all(change.most == 0 for change in whole.changes if change.distance > 2 * layers)


def test_attention_reaches_the_first_token():
    whole, first, second = measured("attention")
    assert [one.possible for one in (whole, first, second)] == [TASK.max_len - 1] * 3
    assert [change.distance for change in whole.changes] == list(range(1, TASK.max_len))
    assert all(
        change.n == 16 and change.low <= change.value <= change.high for change in whole.changes
    )
    assert whole.tokens == max(
        (change.distance for change in whole.changes if change.value >= MATTERS), default=0
    )


def test_documents_of_different_lengths_are_counted_where_they_are_long_enough():
    task = Recall(pairs=4, min_pairs=2, vocab=16)
    config = ModelConfig("attention", d_model=8, max_len=32)
    whole, *_ = reach(build_model(config, task.vocab_size), task, documents=32)
    counts = [change.n for change in whole.changes]
    assert counts[0] == 32
    assert counts == sorted(counts, reverse=True)
    assert 2 <= counts[-1] < 32, "a single document has no interval"
