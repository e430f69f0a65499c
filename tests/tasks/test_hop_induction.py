import numpy as np
import pytest
from scipy import stats

from mecheval.core.errors import InvalidInput
from mecheval.plugins import build_task
from mecheval.tasks.documents import FIRST_SYMBOL
from mecheval.tasks.hop_induction import HopInduction


def test_no_letter_follows_itself_and_any_other_does():
    docs = HopInduction(length=60, letters=4, hops=3).documents(0, "train", 0, 2000)
    letters = docs.tokens[:, 2:] - FIRST_SYMBOL
    table = np.zeros((4, 4))
    np.add.at(table, (letters[:, :-1].ravel(), letters[:, 1:].ravel()), 1)
    assert np.diag(table).sum() == 0
    assert stats.chisquare(table[~np.eye(4, dtype=bool)]).pvalue > 1e-3
    counts = docs.tokens[:, 1] - FIRST_SYMBOL - 4
    assert stats.chisquare(np.bincount(counts, minlength=3)).pvalue > 1e-3


def test_the_answer_of_one_hop_is_the_token_after_the_last_earlier_occurrence():
    task = HopInduction(length=20, letters=4, hops=1)
    docs = task.documents(0, "test", 0, 300)
    for tokens, query, answer in zip(docs.tokens, docs.roles["query"], docs.answer, strict=True):
        text = "".join(map(chr, tokens[:query]))
        assert answer == tokens[text.rfind(chr(tokens[query])) + 1]
    assert (docs.roles["hop"] == docs.roles["value"]).all()
    assert (docs.roles["key"] == docs.roles["last_key"]).all()


def test_the_query_is_any_of_the_letters_with_an_answer():
    task = HopInduction(length=8, letters=2, hops=1)  # letters alternate: all but two have one
    query = task.documents(0, "train", 0, 30_000).roles["query"] - 2
    assert stats.chisquare(np.bincount(query)[2:]).pvalue > 1e-3
    assert query.min() == 2


def test_no_verdict_is_claimed_where_every_letter_is_key_value_and_query():
    assert "next_key" not in HopInduction(length=20, hops=2).documents(0, "test", 0, 1).roles


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("hop_induction:length=17", "length=17 must be at least 18 for hops=16"),
        ("hop_induction:letters=1", "letters=1 must be an integer from 2"),
        ("hop_induction:hops=0", "hops=0 must be an integer from 1"),
        ("hop_induction:letters=1024,length=4,hops=1", "for hops=1, letters=1024; use fewer hops"),
    ],
)
def test_impossible_settings_are_refused(spec, line):
    with pytest.raises(InvalidInput, match=line):
        build_task(spec)
