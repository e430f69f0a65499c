"""`check_task` passes every built-in and catches each fault it is there for."""

from dataclasses import replace

import numpy as np
import pytest

from mecheval.core.errors import CheckFailed
from mecheval.plugins import build_task
from mecheval.tasks import tasks
from mecheval.tasks.check import check_task
from mecheval.tasks.documents import Corrupted
from mecheval.tasks.recall import Recall


@pytest.mark.parametrize(
    "text",
    [
        *tasks.names(),
        "recall:queries=4",
        "treecall:query=grandparent",
        "recall:query=value",
        "recall:passes=2",
    ],
)
def test_built_ins_keep_every_promise(text):
    check_task(build_task(text), documents=64)


class Faulty:
    """Recall with one thing wrong."""

    def __init__(self):
        self.inner = Recall(pairs=4, vocab=32)
        self.vocab_size, self.max_len = self.inner.vocab_size, self.inner.max_len

    def documents(self, seed, split, start, stop):
        return self.inner.documents(seed, split, start, stop)

    def corrupt(self, docs, role, seed, kind="resample"):
        return self.inner.corrupt(docs, role, seed, kind)

    def word(self, token):
        return self.inner.word(token)


class DependsOnTheBlock(Faulty):
    def documents(self, seed, split, start, stop):
        return replace(
            self.inner.documents(seed + start, split, 0, stop - start), index=np.arange(start, stop)
        )


class CountsFromNought(Faulty):
    def documents(self, seed, split, start, stop):
        return replace(
            self.inner.documents(seed, split, start, stop), index=np.arange(stop - start)
        )


class TooLong(Faulty):
    def __init__(self):
        super().__init__()
        self.max_len -= 1


class SmallVocabulary(Faulty):
    def __init__(self):
        super().__init__()
        self.vocab_size -= 8


class WrongAnswer(Faulty):
    def documents(self, seed, split, start, stop):
        docs = self.inner.documents(seed, split, start, stop)
        return replace(docs, answers=docs.answers - 1)


class WrongKey(Faulty):
    def documents(self, seed, split, start, stop):
        docs = self.inner.documents(seed, split, start, stop)
        return replace(docs, roles={**docs.roles, "key": docs.roles["bos"]})


class NoDivider(Faulty):
    def documents(self, seed, split, start, stop):
        docs = self.inner.documents(seed, split, start, stop)
        return replace(
            docs, roles={name: at for name, at in docs.roles.items() if name != "divider"}
        )


class OneSplit(Faulty):
    def documents(self, seed, split, start, stop):
        return self.inner.documents(seed, "train", start, stop)


class OneSeed(Faulty):
    def documents(self, seed, split, start, stop):
        return self.inner.documents(0, split, start, stop)


class CorruptsAll(Faulty):
    def corrupt(self, docs, role, seed, kind="resample"):
        twins = self.inner.corrupt(docs, role, seed, kind)
        tokens = np.where(docs.tokens > 2, docs.tokens[:, ::-1], docs.tokens)
        return Corrupted(twins.documents.with_tokens(tokens), twins.usable)


class CallsAllUsable(Faulty):
    def corrupt(self, docs, role, seed, kind="resample"):
        return Corrupted(docs, np.ones(len(docs), bool))


class CorruptsByTheRow(Faulty):
    def corrupt(self, docs, role, seed, kind="resample"):
        return self.inner.corrupt(replace(docs, index=np.arange(len(docs))), role, seed, kind)


class Raises(Faulty):
    def corrupt(self, docs, role, seed, kind="resample"):
        raise ZeroDivisionError("a bug")


@pytest.mark.parametrize(
    ("faulty", "finding"),
    [
        (DependsOnTheBlock, "drawn alone differs"),
        (CountsFromNought, "index must number"),
        (TooLong, "a document has 11 tokens, max_len is 10"),
        (SmallVocabulary, "below vocab_size=27"),
        (WrongAnswer, "role value must be the answer"),
        (WrongKey, "role key must be the one asked about"),
        (NoDivider, "roles must include divider"),
        (OneSplit, "dev draws the same documents as train"),
        (OneSeed, "another seed draws the same documents"),
        (CorruptsAll, "at most 1 tokens may change"),
        (CallsAllUsable, "must not be usable"),
        (CorruptsByTheRow, "depends on the others"),
        (Raises, "corrupts honestly: ZeroDivisionError: a bug"),
    ],
)
def test_each_fault_is_found(faulty, finding):
    check_task(Faulty(), documents=32)
    with pytest.raises(CheckFailed) as error:
        check_task(faulty(), documents=32)
    assert any(finding in failure for failure in error.value.failures)
