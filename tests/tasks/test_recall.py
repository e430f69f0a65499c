from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.task_facts import assert_drawn_alike, assert_recall_facts

from mecheval.core.errors import InvalidInput
from mecheval.tasks.documents import FIRST_SYMBOL
from mecheval.tasks.recall import Recall


@st.composite
def settings_of_recall(draw):
    half = draw(st.integers(2, 200))
    pairs = draw(st.integers(1, min(half, 40)))
    fewest = draw(st.none() | st.integers(1, pairs))
    queries = draw(st.integers(1, fewest or pairs))
    slots = draw(st.none() | st.integers(queries, 2 * queries + 5))
    gaps = {"gaps": draw(st.sampled_from([0.01, 0.5, 1.0, 3.0])), "filler": draw(st.integers(1, 9))}
    return {
        "vocab": 2 * half,
        "pairs": pairs,
        "min_pairs": fewest,
        "queries": queries,
        "passes": draw(st.sampled_from([1, 1, 2, 3])),
        "slots": slots,
        **(gaps if slots else {}),
        "query": draw(st.sampled_from(["key", "value"])),
        "held_out": draw(st.sampled_from([0.0, 0.0, 0.2, 0.5, 0.8])),
    }


def recall(setting):
    try:
        return Recall(**setting)
    except InvalidInput:
        assert setting["held_out"] > 0
        return Recall(**{**setting, "held_out": 0.0})


splits = st.sampled_from(["train", "dev", "test"])
starts = st.integers(0, 2**40)


@pytest.mark.slow
@given(settings_of_recall(), splits, starts)
@settings(max_examples=200)
def test_documents_are_what_the_task_says(setting, split, start):
    task = recall(setting)
    assert_recall_facts(task, task.documents(0, split, start, start + 8))


@given(settings_of_recall(), splits, starts)
@settings(max_examples=60)
def test_compiled_documents_are_those_of_the_plain_twin(setting, split, start):
    assert_drawn_alike(recall(setting), 1, split, start, start + 4)


@pytest.mark.parametrize("query", ["key", "value"])
def test_held_out_types_are_all_of_test_and_none_of_train_and_dev(query):
    task = Recall(pairs=8, vocab=64, held_out=0.25, query=query, queries=2)
    for split, expected in (("train", 0.0), ("dev", 0.0), ("test", 1.0)):
        docs = task.documents(0, split, 0, 2000)
        first = FIRST_SYMBOL if query == "key" else FIRST_SYMBOL + 32
        asked = np.take_along_axis(docs.tokens, docs.queries, axis=1) - first
        answers = docs.answers - (2 * FIRST_SYMBOL + 32 - first)
        held = [
            (int(q), int(a)) in task.types
            for q, a in zip(asked.ravel(), answers.ravel(), strict=True)
        ]
        assert np.mean(held) == expected


def test_every_pair_is_asked_about_equally_often():
    docs = Recall(pairs=8, vocab=64).documents(0, "train", 0, 100_000)
    asked = np.bincount((docs.roles["key"] - 1) // 2, minlength=8)
    assert stats.chisquare(asked).pvalue > 1e-3


def test_every_key_and_value_is_drawn_equally_often_at_every_place():
    docs = Recall(pairs=3, vocab=16).documents(0, "train", 0, 100_000)
    for place in range(1, 7):
        counts = np.bincount(
            docs.tokens[:, place] - (FIRST_SYMBOL if place % 2 else FIRST_SYMBOL + 8), minlength=8
        )
        assert stats.chisquare(counts).pvalue > 1e-4


def test_keys_and_values_are_paired_independently():
    docs = Recall(pairs=3, vocab=8).documents(0, "train", 0, 100_000)
    table = np.zeros((4, 4))
    np.add.at(table, (docs.tokens[:, 1] - FIRST_SYMBOL, docs.tokens[:, 2] - FIRST_SYMBOL - 4), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_lengths_of_a_range_are_equally_likely():
    docs = Recall(pairs=9, min_pairs=4, vocab=64).documents(0, "train", 0, 60_000)
    counts = Counter(((docs.lengths - 3) // 2).tolist())
    assert sorted(counts) == [4, 5, 6, 7, 8, 9]
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_the_training_set_is_arrays_of_int32():
    docs = Recall().documents(0, "train", 0, 100_032)
    assert docs.flat.dtype == np.int32
    assert docs.flat.nbytes == 100_032 * 67 * 4
    assert docs.nbytes < 1.2 * docs.flat.nbytes


@pytest.mark.parametrize("exponent", [0.01, 1.0, 2.0])
def test_the_gaps_of_a_single_query_follow_the_power_law(exponent):
    task = Recall(pairs=3, vocab=16, slots=12, gaps=exponent, filler=2)
    docs = task.documents(0, "train", 0, 50_000)
    gap = (docs.roles["query"] - docs.roles["divider"] - 1) // 2
    law = np.arange(1, 13) ** (exponent - 1)
    assert stats.chisquare(np.bincount(gap, minlength=12), 50_000 * law / law.sum()).pvalue > 1e-3


def test_the_gaps_of_several_queries_are_those_of_a_draw_without_replacement():
    """The public generator draws them with numpy's `choice(replace=False, p=law)`."""
    task = Recall(pairs=3, vocab=16, queries=3, slots=6, gaps=0.01)
    docs = task.documents(0, "train", 0, 20_000)
    ours = Counter(map(tuple, ((docs.queries - docs.roles["divider"][:, None] - 1) // 2).tolist()))
    law, rng = np.arange(1, 7) ** (0.01 - 1), np.random.default_rng(0)
    theirs = Counter()
    for _ in range(20_000):
        theirs[tuple(sorted(rng.choice(6, 3, replace=False, p=law / law.sum()).tolist()))] += 1
    table = [[counts[slots] for slots in sorted(theirs)] for counts in (ours, theirs)]
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_a_second_reading_is_corrupted_with_the_first():
    task = Recall(pairs=4, vocab=32, passes=2)
    docs = task.documents(0, "test", 0, 300)
    for kind, changes in (("resample", 2), ("swap", 4)):
        twins = task.corrupt(docs, "key", 0, kind)
        assert twins.usable.all()
        assert ((twins.documents.tokens != docs.tokens).sum(axis=1) == changes).all()
        assert (twins.documents.at("key") == twins.documents.at("first_key")).all()
        assert_recall_facts(task, docs)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"queries": 3, "slots": 2}, "slots=2 must be at least queries=3"),
        ({"gaps": 0.5}, "gaps=0.5 needs slots"),
        ({"filler": 7}, "filler=7 needs slots"),
        ({"passes": 0}, "passes=0 must be an integer from 1 to 16"),
        ({"slots": 9, "gaps": 0.0}, "gaps=0.0 must be a number above 0 to 16"),
    ],
)
def test_impossible_slots_are_refused(setting, line):
    with pytest.raises(InvalidInput, match=line):
        Recall(**setting)
