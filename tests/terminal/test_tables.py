"""A table is readable in a narrow terminal, and complete in a wide one."""

import numpy as np
import pytest
from pandas import DataFrame

from mecheval.terminal.tables import console, frame, run_table

KEY = "0123456789abcdef"
FOUND = DataFrame(
    {
        "key": [KEY, KEY],
        "task": ["recall", "recall"],
        "model.architecture": ["attention", "mamba"],
        "site": [None, "blocks.1.block_in"],
        "metric": ["accuracy", "share"],
        "value": [0.123456, 1.0],
    }
)


def printed(found, width):
    return shown(frame(found, width), width)


def shown(table, width):
    screen = console()
    screen.width = width
    with screen.capture() as capture:
        screen.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_what_all_lines_share_is_said_once_and_nothing_else_is_missing():
    assert printed(FOUND, 200) == [
        "in every line: key=01234567, task=recall",
        "model.architecture  site               metric    value",
        "attention           –                  accuracy  0.1235",
        "mamba               blocks.1.block_in  share     1",
    ]


def test_columns_give_way_from_the_middle_and_are_named():
    lines = printed(FOUND, 50)
    assert lines[1:4] == ["model.architecture  metric    value",
                          "attention           accuracy  0.1235",
                          "mamba               share     1"]  # fmt: skip
    assert lines[4].startswith("no room for site; ")


@pytest.mark.parametrize("lines", [0, 1])
def test_a_table_of_one_line_or_none_has_its_columns(lines):
    assert printed(FOUND.head(lines)[["key", "value"]], 80)[0].split() == ["key", "value"]


def test_a_cell_may_hold_a_list():
    assert printed(DataFrame({"at": [np.array([1, 2]), np.array([3])]}), 80) == [
        "at",
        "[1 2]",
        "[3]",
    ]


def test_runs_of_a_sweep_are_told_apart_in_80_columns():
    shared = {
        "status": "done",
        "steps": 3000,
        "reason": None,
        "task": "recall:pairs=4,vocab=64",
        "train.lr": 0.003,
    }
    runs = [
        {
            **shared,
            "model.architecture": name,
            "model.layers": 2,
            "model.d_model": 64,
            "seed": seed,
            "key": f"{name:x<9}",
        }
        for name, seed in (("attention", 0), ("mamba:d_conv=2", 1))
    ]
    score = {"metric": "accuracy", "split": "test", "value": 0.5, "low": 0.4, "high": 0.6}
    lines = shown(run_table(runs, [{**score, "key": runs[1]["key"]}], 80), 80)
    same = "in every line: status=done, task=recall:pairs=4,vocab=64, steps=3000"
    assert lines[0].startswith(same)
    assert [line.split() for line in lines[-3:]] == [
        ["accuracy", "on", "test", "model", "seed", "key"],
        ["–", "attention", "0", "attentio"],
        ["50.0%", "[40.0%,", "60.0%]", "mamba:d_conv=2", "1", "mamba:d_"],
    ]
