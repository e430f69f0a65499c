"""Accuracies without recall, against answers drawn one by one."""

import numpy as np
import pytest

from mecheval.tasks import tasks
from mecheval.tasks.chance import DOCUMENTS, Chance, chance, known_chance
from mecheval.tasks.recall import Recall


def test_of_four_pairs_and_32_values_a_guess_is_right_in_a_quarter_and_a_32nd():
    levels = chance(Recall(pairs=4, vocab=64))
    assert (levels.in_document, levels.any_value) == (0.25, 1 / 32)
    assert levels.most_frequent == pytest.approx(1 / 32, abs=0.015)
    assert levels.best == 0.25


@pytest.mark.parametrize(
    "text", ["recall:pairs=8,min_pairs=2,vocab=64", "recall:pairs=4,vocab=16,queries=3", "treecall"]
)
def test_the_levels_are_those_of_answers_drawn_at_random(text):
    task, rng = tasks.build(text), np.random.default_rng(0)
    docs = task.documents(0, "test", 0, DOCUMENTS)
    values, right = set(task.symbols("value")), []
    for tokens, queries, answers in zip(docs.tokens, docs.queries, docs.answers, strict=True):
        choices = sorted(values & set(tokens[: queries.min()].tolist()))
        right += [rng.choice(choices) == answer for answer in answers]
    assert known_chance(text).in_document == pytest.approx(np.mean(right), abs=0.03)
    training = task.documents(0, "train", 0, DOCUMENTS).answers
    frequent = np.bincount(training.ravel()).argmax()
    assert known_chance(text).most_frequent == (docs.answers == frequent).mean()


def test_a_task_that_names_no_values_has_those_that_are_answers():
    class Plain:
        """Recall without the names of its values."""

        def __init__(self):
            task = Recall(pairs=4, vocab=64)
            for name in ("vocab_size", "max_len", "documents", "corrupt", "word"):
                setattr(self, name, getattr(task, name))

    assert chance(Plain()) == chance(Recall(pairs=4, vocab=64))


def test_a_task_that_is_not_registered_has_no_levels():
    assert known_chance("somewhere:else=1") is None


def test_levels_are_printed_in_words():
    said = "any value of the document 25.0%, any value at all 0.02%, always the most frequent 3.1%"
    assert str(Chance(0.25, 1 / 4096, 0.031)) == said
