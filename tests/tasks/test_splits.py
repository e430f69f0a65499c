import numpy as np
import pytest

from mecheval.tasks.splits import HeldOut, share_complaint


@pytest.mark.parametrize(("symbols", "share"), [(2, 0.5), (20, 0.2), (31, 0.9), (100, 0.01)])
def test_every_symbol_takes_part_in_the_same_number_of_held_out_types(symbols, share):
    types = HeldOut.draw("a task", symbols, share)
    table = np.array([[(q, a) in types for a in range(symbols)] for q in range(symbols)])
    assert (table.sum(axis=0) == round(symbols * share)).all()
    assert (table.sum(axis=1) == round(symbols * share)).all()


def test_train_and_dev_share_their_types_and_test_has_the_others():
    types = HeldOut.draw("a task", 20, 0.2)
    for q in range(20):
        for a in range(20):
            assert types.asks("train", q, a) == types.asks("dev", q, a) != types.asks("test", q, a)


def test_without_held_out_types_every_split_asks_about_all():
    types = HeldOut.draw("a task", 5, 0.0)
    assert all(
        types.asks(split, q, a)
        for split in ("train", "dev", "test")
        for q in range(5)
        for a in range(5)
    )


def test_another_task_holds_out_other_types():
    one, other = HeldOut.draw("one", 50, 0.2), HeldOut.draw("other", 50, 0.2)
    assert [(q, 7) in one for q in range(50)] != [(q, 7) in other for q in range(50)]


@pytest.mark.parametrize(("symbols", "share"), [(1, 0.5), (10, 0.01), (10, 0.99)])
def test_a_share_that_leaves_one_side_empty_is_refused(symbols, share):
    assert f"held_out={share}" in share_complaint(share, symbols, "answers")
    assert share_complaint(0.0, symbols, "answers") is None
