from collections import Counter

import numpy as np
import pytest
from scipy import stats

from mecheval.core.errors import InvalidInput
from mecheval.tasks.compose import Compose
from mecheval.tasks.documents import FIRST_SYMBOL

TASK = Compose(grid=2, queries=2, vocab=24)


def test_every_first_half_stands_with_every_second_half_and_values_differ():
    task = Compose(grid=3, queries=9, vocab=60)
    docs = task.documents(0, "test", 0, 200)
    for row in docs.tokens.tolist():
        triples = [tuple(row[at : at + 3]) for at in range(1, 28, 3)]
        firsts, seconds, values = ({triple[i] for triple in triples} for i in range(3))
        assert len(firsts) == len(seconds) == 3
        assert len({triple[:2] for triple in triples}) == len(values) == 9


def test_neither_half_decides():
    """The best guess from one half is right for one of the values that it stands with."""
    docs = TASK.documents(0, "test", 0, 4000)
    for half, query in ((0, "first_query"), (1, "query")):
        same = docs.tokens[:, 1 + half : 13 : 3] == docs.at(query)[:, None]
        assert (same.sum(axis=1) == 2).all()
        last = docs.tokens[np.arange(4000), 3 + 3 * (3 - np.argmax(same[:, ::-1], axis=1))]
        assert abs((last == docs.answer).mean() - 0.5) < 0.03


def test_the_order_of_the_grid_is_any_and_so_is_the_one_that_is_asked():
    docs = TASK.documents(0, "train", 0, 48_000)
    first = docs.tokens[:, 1:13:3] == docs.tokens[:, 1, None]
    second = docs.tokens[:, 2:13:3] == docs.tokens[:, 2, None]
    orders = Counter(map(tuple, (2 * first + second).tolist()))
    assert len(orders) == 6
    assert stats.chisquare(list(orders.values())).pvalue > 1e-3
    asked = np.bincount((docs.roles["first_half"] - 1) // 3, minlength=4)
    assert stats.chisquare(asked).pvalue > 1e-3
    for place in (1, 2, 3):
        drawn = np.bincount(docs.tokens[:, place] - FIRST_SYMBOL - 8 * (place - 1), minlength=8)
        assert stats.chisquare(drawn).pvalue > 1e-4


@pytest.mark.parametrize("role", ["key", "first_half", "query", "first_query"])
def test_either_half_takes_the_answer_away_and_a_swap_gives_another(role):
    docs = TASK.documents(0, "test", 0, 300)
    twins = TASK.corrupt(docs, role, 0)
    assert twins.usable.all()
    assert (twins.documents.answer == -1).all()
    swapped = TASK.corrupt(docs, role, 0, "swap")
    assert swapped.usable.all()
    assert np.isin(swapped.documents.answer, TASK.symbols("value")).all()


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"vocab": 8192}, "vocab=8192 must be divisible by 3"),
        ({"grid": 1}, "grid=1 must be an integer from 2"),
        ({"grid": 4, "vocab": 45}, "grid=4 needs 16 values; vocab=45 has 15"),
        ({"queries": 5}, "queries=5 must be at most 4, the triples of grid=2"),
        ({"queries": 0}, "queries=0 must be an integer from 1"),
    ],
)
def test_impossible_settings_are_refused(setting, line):
    with pytest.raises(InvalidInput, match=line):
        Compose(**setting)
