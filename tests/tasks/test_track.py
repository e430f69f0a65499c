import numpy as np
import pytest
from scipy import stats

from mecheval.core.errors import InvalidInput
from mecheval.plugins import build_task
from mecheval.tasks.documents import FIRST_SYMBOL
from mecheval.tasks.groups import ORDERS, multiplication_table
from mecheval.tasks.track import Track


@pytest.mark.parametrize("group", ORDERS)
def test_the_table_is_that_of_a_group_of_its_order(group):
    table, n = multiplication_table(group), ORDERS[group]
    assert table.shape == (n, n)
    assert (table[0] == np.arange(n)).all()
    assert (table[:, 0] == np.arange(n)).all()
    for line in (table, table.T):
        assert (np.sort(line, axis=1) == np.arange(n)).all()
    a, b, c = np.random.default_rng(0).integers(0, n, (3, 2000))
    assert (table[table[a, b], c] == table[a, table[b, c]]).all()
    assert (table == table.T).all() == (group == "Z60")


def test_a5_has_no_quotient_that_commutes_and_s5_has_signs():
    """Products of commutators are all of A5, which is what makes its word problem hard."""
    sizes = {}
    for group in ("A5", "S5", "S3"):
        table = multiplication_table(group)
        inverse = np.argmin(table, axis=1)
        a, b = np.indices(table.shape)
        sizes[group] = len(np.unique(table[table[a, b], inverse[table[b, a]]]))
    assert sizes == {"A5": 60, "S5": 60, "S3": 3}


def test_elements_and_the_place_of_the_corrupted_one_are_uniform():
    docs = Track(group="S3", length=5).documents(0, "train", 0, 30_000)
    table = np.zeros((4, 6))
    np.add.at(table, (docs.roles["element"] - 1, docs.at("element") - FIRST_SYMBOL), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-3
    assert stats.chisquare(np.bincount(docs.answer - FIRST_SYMBOL)).pvalue > 1e-3


@pytest.mark.parametrize("group", ORDERS)
def test_a_wrong_element_changes_every_product_from_there_on_and_none_before(group):
    task = Track(group=group, length=9)
    docs = task.documents(0, "test", 0, 300)
    twins = task.corrupt(docs, "element", 0)
    assert twins.usable.all()
    changed = twins.documents.answers != docs.answers
    assert (changed == (docs.queries >= docs.roles["element"][:, None])).all()


def test_an_exchange_changes_the_products_between_alone_where_all_commute():
    task = Track(group="Z60", length=9)
    docs = task.documents(0, "test", 0, 300)
    twins = task.corrupt(docs, "element", 0, "swap")
    assert not twins.usable.any()
    moved = twins.documents.tokens != docs.tokens
    assert (moved.sum(axis=1) == 2).mean() > 0.9  # else no other element differs
    between = (moved.cumsum(axis=1) == 1)[:, 1:]
    changed = np.zeros((len(docs), 9), bool)
    answers = twins.documents.answers != docs.answers
    np.put_along_axis(changed, docs.queries.astype(np.int64) - 1, answers, axis=1)
    assert (changed == between).all()
    task = Track(group="A5", length=9)
    assert task.corrupt(task.documents(0, "test", 0, 300), "element", 0, "swap").usable.mean() > 0.9


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("track:group=S4", "group=S4 must be one of Z60, A5, S5, S3"),
        ("track:length=1", "length=1 must be an integer from 2"),
    ],
)
def test_impossible_settings_are_refused(setting, line):
    with pytest.raises(InvalidInput, match=line):
        build_task(setting)
