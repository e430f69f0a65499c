from dataclasses import dataclass

import pytest

from mecheval.tasks import probe
from mecheval.tasks.reference import PlainDocument


@dataclass
class Some:
    """A task one in `of` of whose draws is accepted, each of a hundred random words."""

    key: str
    of: int
    draws: int = 0

    def reference(self, rng, split):
        self.draws += 1
        drawn = [rng.below(self.of) for _ in range(100)]
        return None if drawn[-1] else PlainDocument([], {}, [], [])


def test_draws_of_many_words_are_not_judged_by_one(monkeypatch):
    monkeypatch.setattr(probe, "PROBED_WORDS", 10)
    shares = [probe.acceptance(Some(str(key), 4)) for key in range(20)]
    assert min(shares) >= 1 / 50
    assert sum(shares) / 20 > 1 / 8


@pytest.mark.parametrize(("limit", "draws"), [(64, 1), (200, 2), (10**6, probe.FEWEST)])
def test_draws_of_very_many_words_end(monkeypatch, limit, draws):
    monkeypatch.setattr(probe, "PROBED_WORDS", 10)
    monkeypatch.setattr(probe, "MOST_WORDS", limit)
    task = Some("none", 2**32)
    assert probe.acceptance(task) == 0
    assert task.draws == draws
