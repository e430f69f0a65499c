"""The rate search keeps the best rate, on dev, and is the same on every machine."""

from dataclasses import replace

import pytest
from support.fault_injection import small

from mecheval.cards.search import (
    Score,
    compared_at,
    reached,
    read_stopped,
    score,
    select_worse,
    wider_rate,
    write_stopped,
)
from mecheval.core.errors import Paused
from mecheval.results.table import Results
from mecheval.runs.run import run


def scored(rate, loss, finished=False):
    experiment = small(train_lr=rate)
    return Score(experiment, step=100, accuracy=0.3, loss=loss, finished=finished)


@pytest.mark.parametrize(
    ("losses", "stopped"),
    [
        ({1e-3: 1.0, 3e-3: 1.04, 1e-2: 1.06}, [3e-3, 1e-2]),
        ({1e-3: 2.0, 3e-3: 0.1, 1e-2: 2.0}, [1e-3, 1e-2]),
        ({1e-3: 1.0}, []),
        ({}, []),
    ],
)
def test_all_rates_but_the_best_on_dev_are_stopped(losses, stopped):
    scores = [scored(rate, loss) for rate, loss in losses.items()]
    assert [one.rate for one in select_worse(scores)] == stopped


def test_what_is_finished_is_not_stopped():
    worse = select_worse([scored(1e-3, 0.1), scored(3e-3, 2.0, finished=True)])
    assert worse == []


def test_a_stopped_run_says_why_and_is_read_back(tmp_path):
    (one,) = select_worse([scored(1e-3, 0.5), scored(1e-2, 2.0)])
    words = "stopped by the rate search at step 100: dev loss 2, against 0.5 at rate 0.001"
    assert one.reason == words
    write_stopped(tmp_path, {"key": one})
    assert read_stopped(tmp_path) == {"key": one}
    (tmp_path / "search.json").write_text('{"stopped": {"key": {"rate": 1}}}')
    assert read_stopped(tmp_path) == {}, "a damaged file only loses the reasons"


@pytest.mark.parametrize(
    ("rates", "best", "wider"),
    [
        ((1e-3, 3e-3, 1e-2), 1e-2, 3e-2),
        ((1e-3, 3e-3), 3e-3, 1e-2),
        ((1e-3, 3e-3, 1e-2), 1e-3, 3e-4),
        ((3e-3, 1e-2), 3e-3, 1e-3),
        ((1e-3, 3e-3, 1e-2), 3e-3, None),
        ((1e-3,), 1e-3, None),
    ],
)
def test_a_rate_at_the_edge_has_a_next_one(rates, best, wider):
    assert wider_rate(rates, best) == wider


def test_a_paused_run_is_scored_where_it_stands_and_ends_as_if_never_paused(tmp_path):
    experiment = small(train_steps=12, eval_every=3)
    whole = run(experiment, tmp_path / "whole")
    with pytest.raises(Paused):
        run(experiment, tmp_path, until=6)
    paused = Results(tmp_path).runs()
    assert [(row["status"], row["steps"]) for row in paused] == [("stopped", 6)]
    assert reached(experiment, tmp_path, 6)
    assert not reached(experiment, tmp_path, 7)
    at = score(experiment, tmp_path, 6)
    assert (at.step, at.finished) == (6, False)
    with pytest.raises(Paused):
        run(experiment, tmp_path, until=6)
    assert reached(experiment, tmp_path, 6), "pausing twice trains nothing"
    finished = run(experiment, tmp_path)
    assert finished.row_records == whole.row_records
    later = score(experiment, tmp_path, 6)
    assert replace(later, finished=False) == at, "the decision stays the same"


def test_a_run_that_is_over_is_not_paused(tmp_path):
    experiment = small(train_steps=6, eval_every=3)
    assert run(experiment, tmp_path, until=6).status == "done"


def test_rates_are_compared_at_an_evaluation_before_the_end():
    assert compared_at(small(train_steps=3000, eval_every=100)) == 600
    assert compared_at(small(train_steps=12, eval_every=3)) == 3
    assert compared_at(small(train_steps=3, eval_every=3)) is None
