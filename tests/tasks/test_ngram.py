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


@pytest.mark.parametrize("order", [1, 2])
def test_the_value_is_the_last_reading_of_the_answer_before_the_query(order):
    task = Ngram(order=order, vocab=2, length=16)
    docs = task.documents(0, "test", 0, 400)
    assert (docs.roles["value"] < docs.roles["query"]).all()
    assert (docs.roles["next_key"] == docs.roles["value"] + 1).all()
    for tokens, value, answer in zip(docs.tokens, docs.roles["value"], docs.answer, strict=True):
        text = "".join(map(chr, tokens))
        assert value == text.rfind(text[-order:] + chr(answer), 0, len(text) - 1) + order


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
        (
            "ngram:vocab=32,order=3,length=6",
            "in too few chains of length=6 the last 3 of vocab=32 symbols return; use a smaller",
        ),
    ],
)
def test_impossible_settings_are_refused(spec, line):
    with pytest.raises(InvalidInput, match=line):
        build_task(spec)
