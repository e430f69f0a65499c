"""A tokenizer as `Words` needs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import canonical_json, digest
from mecheval.tasks.task import Task
from mecheval.tasks.word_task import word_task

SEPARATOR = "<|endoftext|>"  # stands between documents in the training of many models
IDS = "ids"  # no words: tokens are symbols


@dataclass(frozen=True, eq=False)
class TokenizerLexicon:
    """The words of a transformers tokenizer, for a model with `vocab_size` tokens.

    Before a text stands what the tokenizer puts there itself, else the token that separates
    documents in training, else the token that begins one, if there is any.
    """

    tokenizer: Any
    vocab_size: int

    @cached_property
    def name(self) -> str:
        return digest(canonical_json(sorted(self.tokenizer.get_vocab().items())))

    @cached_property
    def bos(self) -> tuple[int, ...]:
        plain = self.encode("a")
        with_special = self.tokenizer.encode("a")
        before = with_special[: len(with_special) - len(plain)]
        if before and with_special[len(before) :] == plain:
            return tuple(before)
        known = self.tokenizer.get_vocab()
        first = known.get(SEPARATOR, self.tokenizer.bos_token_id)
        return () if first is None else (int(first),)

    @cached_property
    def special(self) -> frozenset[int]:
        return frozenset(self.tokenizer.all_special_ids)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        text = self.tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False)
        return str(text)


def lexicon_of(model: Any) -> TokenizerLexicon:
    """Return the lexicon of a model that was loaded with its tokenizer."""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        problem = f"model={model.name} has no tokenizer, so it has no words"
        raise InvalidInput(f"{problem}; use words=ids, with a task that it was trained on")
    largest = max(tokenizer.get_vocab().values())
    if largest >= model.vocab_size:
        sizes = f"it has the token {largest}, the model {model.vocab_size} tokens"
        raise InvalidInput(f"the tokenizer of {model.name} belongs to another model: {sizes}")
    return TokenizerLexicon(tokenizer, model.vocab_size)


def in_words(
    task: Task,
    model: Any,
    words: str | Sequence[str] = "nouns",
    template: str = "rows",
    shots: int = 0,
) -> Task:
    """Return a task in the tokens of a model, so that the model can be asked it.

    Parameters
    ----------
    task
        A task with roles, such as `Recall(pairs=4, passes=2)`. Unless its `vocab` is set, it gets
        as many symbols as there are words, at most its default.
    model
        A model with `tokenizer` and `vocab_size`, as `load_hf` returns it.
    words
        `names`, `nouns`, `numbers`, `random` (of the tokenizer's vocabulary), a list of your own,
        or `ids` for a model without a tokenizer that was trained on the task.
    template
        `bare`, `rows`, `lines`, `sentence`, `plain` (for tasks without pairs), or a text with
        `{key}`, then `{value}` and something after it.
    shots
        Pairs that are asked and answered before the query; not with `plain`.

    Returns
    -------
    Task
        Its documents are tokens of the model.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from mecheval import Recall, in_words
    >>> trained = SimpleNamespace(name="mine", vocab_size=64, tokenizer=None)
    >>> task = in_words(Recall(pairs=2, vocab=32), trained, words="ids")
    >>> task.documents(0, "test", 0, 1).tokens.shape
    (1, 7)
    """
    if words == IDS:
        _check_ids(task, model)
        return task
    built = word_task(task, lexicon_of(model), words, template, shots)
    longest = getattr(model, "max_len", None)
    if longest and built.max_len > longest:
        problem = f"documents of {built.max_len} tokens are longer than the {longest}"
        raise InvalidInput(f"{problem} that model={model.name} can read; ask fewer pairs")
    return built


def _check_ids(task: Task, model: Any) -> None:
    if task.vocab_size > model.vocab_size:
        problem = f"words=ids needs a model with {task.vocab_size} tokens or more"
        raise InvalidInput(f"{problem}; model={model.name} has {model.vocab_size}")
