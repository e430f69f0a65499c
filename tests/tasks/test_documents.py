import numpy as np
import pytest
from support.task_facts import equal, text_of

from mecheval.tasks.documents import PAD
from mecheval.tasks.recall import Recall
from mecheval.tasks.treecall import Treecall


@pytest.fixture(
    params=[Recall(pairs=6, min_pairs=2, vocab=32), Treecall()], ids=["recall", "treecall"]
)
def docs(request):
    return request.param.documents(0, "test", 100, 200)


def test_rows_are_taken_in_the_order_asked_for(docs):
    texts = text_of(docs)
    rows = np.array([5, 2, 99, 2])
    taken = docs[rows]
    assert text_of(taken) == [texts[row] for row in rows]
    assert taken.index.tolist() == [105, 102, 199, 102]
    assert taken.at("key").tolist() == docs.at("key")[rows].tolist()


def test_slices_and_masks_take_the_same_rows_as_numbers(docs):
    mask = np.zeros(100, bool)
    mask[10:20] = True
    assert equal(docs[10:20], docs[np.arange(10, 20)])
    assert equal(docs[mask], docs[10:20])
    assert equal(docs[:], docs)


def test_a_table_is_as_wide_as_its_longest_row_and_padded_on_the_right(docs):
    few = docs[:7]
    assert few.tokens.shape == (7, few.lengths.max())
    for i in range(7):
        assert (few.tokens[i, : few.lengths[i]] != PAD).all()
        assert (few.tokens[i, few.lengths[i] :] == PAD).all()


def test_no_rows_are_no_documents(docs):
    none = docs[:0]
    assert len(none) == 0
    assert none.tokens.shape == (0, 0)


def test_replacing_tokens_keeps_everything_else(docs):
    again = docs.with_tokens(docs.tokens.copy())
    assert equal(again, docs)
