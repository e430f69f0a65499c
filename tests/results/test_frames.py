"""Lines of runs beside the fields of their runs are the lines of a table of all of them."""

import random

import pytest
from pandas import DataFrame
from pandas.testing import assert_frame_equal

from mecheval.results.frames import joined


def some(rng, names):
    values = {"a": [1, 2], "b": ["x", "y"], "c": [0.5, 2], "d": [True, False], "e": [None, 3]}
    return {name: rng.choice(values[name]) for name in names if rng.random() < 0.8}


@pytest.mark.parametrize("seed", range(40))
def test_joined_lines_are_those_of_merged_records_in_columns_of_the_same_order(seed):
    rng = random.Random(seed)
    runs = [{"key": f"k{i}", **some(rng, "abcde")} for i in range(4)]
    lines = [
        [{"step": step, **some(rng, ["b", "e"])} for step in range(rng.choice([0, 1, 3]))]
        for _ in runs
    ]
    named = [[{f"own {n}": v for n, v in line.items()} for line in own] for own in lines]
    merged = [run | line for run, own in zip(runs, named, strict=True) for line in own]
    if merged:
        assert_frame_equal(joined(runs, named), DataFrame(merged))


def test_a_field_of_a_line_hides_that_of_its_run():
    table = joined([{"key": "k", "loss": 1.0}], [[{"loss": 2.0}, {"loss": 3.0}]])
    assert table.to_dict("list") == {"key": ["k", "k"], "loss": [2.0, 3.0]}


def test_runs_without_a_line_leave_an_empty_table():
    assert joined([{"key": "k"}], [[]]).empty
    assert joined([], []).empty
