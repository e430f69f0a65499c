from collections import Counter

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy import stats
from support.task_facts import assert_drawn_alike, assert_treecall_facts, target_of

from mecheval.core.errors import InvalidInput
from mecheval.tasks.documents import FIRST_SYMBOL
from mecheval.tasks.treecall import Treecall

QUERIES = ["parent", "sibling", "child", "grandparent"]


settings_of_treecall = st.fixed_dictionaries(
    {
        "terminals": st.integers(3, 60),
        "nonterminals": st.integers(2, 40),
        "max_depth": st.integers(2, 12),
        "max_rhs": st.integers(3, 9),
        "max_rules": st.integers(1, 6),
        "terminal_weight": st.floats(1, 50),
        "head": st.sampled_from(["left", "right"]),
        "grammar_seed": st.integers(0, 1000),
        "max_len": st.sampled_from([12, 50, 1024]),
        "query": st.sampled_from(QUERIES),
        "held_out": st.sampled_from([0.0, 0.0, 0.2, 0.5]),
    }
)
splits = st.sampled_from(["train", "dev", "test"])
starts = st.integers(0, 2**40)


def treecall(setting):
    try:
        return Treecall(**setting)
    except InvalidInput:
        reject()


@pytest.mark.slow
@given(settings_of_treecall, splits, starts)
@settings(max_examples=150)
def test_documents_are_what_the_task_says(setting, split, start):
    task = treecall(setting)
    assert_treecall_facts(task, task.documents(0, split, start, start + 6))


@given(settings_of_treecall, splits, starts)
@settings(max_examples=80)
def test_compiled_documents_are_those_of_the_plain_twin(setting, split, start):
    assert_drawn_alike(treecall(setting), 1, split, start, start + 4)


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("head", ["left", "right"])
def test_every_query_and_head_position_at_the_papers_size(query, head):
    task = Treecall(query=query, head=head)
    assert_treecall_facts(task, task.documents(0, "test", 0, 300))
    assert_drawn_alike(task, 0, "test", 0, 300)


@pytest.mark.parametrize("query", QUERIES)
def test_held_out_types_are_all_of_test_and_none_of_train_and_dev(query):
    task = Treecall(held_out=0.2, query=query)
    for split, expected in (("train", 0.0), ("dev", 0.0), ("test", 1.0)):
        docs = task.documents(0, split, 0, 2000)
        types = zip(docs.at("query") - FIRST_SYMBOL, docs.answer - FIRST_SYMBOL, strict=True)
        assert np.mean([(int(q), int(a)) in task.types for q, a in types]) == expected


def test_a_fifth_of_all_types_is_held_out():
    types = Treecall(held_out=0.2).types
    held = [(q, a) in types for q in range(20) for a in range(20)]
    assert np.mean(held) == 0.2


def expected_strings(grammar):
    """Return the chance of each (body, head) in a flat grammar, without rejected strings."""
    chances = Counter()
    for x, bodies in enumerate(grammar.bodies):
        for body, p in zip(bodies, grammar.rule_probabilities(x), strict=True):
            for head, q in enumerate(grammar.head_probabilities(x)):
                if len(body) >= 2 and set(body) != {head}:
                    chances[tuple(body), head] += p * q / grammar.nonterminals
    total = sum(chances.values())
    return {string: chance / total for string, chance in chances.items()}


@pytest.mark.slow
@pytest.mark.parametrize("nonterminals", [1, 4])
@pytest.mark.parametrize("part", ["rules", "heads", "both"])
def test_starts_rules_and_heads_are_drawn_with_the_weights_of_the_grammar(nonterminals, part):
    task = Treecall(
        nonterminals=nonterminals, max_depth=1, max_rules=8, terminals=6, grammar_seed=3
    )
    chances = expected_strings(task.grammar)
    docs = task.documents(0, "train", 0, 100_000)
    ends = np.cumsum(docs.lengths)
    symbols = (docs.flat - FIRST_SYMBOL).tolist()
    strings = [symbols[end - n + 1 : end - 2] for end, n in zip(ends, docs.lengths, strict=True)]

    view = {
        "rules": lambda body, head: body,
        "heads": lambda body, head: head,
        "both": lambda *pair: pair,
    }[part]
    observed, expected = (
        Counter(view(tuple(string[:-1]), string[-1]) for string in strings),
        Counter(),
    )
    for (body, head), chance in chances.items():
        expected[view(body, head)] += chance * 100_000
    assert set(observed) <= set(expected)
    common = [outcome for outcome in expected if expected[outcome] >= 20]
    assert len(common) >= 5
    rare = 100_000 - sum(observed[o] for o in common), 100_000 - sum(expected[o] for o in common)
    pairs = [(observed[o], expected[o]) for o in common] + ([rare] if rare[1] >= 20 else [])
    statistic = sum((o - e) ** 2 / e for o, e in pairs)
    assert stats.chi2.sf(statistic, len(pairs) - 1) > 1e-3


@pytest.mark.parametrize("query", QUERIES)
def test_first_the_answer_is_drawn_uniformly_then_who_asks_for_it(query):
    """Count, over 100,000 documents, how often each symbol of a recurring string is queried."""
    task = Treecall(
        terminals=8, nonterminals=6, max_depth=3, max_rules=2, grammar_seed=2, query=query
    )
    docs = task.documents(0, "train", 0, 100_000)
    asked = {}
    for i in range(len(docs)):
        string = docs.tokens[i, : docs.lengths[i] - 1].tobytes() + docs.parents[i].tobytes()
        asked.setdefault(string, []).append(i)
    observed, expected = [], []
    for rows in asked.values():
        weights = question_weights(
            docs.tokens[rows[0]], docs.parents[rows[0]], int(docs.lengths[rows[0]]), query
        )
        counts = Counter(docs.roles["key"][rows].tolist())
        assert set(counts) <= set(weights)
        if len(weights) > 1 and len(rows) * min(weights.values()) >= 20:
            observed.append([counts[key] for key in weights])
            expected.append([len(rows) * weight for weight in weights.values()])
    freedom = sum(len(row) - 1 for row in observed)
    assert freedom >= 10
    statistic = sum(
        ((np.array(o) - e) ** 2 / e).sum()
        for o, e in zip(observed, map(np.array, expected), strict=True)
    )
    assert stats.chi2.sf(statistic, freedom) > 1e-3


def question_weights(tokens, parents, length, query):
    """The chance of each key, from the paper's words."""
    tokens, parents = tokens[:length].tolist(), parents[:length].tolist()
    askers = {}
    for node in range(1, length - 2):
        target = target_of(node, parents, query)
        if target >= 0 and tokens[node] not in tokens[node + 1 : length - 2]:
            askers.setdefault(target, []).append(node)
    return {key: 1 / len(askers) / len(keys) for keys in askers.values() for key in keys}


def test_the_training_set_is_small_arrays():
    docs = Treecall().documents(0, "train", 0, 100_032)
    assert docs.flat.dtype == np.int32
    assert docs.flat.nbytes == docs.lengths.sum() * 4
    assert docs.nbytes < 20e6


def test_a_long_document_takes_more_words_than_one_chunk():
    task = Treecall(max_rhs=12, max_rules=3, terminal_weight=4.0)
    docs = task.documents(0, "train", 0, 200)
    assert docs.lengths.max() > 200
    assert_drawn_alike(task, 0, "train", 0, 60)
