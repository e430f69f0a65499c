from collections import Counter

import numpy as np
import pytest
from scipy import stats

from mecheval.core.errors import InvalidInput
from mecheval.tasks.documents import FIRST_SYMBOL
from mecheval.tasks.overwrite import Overwrite

TASK = Overwrite(pairs=4, updates=2, queries=3, vocab=16)


def test_without_the_update_the_old_value_is_right():
    docs = TASK.documents(0, "test", 0, 500)
    twins = TASK.corrupt(docs, "key", 0)
    assert twins.usable.all()
    assert (twins.documents.answer == docs.at("old_value")).all()
    for role in ("old_key", "old_value"):
        assert not TASK.corrupt(docs, role, 0).usable.any()


def test_keys_differ_old_values_differ_and_a_new_value_is_any_other_than_the_old():
    docs = TASK.documents(0, "train", 0, 40_000)
    keys, old = docs.tokens[:, 1:9:2], docs.tokens[:, 2:9:2]
    for drawn in (keys, old):
        assert all(len(set(row)) == 4 for row in drawn[:2000].tolist())
    shift = (docs.at("value") - docs.at("old_value")) % 8
    assert (shift > 0).all()
    assert stats.chisquare(np.bincount(shift)[1:]).pvalue > 1e-3


def test_any_two_pairs_are_updated_and_the_first_query_is_either():
    """The public generator updates a random choice without replacement, in random order."""
    docs = TASK.documents(0, "train", 0, 30_000)
    at = [np.argmax(docs.tokens[:, 1:9:2] == docs.tokens[:, 9 + 2 * j, None], 1) for j in (0, 1)]
    counts = Counter(zip(*(places.tolist() for places in at), strict=True))
    assert len(counts) == 12
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3
    place = np.bincount((docs.roles["key"] - 9) // 2, minlength=2)
    assert stats.chisquare(place).pvalue > 1e-3


def test_the_other_queries_are_any_of_the_other_keys():
    docs = TASK.documents(0, "train", 0, 30_000)
    asked = np.take_along_axis(docs.tokens, docs.queries, axis=1)
    assert all(len(set(row)) == 3 for row in asked[:2000].tolist())
    second = np.argmax(docs.tokens[:, 1:9:2] == asked[:, 1, None], axis=1)
    first = (docs.roles["old_key"] - 1) // 2
    assert stats.chisquare(np.bincount((second - first) % 4)[1:]).pvalue > 1e-3
    assert (asked >= FIRST_SYMBOL).all()


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"updates": 9}, "updates=9 must be at most pairs=8"),
        ({"queries": 9}, "queries=9 must be at most pairs=8"),
        ({"updates": 0}, "updates=0 must be an integer from 1"),
        ({"pairs": 0}, "pairs=0 must be an integer from 1"),
        ({"pairs": 9, "vocab": 16}, "pairs=9 must be at most 8, the number of keys in vocab=16"),
        ({"vocab": 15}, "vocab=15 must be an even integer"),
        ({"vocab": 2, "pairs": 1}, "vocab=2 must be an even integer from 4"),
    ],
)
def test_impossible_settings_are_refused(setting, line):
    with pytest.raises(InvalidInput, match=line):
        Overwrite(**setting)
