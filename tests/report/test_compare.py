"""Groups of runs compared over seeds: what is alike, what is a pair, what is said of the rest."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.made_runs import behaviour, experiment, finished, grid, planned

from mecheval import compare
from mecheval.core.errors import InvalidInput
from mecheval.report.parts.forest import forest

GOOD, POOR = [0.9, 0.95, 0.92, 0.97, 0.93, 0.96], [0.3, 0.28, 0.35, 0.31, 0.33, 0.29]


def runs(folder, numbers, seeds=None, **fields):
    """Of each architecture: accuracies on test by seed."""
    for architecture, values in numbers.items():
        for seed, value in zip(seeds or range(len(values)), values, strict=True):
            finished(folder, experiment(architecture, seed=seed, **fields), behaviour(value, value))
    return folder


def one(comparison, **wanted):
    table = comparison.table
    for name, value in wanted.items():
        table = table[table[name] == value]
    (line,) = table.to_dict("records")
    return line


def test_an_obvious_difference_is_found_and_its_size_is_said(tmp_path):
    line = one(compare(runs(tmp_path, {"attention": GOOD, "mamba": POOR}), metrics=["accuracy"]))
    assert (line["a"], line["b"], line["answer"]) == ("mamba", "attention", "differ")
    assert line["difference"] == pytest.approx(np.mean(POOR) - np.mean(GOOD))
    assert line["low"] < line["difference"] < line["high"] < 0
    assert (line["p"], line["corrected_p"], line["paired"], line["seeds_a"]) == (
        2 / 64,
        2 / 64,
        True,
        6,
    )


def test_p_is_corrected_for_all_that_is_shown(tmp_path):
    runs(tmp_path, {"attention": [*GOOD, 0.95], "based": [*GOOD[::-1], 0.9], "mamba": [*POOR, 0.3]})
    found = compare(tmp_path, metrics=["accuracy"])
    far = found.table[found.table["a"].eq("mamba")]
    assert far["p"].tolist() == [2 / 128] * 2
    assert far["corrected_p"].to_numpy() == pytest.approx(3 * 2 / 128)
    assert (far["answer"] == "differ").all()
    both = compare(tmp_path)  # likelihood, too: six comparisons
    assert both.table["corrected_p"].min() == pytest.approx(6 * 2 / 128)
    assert set(both.table["answer"]) == {"too few seeds"}
    assert set(compare(tmp_path, correction="none").table["answer"]) == {"differ", "unclear"}
    assert (
        one(compare(tmp_path, correction="fdr"), a="based", panel="accuracy")["answer"] == "unclear"
    )


def test_an_interval_does_not_leave_what_shares_can_differ_by(tmp_path):
    line = one(
        compare(
            runs(tmp_path, {"attention": [1.0, 0.2], "mamba": [0.1, 0.3]}), metrics=["accuracy"]
        )
    )
    assert (line["low"], line["high"]) == (-1.0, 1.0)


def test_what_is_asked_for_twice_is_one_comparison(tmp_path):
    runs(tmp_path, {"attention": GOOD[:2], "mamba": POOR[:2]})
    assert len(compare(tmp_path, metrics=["accuracy", "accuracy"]).table) == 1


def test_that_no_test_could_find_anything_is_said(tmp_path):
    found = compare(
        runs(tmp_path, {"attention": GOOD[:3], "mamba": POOR[:3]}), metrics=["accuracy"]
    )
    assert one(found)["answer"] == "too few seeds"
    assert found.notes == [
        "with 3 seeds the smallest p is 0.25: differences cannot be told from chance by a test; "
        "see the interval; "
        "6 shared seeds could tell"
    ]
    (note,) = compare(tmp_path).notes
    assert "smallest p is 0.25 (0.5 corrected for 2 comparisons)" in note
    assert note.endswith("7 shared seeds could tell")


def test_each_group_is_read_at_the_rate_chosen_on_dev(tmp_path):
    for seed in range(3):
        for rate, dev, test in ((1e-3, 0.9, 0.5), (1e-2, 0.4, 1.0)):
            finished(tmp_path, experiment("attention", lr=rate, seed=seed), behaviour(dev, test))
        finished(tmp_path, experiment("mamba", lr=1e-2, seed=seed), behaviour(0.3, 0.3))
    found = compare(tmp_path, metrics=["accuracy"])
    assert one(found)["mean_b"] == 0.5
    assert dict(zip(found.groups["group"], found.groups["train.lr"], strict=True)) == {
        "attention": 1e-3,
        "mamba": 1e-2,
    }


def test_rates_themselves_can_be_compared(tmp_path):
    for rate, value in ((1e-3, 0.9), (1e-2, 0.4)):
        runs(tmp_path, {"attention": [value, value, value]}, lr=rate)
    line = one(compare(tmp_path, by="lr", metrics=["accuracy"]))
    assert (line["a"], line["b"], line["difference"]) == ("0.001", "0.01", pytest.approx(0.5))


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        {"task": "recall:pairs=8,vocab=64"},
        {"model__d_model": 32},
        {"train__steps": 200},  # the same for all runs of an architecture
        {"train__schedule": "linear"},
        {"eval__documents": 64},
    ],
    ids=str,
)
def test_runs_that_differ_in_another_field_are_never_compared(tmp_path, other):
    runs(tmp_path, {"attention": GOOD[:2]})
    runs(tmp_path, {"mamba": POOR[:2]}, **other)
    with pytest.raises(InvalidInput, match="alike in all other fields"):
        compare(tmp_path)
    runs(tmp_path, {"attention": POOR[:2]}, **other)
    found = compare(tmp_path, metrics=["accuracy"])
    assert one(found)["mean_b"] == pytest.approx(np.mean(POOR[:2]))
    assert [note for note in found.notes if "attention alone" in note]


def test_every_setting_is_compared_by_itself(tmp_path):
    for width, value in ((32, 0.5), (64, 0.6)):
        runs(tmp_path, {"attention": GOOD[:2], "mamba": [value] * 2}, model__d_model=width)
    found = compare(tmp_path, metrics=["accuracy"])
    assert dict(
        zip(found.table["model.d_model"], found.table["mean_a"], strict=True)
    ) == pytest.approx({32: 0.5, 64: 0.6})
    widths = compare(tmp_path, by="model.d_model", metrics=["accuracy"])
    assert one(widths, **{"model.architecture": "mamba"})["difference"] == pytest.approx(-0.1)
    assert set(widths.table["a"]) == {"32"}


def test_a_field_that_older_runs_do_not_have_is_at_its_default(tmp_path):
    runs(tmp_path, {"mamba": POOR[:2]})
    for seed, value in enumerate(GOOD[:2]):
        now = experiment(seed=seed)
        known = {name: field for name, field in now.record().items() if name != "eval.grid_every"}
        finished(
            tmp_path,
            SimpleNamespace(name=now.name, key=now.key, record=lambda known=known: known),
            behaviour(value, value),
        )
    assert one(compare(tmp_path, metrics=["accuracy"]))["seeds_a"] == 2


def test_seeds_that_both_have_are_pairs_and_tasks_never_are(tmp_path):
    hard = np.array([0.2, 0.5, 0.8, 0.3, 0.6, 0.4])
    runs(tmp_path / "same", {"attention": hard, "mamba": hard - 0.05})
    assert one(compare(tmp_path / "same", metrics=["accuracy"]))["answer"] == "differ"
    runs(tmp_path / "other", {"attention": hard})
    runs(tmp_path / "other", {"mamba": hard - 0.05}, seeds=range(10, 16))
    line = one(compare(tmp_path / "other", metrics=["accuracy"]))
    assert (line["paired"], line["answer"]) == (False, "unclear")
    for pairs in (4, 8):
        runs(tmp_path / "tasks", {"attention": [0.5, 0.6]}, task=f"recall:pairs={pairs},vocab=64")
    assert not one(compare(tmp_path / "tasks", by="task", metrics=["accuracy"]))["paired"]


def test_runs_without_a_number_are_counted_and_said(tmp_path):
    every = [experiment(name, seed=seed) for name in ("attention", "mamba") for seed in range(4)]
    planned(tmp_path, "figure3", every)
    for run in every[:6]:
        finished(tmp_path, run, behaviour(0.5 + 0.1 * run.seed, 0.5 + 0.1 * run.seed))
    finished(tmp_path, every[6], status="diverged", reason="nan")
    found = compare(tmp_path, metrics=["accuracy"])
    assert (one(found)["seeds_a"], one(found)["difference"]) == (2, pytest.approx(0.0))
    assert found.study.counted == "6 done, 1 diverged, 1 missing"
    (said,) = (note for note in found.notes if note.startswith("mamba"))
    assert "2 done, 1 diverged, 1 missing" in said


def test_a_share_is_read_at_the_input_of_each_models_last_block(tmp_path):
    for layers, share in ((1, 0.2), (2, 0.9)):
        for seed in range(3):
            rows = grid(
                0.9, 0.1, {"value": share, "query": 0.5}, site=f"blocks.{layers - 1}.block_in"
            )
            rows += (
                grid(0.9, 0.1, {"value": 0.0}, site="blocks.0.block_in")[-1:] if layers == 2 else []
            )
            finished(
                tmp_path, experiment(seed=seed, model__layers=layers), behaviour(0.9, 0.9) + rows
            )
    found = compare(tmp_path, by="layers", metrics=["share"], roles=["value"])
    assert one(found, role="value")["difference"] == pytest.approx(-0.7)
    every = compare(tmp_path, by="layers", metrics=["share"])
    assert every.table["role"].tolist() == ["value", "query"]
    assert [note for note in every.notes if "share at key" in note]


def test_several_folders_are_one_and_a_run_in_two_of_them_is_one(tmp_path):
    runs(tmp_path / "a", {"attention": GOOD})
    runs(tmp_path / "b", {"mamba": POOR})
    planned(tmp_path / "c", "figure3", [experiment("mamba"), experiment("mamba", seed=9)])
    finished(tmp_path / "c", experiment("mamba"), behaviour(POOR[0], POOR[0]))
    found = compare(*(tmp_path / name for name in "abc"), metrics=["accuracy"])
    assert (one(found)["seeds_a"], one(found)["mean_a"]) == (6, pytest.approx(np.mean(POOR)))
    assert found.study.counted == "12 done, 1 missing"


def test_in_the_forest_every_pair_stands_at_its_difference_with_its_interval(tmp_path):
    found = compare(runs(tmp_path, {"attention": GOOD, "mamba": POOR}))
    figure = forest(found).picture()
    drawn = {axis.get_title(): axis for band in figure.subfigs for axis in band.axes}
    assert list(drawn) == ["accuracy", "likelihood"]
    for panel, axis in drawn.items():
        line = one(found, panel=panel)
        assert axis.lines[-1].get_xdata() == [line["difference"]]
        ((start, end),) = axis.collections[0].get_segments()
        assert (start[0], end[0]) == pytest.approx((line["low"], line["high"]))
    assert [label.get_text() for label in drawn["accuracy"].get_yticklabels()] == [
        "mamba − attention"
    ]
