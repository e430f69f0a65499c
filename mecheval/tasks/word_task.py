"""Builds a task in words: which words a tokenizer has, and how many the task needs."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean, options_of
from mecheval.tasks.documents import FIRST_SYMBOL
from mecheval.tasks.philox import key_of, permutation
from mecheval.tasks.rendering import Lexicon, Template, single_tokens, write
from mecheval.tasks.task import Task
from mecheval.tasks.word_lists import WORD_LISTS
from mecheval.tasks.words import Words, kinds_of

RANDOM = "random"  # words of the vocabulary itself
CANDIDATES = 4096  # tokens of the vocabulary that are tried
LONGEST = 24  # characters of such a word


def word_task(
    task: Task,
    lexicon: Lexicon,
    words: str | Sequence[str] = "nouns",
    template: str = "rows",
    shots: int = 0,
) -> Words:
    """Return a task in words of a lexicon; as many symbols as there are words, unless set."""
    chosen = Template.of(template)
    if shots < 0:
        raise InvalidInput(f"shots={shots} must be at least 0")
    if shots and not chosen.pair:
        raise InvalidInput(f"shots={shots} needs a template of pairs; use another than plain")
    (kinds,) = kinds_of(task, task.documents(0, "train", 0, 1))
    script = write(chosen, kinds, shots)
    found = single_tokens(lexicon, script, _candidates(lexicon, words))
    name = words if isinstance(words, str) else "your list"
    there = f"words={name}: the tokenizer has {len(found)} of them as single tokens"
    fitted = _fit(task, len(found), there)
    needed = fitted.vocab_size - FIRST_SYMBOL
    if needed > len(found):
        raise InvalidInput(f"{there}; the task needs {needed}, a word for each of its symbols")
    listed = list(found)
    order = [listed[i] for i in permutation(key_of("words", name), len(listed))[:needed]]
    return Words(
        inner=fitted,
        lexicon=lexicon,
        template=chosen,
        words=tuple(order),
        word_tokens=tuple(found[word] for word in order),
        shots=shots,
    )


def _candidates(lexicon: Lexicon, words: str | Sequence[str]) -> Iterable[str]:
    if not isinstance(words, str):
        return words
    if words == RANDOM:
        return _random_words(lexicon)
    if words not in WORD_LISTS:
        raise InvalidInput(f"no words {words!r}{did_you_mean(words, [*WORD_LISTS, RANDOM, 'ids'])}")
    return WORD_LISTS[words]


def _random_words(lexicon: Lexicon) -> Iterator[str]:
    """Yield texts of tokens in an order that the vocabulary determines."""
    order = permutation(key_of("random", lexicon.name), lexicon.vocab_size)
    for token in order[:CANDIDATES].tolist():
        text = lexicon.decode([token]) if token not in lexicon.special else ""
        word = text.strip(" ")
        if word and len(word) <= LONGEST and all(unicodedata.category(c)[0] in "LNP" for c in word):
            yield word


def _fit(task: Any, words: int, there: str) -> Any:
    """Give a task whose number of symbols was not chosen as many as there are words."""
    vocab = options_of(type(task)).get("vocab")
    if vocab is None or task.vocab != vocab.default:
        return task
    others = task.vocab_size - FIRST_SYMBOL - task.vocab
    step = 2 if vocab.default % 3 else 6  # compose has three classes of as many symbols
    fewer = max(words - others, 0) // step * step
    try:
        return replace(task, vocab=min(fewer, vocab.default))
    except InvalidInput as error:
        raise InvalidInput(f"{there}, which are too few: {error.problems[0]}") from None
