from dataclasses import dataclass

import pytest

from mecheval.tasks import probe
from mecheval.tasks.reference import PlainDocument


@dataclass
class Quarter:
    """A task one in four of whose draws is accepted, each of many random words."""

    key: str
    words: int = 64

    def reference(self, rng, split):
        drawn = [rng.below(4) for _ in range(self.words)]
        return None if drawn[-1] else PlainDocument([], {}, [], [])


def test_draws_of_many_words_are_not_judged_by_one(monkeypatch):
    monkeypatch.setattr(probe, "PROBED_WORDS", 10)
    shares = [probe.acceptance(Quarter(str(key))) for key in range(20)]
    assert min(shares) >= 1 / 50
    assert sum(shares) / 20 > 1 / 8


@pytest.mark.parametrize("limit", [64, 200])
def test_draws_of_very_many_words_end(monkeypatch, limit):
    monkeypatch.setattr(probe, "PROBED_WORDS", 10)
    monkeypatch.setattr(probe, "MOST_WORDS", limit)
    assert probe.acceptance(Quarter("none", 100)) in {0, 1, 1 / 2, 1 / 3}
