"""Document i is the same drawn alone, in any block, in any process and after any other call."""

import hashlib
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.task_facts import equal

from mecheval.plugins import build_task
from mecheval.tasks import tasks
from mecheval.tasks.recall import Recall
from mecheval.tasks.task import spec_of
from mecheval.tasks.treecall import Treecall

PRESETS = [name for name in tasks.names() if tasks.describe(name).preset_of]
HASHES = Path(__file__).parent / "document_hashes.json"


def hash_of(text: str, split: str) -> str:
    docs = build_task(text).documents(0, split, 0, 10_000)
    arrays = [
        docs.flat,
        docs.lengths,
        docs.queries,
        docs.answers,
        *(docs.roles[role] for role in sorted(docs.roles)),
    ]
    arrays += [] if docs.flat_parents is None else [docs.flat_parents]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


@pytest.mark.parametrize("preset", PRESETS)
def test_the_first_10000_documents_are_those_of_every_version(preset):
    kept = json.loads(HASHES.read_text())
    assert {split: hash_of(preset, split) for split in ("train", "test")} == kept[preset]


@pytest.mark.parametrize(
    "text", ["recall:pairs=6,min_pairs=2,vocab=32,held_out=0.3", "atr", "atr_split"]
)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 90), st.integers(0, 30), st.sampled_from(["train", "dev", "test"])
        ),
        max_size=8,
    )
)
@settings(max_examples=15)
def test_a_block_is_cut_anywhere_and_drawn_in_any_order(text, blocks):
    task = build_task(text)
    whole = {split: task.documents(7, split, 0, 120) for split in ("train", "dev", "test")}
    for start, length, split in blocks:
        assert equal(
            task.documents(7, split, start, start + length), whole[split][start : start + length]
        )


@pytest.mark.slow
def test_another_process_draws_the_same():
    code = (
        "from mecheval import build_task; import hashlib\n"
        "task = build_task('atr_split')\n"
        "parts = [task.documents(0, 'test', i, i + 50).flat.tobytes() for i in range(0, 500, 50)]\n"
        "print(hashlib.sha256(b''.join(parts)).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    here = build_task("atr_split").documents(0, "test", 0, 500).flat.tobytes()
    assert outputs == {f"{hashlib.sha256(here).hexdigest()}\n".encode()}


def test_the_worlds_randomness_does_not_matter():
    task = Treecall()
    before = task.documents(0, "train", 0, 50)
    np.random.default_rng(1).random(10)
    task.corrupt(task.documents(3, "dev", 7, 90), "key", 0)
    assert equal(Treecall().documents(0, "train", 0, 50), before)


VARIANTS = {
    Recall: {
        "pairs": 8,
        "min_pairs": 4,
        "vocab": 64,
        "queries": 2,
        "query": "value",
        "held_out": 0.2,
        "passes": 2,
        "slots": 40,
    },
    Treecall: {
        "terminals": 30,
        "nonterminals": 30,
        "max_depth": 9,
        "max_rhs": 6,
        "max_rules": 4,
        "terminal_weight": 10.0,
        "head": "left",
        "grammar_seed": 1,
        "max_len": 512,
        "query": "sibling",
        "held_out": 0.2,
    },
}


OTHERS = {
    "overwrite": {"pairs": 9, "updates": 3, "queries": 7, "vocab": 64},
    "compose": {"grid": 3, "queries": 3, "vocab": 60},
    "hops": {"nodes": 20, "min_nodes": 9, "hops": 3, "queries": 2, "vocab": 90},
    "spans": {"pairs": 9, "key_tokens": 4, "value_tokens": 2, "min_tokens": 2, "vocab": 32},
    "copy": {"count": 5, "blanks": 9, "vocab": 9},
    "track": {"group": "S3", "length": 9},
    "hop_induction": {"length": 60, "letters": 5, "hops": 3},
    "ngram": {"order": 2, "vocab": 3, "length": 90},
}


@pytest.mark.parametrize("name", OTHERS)
def test_any_field_changed_changes_a_task_and_its_documents(name):
    cls, varied = tasks.get(name), OTHERS[name]
    assert varied.keys() == {field.name for field in fields(cls)}
    drawn = [cls(), *(cls(**{field: value}) for field, value in varied.items())]
    assert len({task.key for task in drawn}) == len({*drawn}) == len(drawn)
    texts = {task.documents(0, "train", 0, 20).flat.tobytes() for task in drawn}
    assert len(texts) == len(drawn)


@pytest.mark.parametrize("cls", VARIANTS)
def test_equal_tasks_hash_equal_and_any_field_changed_changes_the_hash(cls):
    needing_slots = {"gaps", "filler"} if cls is Recall else set()
    assert set(VARIANTS[cls]) | needing_slots == {field.name for field in fields(cls)}
    tasks_of = [cls(), *(cls(**{name: value}) for name, value in VARIANTS[cls].items())]
    assert len({task.key for task in tasks_of}) == len(tasks_of)
    assert len(set(tasks_of)) == len(tasks_of)
    assert cls().key == cls().key
    assert hash(cls()) == hash(cls())
    assert build_task(f"{cls.__name__.lower()}:held_out=0").key == cls().key
    texts = {task.documents(0, "train", 0, 20).flat.tobytes() for task in tasks_of}
    assert len(texts) == len(tasks_of)


@pytest.mark.parametrize("name", ["recall", "treecall"])
def test_a_task_is_read_back_from_its_spec(name):
    for options in VARIANTS[tasks.get(name)].items():
        task = tasks.get(name)(**dict([options]))
        assert build_task(str(spec_of(name, task))) == task


def test_a_preset_is_the_task_it_stands_for():
    assert build_task("ar_16pairs") == Recall(pairs=16)
    assert build_task("ar_32pairs") == Recall() == build_task("recall")
    assert build_task("atr") == Treecall(terminals=20, max_rhs=5)
    assert build_task("atr_8192") == Treecall(terminals=8192)
    assert build_task("atr_l10") == Treecall(max_rhs=10)
    assert build_task("atr_split") == Treecall(held_out=0.2)
    assert build_task("atr_sibling") == Treecall(query="sibling")
