from collections import Counter

import numpy as np
import pytest
from scipy import stats

from mecheval.core.errors import InvalidInput
from mecheval.tasks.documents import FIRST_SYMBOL
from mecheval.tasks.hops import Hops


def test_the_edges_are_those_of_one_cycle_in_any_order():
    docs = Hops(nodes=4, hops=3, queries=1, vocab=8).documents(0, "train", 0, 30_000)
    sources, targets = docs.tokens[:, 1:9:2], docs.tokens[:, 2:9:2]
    orders = Counter()
    for row, (xs, ys) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
        successor = dict(zip(xs, ys, strict=True))
        walk = [xs[0]]
        while successor[walk[-1]] != xs[0]:
            walk.append(successor[walk[-1]])
        assert len(set(walk)) == 4, row
        orders[tuple(walk.index(x) for x in xs)] += 1
    assert len(orders) == 6
    assert stats.chisquare(list(orders.values())).pvalue > 1e-3
    assert stats.chisquare(np.bincount(sources[:, 0] - FIRST_SYMBOL)).pvalue > 1e-3


def test_node_and_number_of_hops_are_uniform():
    docs = Hops(nodes=5, hops=4, queries=2, vocab=8).documents(0, "train", 0, 30_000)
    place = (docs.roles["key"] - 1) // 2
    table = np.zeros((5, 4))
    np.add.at(table, (place, docs.at("count") - FIRST_SYMBOL - 8), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-3


def test_the_number_of_nodes_follows_the_public_generators_law():
    docs = Hops(nodes=12, min_nodes=3, vocab=16).documents(0, "train", 0, 50_000)
    nodes = np.bincount((docs.roles["divider"] - 1) // 2, minlength=13)
    law = 1 / (np.arange(3, 13) + 12**0.5)
    assert nodes[:3].sum() == 0
    assert stats.chisquare(nodes[3:], 50_000 * law / law.sum()).pvalue > 1e-3


def test_once_round_the_cycle_the_edges_are_the_same_and_the_answer_the_question():
    task = Hops(nodes=3, hops=7, queries=1, vocab=8)
    docs = task.documents(0, "test", 0, 500)
    hops = docs.at("count") - task.symbols("count").start + 1
    assert {*hops.tolist()} == {*range(1, 8)}
    assert ((docs.roles["key"] == docs.roles["last_key"]) == ((hops - 1) % 3 == 0)).all()
    assert ((docs.answer == docs.at("query")) == (hops % 3 == 0)).all()


def test_a_wrong_edge_on_the_way_takes_the_answer_away():
    task = Hops(nodes=8, hops=3, queries=1, vocab=32)
    docs = task.documents(0, "test", 0, 500)
    several = docs.at("count") > FIRST_SYMBOL + 32
    for role in ("key", "hop", "last_key"):
        twins = task.corrupt(docs, role, 0)
        assert twins.usable.all()
        assert (twins.documents.answer[several] == -1).all()
    twins = task.corrupt(docs, "value", 0)
    assert (twins.documents.answer == twins.documents.at("value")).all()


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"nodes": 129}, "nodes=129 must be at most vocab=128"),
        ({"min_nodes": 80}, "min_nodes=80 must be at most nodes=75"),
        ({"nodes": 1}, "nodes=1 must be an integer from 2"),
        ({"hops": 0}, "hops=0 must be an integer from 1"),
        ({"queries": 0}, "queries=0 must be an integer from 1"),
    ],
)
def test_impossible_settings_are_refused(setting, line):
    with pytest.raises(InvalidInput, match=line):
        Hops(**setting)
