import numpy as np
import pytest

from mecheval.models.inputs import Batch
from mecheval.tasks import tasks
from mecheval.tasks.dataset_stats import texts
from mecheval.training import batches as module
from mecheval.training.batches import Batches, order
from mecheval.training.config import TrainConfig

RECALL = "recall:pairs=4,vocab=64"
TREECALL = "treecall:terminals=8,nonterminals=3"
# orders of ten documents for (seed, epoch): the runs of every version follow them
FIRST_ORDERS = {
    (0, 0): [9, 5, 6, 7, 4, 2, 1, 8, 0, 3],
    (1, 0): [8, 0, 7, 6, 9, 3, 2, 4, 1, 5],
    (0, 1): [9, 5, 0, 8, 6, 3, 1, 4, 7, 2],
}


def batches(task=RECALL, seed=3, **options):
    return Batches(tasks.build(task), seed, TrainConfig(**options))


def seen(found, steps):
    return np.concatenate([found[step].index for step in steps])


@pytest.mark.parametrize("task", [RECALL, TREECALL])
def test_every_epoch_shows_every_document_once_in_an_order_of_its_own(task):
    found = batches(task, documents=64, batch=8, epochs=3)
    epochs = [seen(found, range(8 * epoch, 8 * epoch + 8)) for epoch in range(3)]
    for index in epochs:
        assert sorted(index) == list(range(64))
    orders = {tuple(index) for index in [*epochs, range(64)]}
    assert len(orders) == 4


def test_the_order_is_a_function_of_seed_and_epoch():
    assert sorted(order(0, 0, 1000)) == list(range(1000))
    first = order(0, 0, 1000).tolist()
    for seed in range(5):  # more than are remembered
        order(seed, 1, 1000)
    assert order(0, 0, 1000).tolist() == first
    assert len({tuple(order(seed, epoch, 50)) for seed in range(5) for epoch in range(5)}) == 25


def test_the_first_orders_are_the_same_for_ever():
    for (seed, epoch), expected in FIRST_ORDERS.items():
        assert order(seed, epoch, 10).tolist() == expected


def test_a_bucket_is_drawn_once_for_all_its_batches(monkeypatch):
    found, drawn = batches(TREECALL, documents=0, batch=8, steps=12, bucket=4), []
    pool = Batches._pool
    monkeypatch.setattr(
        Batches, "_pool", lambda self, *where: drawn.append(where) or pool(self, *where)
    )
    assert len(seen(found, range(12))) == 96
    assert drawn == [(0, 0, 4), (0, 4, 8), (0, 8, 12)]


@pytest.mark.parametrize("task", [RECALL, TREECALL])
@pytest.mark.parametrize(
    "options", [{"documents": 40, "batch": 8}, {"documents": 0, "batch": 8, "steps": 20}]
)
@pytest.mark.parametrize("bucket", [1, 3])
def test_a_batch_is_the_same_asked_alone_or_in_sequence(task, options, bucket):
    options = {**options, "bucket": bucket}
    walked = batches(task, **options)
    in_sequence = [walked[step] for step in range(20)]
    for step in (19, 0, 7, 12, 5):
        alone = batches(task, **options)[step]
        assert texts(alone) == texts(in_sequence[step])
        np.testing.assert_array_equal(alone.index, in_sequence[step].index)
        np.testing.assert_array_equal(alone.queries, in_sequence[step].queries)
        np.testing.assert_array_equal(alone.answers, in_sequence[step].answers)


@pytest.mark.parametrize("task", [RECALL, TREECALL])
def test_fresh_documents_follow_each_other_wherever_they_are_drawn_ahead(task, monkeypatch):
    monkeypatch.setattr(module, "AHEAD", 3)
    found = batches(task, documents=0, batch=4, steps=11)
    whole = tasks.build(task).documents(3, "train", 0, 44)
    assert seen(found, range(11)).tolist() == list(range(44))
    assert [text for step in range(11) for text in texts(found[step])] == texts(whole)


def test_a_batch_holds_the_documents_of_the_training_set():
    found, task = batches(documents=48, batch=16, epochs=1), tasks.build(RECALL)
    whole = texts(task.documents(3, "train", 0, 48))
    for step in range(3):
        assert texts(found[step]) == [whole[index] for index in found[step].index]


def test_another_seed_is_another_training():
    one, other = (
        batches(seed=1, documents=64, batch=8)[0],
        batches(seed=2, documents=64, batch=8)[0],
    )
    assert not set(texts(one)) & set(texts(other))


def test_fresh_documents_are_never_repeated():
    found = batches(documents=0, batch=8, steps=50)
    index = seen(found, range(50))
    assert index.tolist() == list(range(400))
    assert len(set(texts(found[0])) | set(texts(found[49]))) == 16


def test_what_does_not_fill_a_batch_is_left_out_of_its_epoch_only():
    found = batches(documents=21, batch=8, epochs=40)
    epochs = [seen(found, (2 * epoch, 2 * epoch + 1)) for epoch in range(40)]
    assert found.config.total == 80
    assert all(len(set(index)) == 16 for index in epochs)
    assert set(np.concatenate(epochs)) == set(range(21)), (
        "it is not always the same ones that are left out"
    )


@pytest.mark.parametrize("task", [RECALL, TREECALL])
@pytest.mark.parametrize(
    "options",
    [
        {"documents": 64, "batch": 8, "epochs": 2},
        {"documents": 64, "batch": 8, "steps": 3},
        {"documents": 21, "batch": 8, "epochs": 1},
        {"documents": 0, "batch": 8, "steps": 25},
        {"documents": 64, "batch": 8, "steps": 11, "bucket": 3},
        {"documents": 21, "batch": 4, "epochs": 2, "bucket": 4},
        {"documents": 0, "batch": 8, "steps": 25, "bucket": 4},
    ],
)
def test_blocks_are_what_the_steps_see(task, options, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 48)  # does not divide the 200 fresh documents
    found = batches(task, **options)
    in_blocks = [text for block in found.blocks(found.config.total) for text in texts(block)]
    in_steps = {text for step in range(found.config.total) for text in texts(found[step])}
    assert set(in_blocks) == in_steps
    assert len(in_blocks) == len(
        {index for step in range(found.config.total) for index in found[step].index}
    )


@pytest.mark.parametrize(
    "options", [{"documents": 640, "epochs": 2}, {"documents": 0, "steps": 160}]
)
def test_bucketed_batches_hold_the_same_documents_with_less_padding(options):
    plain, bucketed = (
        batches("treecall:max_len=64", batch=8, bucket=bucket, **options) for bucket in (1, 16)
    )
    total = plain.config.total
    for start in range(0, total, 80):
        steps = range(start, start + 80)
        assert sorted(seen(plain, steps)) == sorted(seen(bucketed, steps))
    padded = [sum(found[step].tokens.size for step in range(total)) for found in (plain, bucketed)]
    longest = [bucketed[step].lengths.max() for step in range(16)]
    assert padded[1] < 0.75 * padded[0]
    assert longest != sorted(longest), "short and long ones come in any order"


def test_a_model_reads_tokens_queries_and_answers_of_each_document():
    docs = tasks.build(TREECALL).documents(0, "train", 0, 20)
    assert len(set(docs.lengths)) > 1, "documents differ in length"
    batch = Batch.of(docs)
    for row, length in enumerate(docs.lengths):
        assert batch.tokens[row, length:].eq(0).all()
        assert batch.at[row].tolist() == [length - 1]
        assert batch.answers[row].tolist() == [docs.answer[row]]
