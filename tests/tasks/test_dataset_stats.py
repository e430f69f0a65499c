import numpy as np
from support.task_facts import text_of

from mecheval.tasks.dataset_stats import describe
from mecheval.tasks.recall import Recall
from mecheval.tasks.treecall import Treecall


def test_every_fact_can_be_counted_by_hand():
    task = Treecall()
    facts = describe(task, seed=3, train=4000, evaluation=320)
    training = task.documents(3, "train", 0, 4000)
    test = task.documents(3, "test", 0, 320)
    known = set(text_of(training))
    found = facts.splits[1]
    assert facts.train_repeats == 4000 - len(known)
    assert facts.train_bytes == training.nbytes
    assert facts.vocab_size == 23
    assert found.split == "test"
    assert found.seen_in_training == sum(text in known for text in text_of(test))
    assert found.mean_length == np.mean([len(text) / 4 for text in text_of(test)])
    assert (found.shortest, found.longest) == (test.lengths.min(), test.lengths.max())
    assert found.mean_distance == abs(test.roles["value"] - test.roles["key"]).mean()
    assert found.answer_survived_key_corruption == (~task.corrupt(test, "key", 3).usable).sum()


def test_a_tiny_task_repeats_itself_and_says_so():
    facts = describe(Recall(pairs=1, vocab=4), train=1000, evaluation=100)
    assert facts.train_repeats == 996
    assert [split.seen_in_training for split in facts.splits] == [100, 100]


def test_held_out_documents_are_never_seen_in_training():
    facts = describe(Treecall(held_out=0.2), train=20_000, evaluation=500)
    assert facts.splits[1].seen_in_training == 0


def test_the_share_seen_in_training_is_the_papers():
    """15–32 % of evaluation documents are among 4,000 training draws, over ten other grammars."""
    shares = [
        describe(Treecall(grammar_seed=seed), train=4000).splits[1].seen_in_training / 1024
        for seed in range(10)
    ]
    assert 0.10 < np.mean(shares) < 0.40
