from collections import Counter

import numpy as np
import pytest
from scipy import stats

from mecheval.core.errors import InvalidInput
from mecheval.plugins import build_task
from mecheval.tasks.documents import FIRST_SYMBOL
from mecheval.tasks.ngram import Ngram, chain_ref
from mecheval.tasks.philox import Stream


def test_the_chance_to_stay_is_distributed_as_a_uniform_dirichlets():
    """Of two symbols the first stays k times with a probability of 1 / (k + 1), the mean of pᵏ."""
    chains = [chain_ref(Stream(5, i), 1, 2, 6) for i in range(3000)]
    runs = np.array([next((i for i, s in enumerate(c) if s != c[0]), 6) for c in chains])
    expected = [1 / (k * (k + 1)) for k in range(1, 6)]
    counts = np.bincount(runs, minlength=7)[1:]
    assert stats.chisquare(counts, 3000 * np.array([*expected, 1 / 6])).pvalue > 1e-3


def test_the_answer_is_the_most_frequent_successor_and_most_frequent_alone():
    task = Ngram(order=2, vocab=3, length=60)
    docs = task.documents(0, "test", 0, 400)
    for tokens, answer in zip(docs.tokens[:, 1:].tolist(), docs.answer.tolist(), strict=True):
        follows = [
            tokens[i] for i in range(2, 60) if (tokens[i - 2], tokens[i - 1]) == tuple(tokens[-2:])
        ]
        (best, most), *others = Counter(follows).most_common()
        assert best == answer
        assert len(follows) >= 2
        assert all(count < most for _, count in others)


def test_most_answers_survive_one_wrong_reading():
    """What separates statistics from a look-up."""
    docs = Ngram(vocab=3).documents(0, "test", 0, 500)
    twins = Ngram(vocab=3).corrupt(docs, "key", 0)
    assert twins.usable.mean() < 0.3


def test_symbols_are_alike():
    docs = Ngram(vocab=4, length=30).documents(0, "train", 0, 40_000)
    assert stats.chisquare(np.bincount(docs.tokens[:, 1] - FIRST_SYMBOL)).pvalue > 1e-3
    assert stats.chisquare(np.bincount(docs.answer - FIRST_SYMBOL)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("ngram:order=4", "order=4 must be an integer from 1 to 3"),
        ("ngram:vocab=1", "vocab=1 must be an integer from 2"),
        ("ngram:vocab=64,order=3", "vocab=64 has more than 32768 contexts of order=3"),
        ("ngram:length=4,order=3", "length=4 must be at least 6 for order=3"),
        ("ngram:vocab=32,order=3,length=6", "length=6 must be larger: in too few chains"),
    ],
)
def test_impossible_settings_are_refused(spec, line):
    with pytest.raises(InvalidInput, match=line):
        build_task(spec)
