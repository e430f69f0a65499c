import numpy as np
import pytest
from scipy import stats

from mecheval.core.errors import InvalidInput
from mecheval.tasks.copy import Copy
from mecheval.tasks.documents import FIRST_SYMBOL


def test_every_blank_stands_before_any_of_the_symbols():
    """The public generator inserts each blank before a random one, never behind the last."""
    task = Copy(count=3, blanks=4, vocab=5)
    docs = task.documents(0, "train", 0, 20_000)
    ours, rng = np.zeros((5, 5)), np.random.default_rng(0)
    symbols = np.argwhere(docs.tokens[:, 1:8] < FIRST_SYMBOL + 5)[:, 1].reshape(-1, 3)
    np.add.at(ours, (symbols[:, 0], symbols[:, 1] - symbols[:, 0] - 1), 1)
    theirs = np.zeros((5, 5))
    for _ in range(20_000):
        document = np.insert(np.ones(3), rng.integers(0, 3, 4), 4 * [0])
        one, two, three = np.flatnonzero(document)
        assert three == 6
        theirs[one, two - one - 1] += 1
    found = theirs > 20
    assert stats.chi2_contingency([ours[found], theirs[found]]).pvalue > 1e-3


def test_symbols_and_the_rank_of_the_first_query_are_uniform():
    docs = Copy(count=4, blanks=3, vocab=5).documents(0, "train", 0, 30_000)
    rank = docs.roles["query"] - docs.roles["divider"] - 1
    table = np.zeros((4, 5))
    np.add.at(table, (rank, docs.answer - FIRST_SYMBOL), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-3
    inorder = np.sort(docs.queries, axis=1)
    assert (inorder == docs.roles["divider"][:, None] + np.arange(1, 5)).all()


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"count": 0}, "count=0 must be an integer from 1"),
        ({"blanks": -1}, "blanks=-1 must be an integer from 0"),
        ({"vocab": 1}, "vocab=1 must be an integer from 2"),
    ],
)
def test_impossible_settings_are_refused(setting, line):
    with pytest.raises(InvalidInput, match=line):
        Copy(**setting)
