import numpy as np
import pytest
from scipy import stats

from mecheval.core.errors import InvalidInput
from mecheval.tasks.documents import FIRST_SYMBOL
from mecheval.tasks.spans import Spans

TASK = Spans(pairs=4, vocab=32)


def spans_of(docs):
    """The lengths of the first key and value, and whether their tokens differ."""
    values = docs.tokens >= FIRST_SYMBOL + 16
    first_value = np.argmax(values, axis=1)
    rest = np.where(np.arange(values.shape[1]) < first_value[:, None], True, values)
    return first_value - 1, np.argmin(rest, axis=1) - first_value


def test_the_numbers_of_tokens_are_uniform_from_one_to_three():
    docs = TASK.documents(0, "train", 0, 30_000)
    table = np.zeros((3, 3))
    np.add.at(table, tuple(length - 1 for length in spans_of(docs)), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-3


def test_the_tokens_of_a_span_are_any_that_differ():
    """The public generator draws from all permutations of so many symbols."""
    docs = Spans(pairs=1, vocab=8, min_tokens=3).documents(0, "train", 0, 24_000)
    for start in (1, 4):
        span = docs.tokens[:, start : start + 3] - docs.tokens[:, start : start + 3].min()
        numbers = span @ np.array([16, 4, 1])
        _, counts = np.unique(numbers, return_counts=True)
        assert len(counts) == 4 * 3 * 2
        assert stats.chisquare(counts).pvalue > 1e-3


def test_a_key_that_is_read_again_has_the_same_value():
    task = Spans(pairs=8, vocab=4, key_tokens=1, value_tokens=2)
    docs = task.documents(0, "test", 0, 500)
    for i in range(500):
        tokens = docs.tokens[i, 1 : docs.roles["divider"][i]].tolist()
        memory, key = {}, None
        for token in tokens:
            if token < FIRST_SYMBOL + 2:
                key = token
                memory.setdefault(key, []).append([])
            else:
                memory[key][-1].append(token)
        assert all(value == values[0] for values in memory.values() for value in values)
    twins = task.corrupt(docs, "key", 0)
    assert 0.3 < (~twins.usable).mean() < 1  # the other readings keep the answer


def test_a_short_answer_repeats_its_last_position_and_is_fed_but_for_its_last_token():
    docs = TASK.documents(0, "test", 0, 500)
    for i in range(500):
        queries, answers = docs.queries[i].tolist(), docs.answers[i].tolist()
        steps = sorted(set(queries))
        assert steps == list(range(queries[0], docs.lengths[i]))
        fed = docs.tokens[i, steps[1:]].tolist()
        assert fed == answers[: len(fed)]
        assert answers[len(steps) :] == [answers[len(steps) - 1]] * (3 - len(steps))


@pytest.mark.parametrize("role", ["key", "first_key", "query", "first_query"])
def test_every_token_of_a_key_counts(role):
    docs = TASK.documents(0, "test", 0, 500)
    assert TASK.corrupt(docs, role, 0).usable.mean() > 0.9


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"vocab": 4}, "key_tokens=3 must be at most 2, half of vocab=4"),
        ({"min_tokens": 4}, "min_tokens=4 must be at most key_tokens=3"),
        ({"min_tokens": 2, "value_tokens": 1}, "min_tokens=2 must be at most value_tokens=1"),
        ({"vocab": 7}, "vocab=7 must be an even integer"),
        ({"key_tokens": 0}, "key_tokens=0 must be an integer from 1"),
    ],
)
def test_impossible_settings_are_refused(setting, line):
    with pytest.raises(InvalidInput, match=line):
        Spans(**setting)
