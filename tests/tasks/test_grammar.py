from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mecheval.tasks.grammar import draw_grammar

PAPER = {
    "terminals": 20,
    "nonterminals": 40,
    "max_depth": 10,
    "max_rhs": 5,
    "max_rules": 5,
    "terminal_weight": 20.0,
    "head": "right",
}


@pytest.fixture(scope="module")
def grammars():
    return [draw_grammar(**PAPER, grammar_seed=seed) for seed in range(200)]


@given(
    st.fixed_dictionaries(
        {
            "terminals": st.integers(1, 300),
            "nonterminals": st.integers(1, 60),
            "max_depth": st.integers(1, 20),
            "max_rhs": st.integers(2, 12),
            "max_rules": st.integers(1, 9),
            "terminal_weight": st.floats(0.01, 100),
            "head": st.sampled_from(["left", "right"]),
            "grammar_seed": st.integers(0, 2**32 - 1),
        }
    )
)
@settings(max_examples=100)
def test_a_grammar_is_in_greibach_form_without_recursion(setting):
    grammar = draw_grammar(**setting)
    assert len(grammar.bodies) == setting["nonterminals"]
    assert grammar.depth.min() >= 1
    assert grammar.depth.max() <= setting["max_depth"]
    for x, bodies in enumerate(grammar.bodies):
        assert 1 <= len(bodies) <= setting["max_rules"]
        assert grammar.rule_probabilities(x).sum() == pytest.approx(1)
        assert grammar.head_probabilities(x).sum() == pytest.approx(1)
        for body in bodies:
            assert 1 <= len(body) <= setting["max_rhs"] - 1, "with the head at most max_rhs"
            deeper = [symbol - grammar.terminals for symbol in body if symbol >= grammar.terminals]
            assert all(grammar.depth[y] > grammar.depth[x] for y in deeper)


def test_the_same_setting_gives_the_same_grammar_and_another_seed_another():
    one, same, other = (draw_grammar(**PAPER, grammar_seed=seed) for seed in (3, 3, 4))
    assert one.bodies == same.bodies
    assert np.array_equal(one.head_cuts, same.head_cuts)
    assert one.bodies != other.bodies


@pytest.mark.slow
def test_depth_scores_rule_counts_and_body_lengths_are_uniform(grammars):
    depths = Counter(int(depth) for grammar in grammars for depth in grammar.depth)
    rules = Counter(len(bodies) for grammar in grammars for bodies in grammar.bodies)
    lengths = Counter(
        len(body) for grammar in grammars for bodies in grammar.bodies for body in bodies
    )
    for counts, outcomes in ((depths, range(1, 11)), (rules, range(1, 6)), (lengths, range(1, 5))):
        assert sorted(counts) == list(outcomes)
        assert stats.chisquare([counts[outcome] for outcome in outcomes]).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("weight", [5.0, 20.0, 80.0])
def test_terminal_weight_is_the_weight_of_all_terminals_together(weight):
    surplus, variance = 0.0, 0.0
    for seed in range(60):
        grammar = draw_grammar(
            **{**PAPER, "terminals": 50, "terminal_weight": weight}, grammar_seed=seed
        )
        for x, bodies in enumerate(grammar.bodies):
            p = weight / (weight + (grammar.depth > grammar.depth[x]).sum())
            for symbol in [symbol for body in bodies for symbol in body]:
                surplus += (symbol < grammar.terminals) - p
                variance += p * (1 - p)
    assert abs(surplus) < 3.5 * np.sqrt(variance)


def test_terminals_of_a_body_are_equally_likely(grammars):
    counts = np.zeros(20)
    for grammar in grammars:
        np.add.at(counts, grammar.body[grammar.body < 20], 1)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_rule_and_head_distributions_are_uniform_dirichlets(grammars):
    """The first share of a uniform Dirichlet over m outcomes is distributed as Beta(1, m − 1)."""
    heads = [grammar.head_probabilities(x)[0] for grammar in grammars for x in range(40)]
    assert stats.kstest(heads, stats.beta(1, 19).cdf).pvalue > 1e-3
    three = [
        grammar.rule_probabilities(x)[0]
        for grammar in grammars
        for x in range(40)
        if len(grammar.bodies[x]) == 3
    ]
    assert stats.kstest(three, stats.beta(1, 2).cdf).pvalue > 1e-3


def test_heads_belong_to_the_nonterminal_and_differ_between_them(grammars):
    distributions = grammars[0].head_cuts
    assert distributions.shape == (40, 19)
    assert len(np.unique(distributions, axis=0)) == 40


def test_the_shortest_and_longest_string_are_known(grammars):
    def sizes(grammar, x):
        """Every length a nonterminal can have."""
        found = set()
        for body in grammar.bodies[x]:
            totals = {1}
            for symbol in body:
                step = (
                    {1}
                    if symbol < grammar.terminals
                    else sizes(grammar, symbol - grammar.terminals)
                )
                totals = {a + b for a in totals for b in step}
            found |= totals
        return found

    for seed in range(5):
        small = draw_grammar(**{**PAPER, "nonterminals": 8, "max_depth": 4}, grammar_seed=seed)
        reachable = set().union(*(sizes(small, x) for x in range(8)))
        assert small.lengths == (min(reachable), max(reachable))
