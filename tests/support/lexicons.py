"""Small tokenizers, trained here in a moment: no file and no network."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from mecheval.tasks.word_lists import NAMES, NOUNS, NUMBERS

SEPARATOR = "<|endoftext|>"
LINES = [" {0} {1} .\n", " {0}: {1}\n", " The friend of {0} is {1}.", " {0} {1} ? {0}"]


@cache
def tokenizer(kind: str) -> Tokenizer:
    """Return a byte-level one as of GPT-2, or one that marks spaces as of Llama."""
    words = [*NAMES[:60], *NOUNS[:120], *NUMBERS[:20]]
    texts = []
    for line in LINES:
        texts += [line.format(a, b) for a, b in zip(words, reversed(words), strict=True)] * 3
    built = Tokenizer(models.BPE(unk_token=None))
    if kind == "byte_level":
        built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        built.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        spaces = pre_tokenizers.Metaspace(prepend_scheme="never")
        alone = [pre_tokenizers.Punctuation(), pre_tokenizers.Split("\n", "isolated"), spaces]
        built.pre_tokenizer = pre_tokenizers.Sequence(alone)
        built.decoder = decoders.Metaspace(prepend_scheme="never")
        alphabet = sorted({*"".join(texts)} - {" "})
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=[SEPARATOR],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    built.train_from_iterator(texts, trainer)
    return built


@dataclass(frozen=True)
class Small:
    """A lexicon of such a tokenizer; one token more than it has, as models are padded."""

    kind: str = "byte_level"

    @property
    def name(self) -> str:
        return self.kind

    @property
    def vocab_size(self) -> int:
        return tokenizer(self.kind).get_vocab_size() + 1

    @cached_property
    def bos(self) -> tuple[int, ...]:
        return (tokenizer(self.kind).token_to_id(SEPARATOR),)

    @cached_property
    def special(self) -> frozenset[int]:
        return frozenset(self.bos)

    def encode(self, text: str) -> list[int]:
        return list(tokenizer(self.kind).encode(text).ids)

    def decode(self, tokens: Any) -> str:
        return tokenizer(self.kind).decode(list(tokens), skip_special_tokens=False)


@dataclass(frozen=True)
class Symbols:
    """Each word is the number of its token: a task in words is then the task itself."""

    size: int

    name = "symbols"
    bos = (1,)
    special = frozenset({0, 1})

    @property
    def vocab_size(self) -> int:
        return self.size

    def encode(self, text: str) -> list[int]:
        return [2 if word == "?" else int(word) for word in text.split()]

    def decode(self, tokens: Any) -> str:
        return " ".join("?" if token == 2 else str(token) for token in tokens)
