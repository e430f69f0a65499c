"""A model's tokenizer as a lexicon: which token is first, and what does not fit."""

from types import SimpleNamespace

import pytest
from support.hub_models import fast_tokenizer, llama, with_words

from mecheval.core.errors import InvalidInput
from mecheval.models.hf.lexicon import TokenizerLexicon, in_words
from mecheval.models.hf.model import HubModel
from mecheval.tasks.recall import Recall

TASK = Recall(pairs=3, passes=2)


def test_a_document_begins_with_the_separator_and_is_the_text_of_its_words():
    model = with_words()
    task = in_words(TASK, model, "names", "lines")
    docs = task.documents(0, "test", 0, 5)
    separator = fast_tokenizer().bos_token_id
    for row in range(5):
        text = task.text(docs, row)
        assert text.count(":") == 7
        assert docs.tokens[row].tolist() == [separator, *fast_tokenizer().encode(text)]
    assert task.vocab_size == model.vocab_size
    assert docs.tokens.max() < model.vocab_size


def test_what_the_tokenizer_puts_in_front_itself_comes_first():
    inner = fast_tokenizer()

    def encode(text, add_special_tokens=True):
        return [7] * add_special_tokens + inner.encode(text, add_special_tokens=False)

    own = SimpleNamespace(encode=encode, get_vocab=inner.get_vocab, bos_token_id=3)
    assert TokenizerLexicon(own, 100).bos == (7,)
    ends = SimpleNamespace(
        encode=lambda text, add_special_tokens=True: [5, 6] + [9] * add_special_tokens,
        get_vocab=lambda: {"a": 5},
        bos_token_id=None,
    )
    assert TokenizerLexicon(ends, 100).bos == ()


def test_a_model_without_a_tokenizer_is_asked_in_its_own_symbols():
    task = Recall(pairs=3, vocab=16)
    model = HubModel(llama(task.vocab_size), "mine")
    assert in_words(task, model, "ids") is task


@pytest.mark.parametrize(
    ("changes", "options", "line"),
    [
        (
            {"tokenizer": None},
            {},
            "model=small has no tokenizer, so it has no words; use words=ids",
        ),
        ({"vocab_size": 50}, {}, "the tokenizer of small belongs to another model: it has the"),
        ({"max_len": 12}, {}, "documents of 20 tokens are longer than the 12 that model=small can"),
        ({"vocab_size": 50}, {"words": "ids"}, "words=ids needs a model with 8195 tokens or more"),
        ({}, {"words": "verbs"}, "no words 'verbs'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(changes, options, line):
    given = {"name": "small", "vocab_size": 5000, "max_len": 512, "tokenizer": fast_tokenizer()}
    with pytest.raises(InvalidInput) as error:
        in_words(TASK, SimpleNamespace(**{**given, **changes}), **options)
    assert line in str(error.value)
    assert len(error.value.problems) == 1
