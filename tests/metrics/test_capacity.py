"""The capacity curve counts right answers, by pairs and by distance."""

import numpy as np
import pytest
from support import known_models
from support.hub_models import with_words

from mecheval.core.errors import InvalidInput
from mecheval.metrics.capacity import capacity, most_pairs, with_pairs
from mecheval.metrics.statistics import proportion_interval
from mecheval.models.hf.lexicon import in_words
from mecheval.tasks.recall import Recall
from mecheval.tasks.treecall import Treecall

TASK = known_models.TASK


def test_a_model_that_copies_the_last_value_is_right_where_that_is_the_answer():
    curve = capacity(known_models.copies_the_last_value(), TASK, (2, 3), documents=200)
    for row in curve.by_pairs():
        nearest, *others = curve.by_distance(row.pairs)
        assert nearest.accuracy == 1.0
        assert not any(other.accuracy for other in others)
        assert [other.distance for other in (nearest, *others)] == [2, 4, 6][: row.pairs]
        assert sum(other.n for other in (nearest, *others)) == row.n == 200
        assert row.accuracy == pytest.approx(1 / row.pairs, abs=0.12)
        right = round(row.accuracy * row.n)
        assert (row.low, row.high) == proportion_interval(right, row.n)
        assert row.chance == pytest.approx(1 / row.pairs, abs=0.01)
    assert curve.plot().axes
    assert len(curve.to_frame()) == 2 + 2 + 3


def test_a_model_that_recalls_is_right_at_every_number_of_pairs():
    for row in capacity(known_models.induction(), TASK, (2, 4), documents=64).rows:
        assert row.accuracy == 1.0
        assert row.likelihood > 0.99


def test_in_words_pairs_grow_and_words_stay():
    model = with_words()
    task = in_words(Recall(pairs=3, passes=2), model)
    grown = with_pairs(task, 6)
    assert grown.words == task.words
    assert grown.documents(0, "test", 0, 1).lengths[0] == 1 + 2 * 6 * 3 + 1
    curve = capacity(model, task, (2, 4), documents=8)
    assert [row.n for row in curve.by_pairs()] == [8, 8]
    assert np.isfinite(curve.to_frame()["likelihood"]).all()


def test_numbers_of_pairs_without_symbols_are_left_out_or_refused():
    assert most_pairs(Recall(pairs=2, vocab=16), (2, 8, 9, 16), 99) == [2, 8]
    assert most_pairs(Recall(pairs=2, vocab=16), (2, 8), Recall(pairs=7).max_len) == [2]
    with pytest.raises(InvalidInput, match="pairs=\\(9,\\) are all too many"):
        most_pairs(Recall(pairs=2, vocab=16), (9,), 99)
    with pytest.raises(InvalidInput, match="needs a task with the option pairs"):
        most_pairs(Treecall(), (2,), 99)
    with pytest.raises(InvalidInput, match="pairs=9 must be at most 8"):
        capacity(known_models.induction(), TASK, (9,))
    with pytest.raises(InvalidInput, match="needs a task with the option pairs"):
        capacity(known_models.induction(), Treecall(), (2,))
