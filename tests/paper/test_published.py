"""The paper's numbers, in our words."""

import math
from dataclasses import replace

import pytest

from mecheval.models.config import ModelConfig
from mecheval.paper.published import FILE, published, setting_of, why_not_comparable
from mecheval.sweeps.recipe import get_experiments, get_scale, recipes
from mecheval.tasks import tasks

# how many numbers each figure has
COUNTS = {"3": 373, "3-reverse": 166, "4a": 25, "4b": 25, "5": 155, "7": 85, "8": 0, "9": 170}
COUNTS |= {"10a": 60, "10b": 294, "11a": 55, "11b": 60, "12a": 85, "12b": 175, "13": 89}


def cell(asked, **columns):
    found = published(asked)
    for name, value in columns.items():
        found = found[found[name] == value]
    return list(found["value"])


def test_every_published_number_is_in_a_figure_once():
    assert {figure: len(published(figure)) for figure in COUNTS} == COUNTS
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert sum(COUNTS.values()) == len(lines) - 1 == 1817


@pytest.mark.parametrize("figure", COUNTS)
def test_published_settings_and_architectures_are_ours(figure):
    found = published(figure)
    for setting in found["setting"].unique():
        tasks.build(setting)
        assert setting_of(setting) == setting
    for architecture in found["architecture"].unique():
        assert ModelConfig(architecture=architecture).architecture == architecture, (
            "said as runs say it"
        )
    assert set(found["condition"]) <= {"clean", "corrupt", "restored"}
    assert set(found["metric"]) <= {"accuracy", "likelihood", "share"}
    assert found["site"].notna().equals(found["condition"] == "restored")


@pytest.mark.parametrize(
    ("figure", "columns", "value"),
    [
        (
            "3",
            {"architecture": "mamba", "d_model": 64, "condition": "clean", "metric": "likelihood"},
            0.794,
        ),
        (
            "3",
            {"architecture": "mamba", "d_model": 32, "site": "blocks.1.block_in", "role": "key"},
            0.709,
        ),
        (
            "3",
            {"architecture": "based", "d_model": 16, "site": "blocks.1.block_in", "role": "value"},
            0.219,
        ),
        ("3", {"architecture": "delta_net", "d_model": 256, "condition": "corrupt"}, 0.013),
        ("3", {"architecture": "attention", "d_model": 16, "panel": "AR"}, 0.065625),
        ("4a", {"architecture": "mamba:d_conv=0", "d_model": 256}, 0.05625),
        ("4b", {"architecture": "based:kernel=long", "d_model": 256}, 0.090625),
        ("5", {"d_model": 32, "lr": 0.01, "panel": "Original"}, 0.754),
        ("7", {"setting": "atr", "architecture": "mamba", "d_model": 64}, 0.9625),
        (
            "9",
            {"setting": "ar_16pairs", "architecture": "attention:positions=false", "d_model": 256},
            0.05625,
        ),
        (
            "10",
            {"architecture": "attention", "d_model": 256, "figure": "10a", "split": "dev"},
            0.95625,
        ),
        ("10", {"architecture": "attention", "d_model": 16, "lr": 0.001, "split": "test"}, 0.35),
        (
            "11",
            {"setting": "ar_16pairs", "architecture": "mamba", "layers": 1, "d_model": 256},
            0.9625,
        ),
        (
            "12",
            {
                "architecture": "mamba",
                "layers": 3,
                "site": "blocks.2.mixer_out",
                "statistic": "whisker_hi",
            },
            1.0007,
        ),
    ],
)
def test_a_published_number_is_found_by_what_it_is_about(figure, columns, value):
    assert cell(figure, **columns) == [pytest.approx(value)]


def test_a_whole_figure_is_its_panels():
    assert set(published("12")["figure"]) == {"12a", "12b"}
    boxes = published("12b")
    assert set(boxes["site"]) == {f"blocks.{layer}.mixer_out" for layer in range(3)}
    assert set(boxes["role"]) == {"query"}
    assert boxes["d_model"].isna().all()


def test_attention_at_the_two_highest_rates_is_said_to_be_without_positions():
    found = published("3")
    fast = found[(found["lr"] >= 1e-2) & found["architecture"].str.startswith("attention")]
    assert len(fast) == 5
    assert set(fast["architecture"]) == {"attention:positions=false"}
    assert "no positions" in why_not_comparable(
        {"task": "ar_16pairs", "model.architecture": "attention", "train.lr": 0.01}
    )


@pytest.mark.parametrize("figure", ["3", "4a", "4b", "5", "12"])
def test_runs_of_recall_at_the_papers_scale_can_be_compared(figure):
    paper = get_scale("paper")
    size = replace(paper.recall, widths=(64,), rates=(1e-3,))
    experiments = get_experiments(f"figure{figure}", replace(paper, recall=size))
    assert {why_not_comparable(experiment.fields()) for experiment in experiments} == {None}


@pytest.mark.parametrize("figure", ["7", "8", "10", "13"])
def test_of_treecall_nothing_but_the_grammar_differs_at_the_papers_scale(figure):
    first = next(recipes.get(f"figure{figure}")(get_scale("paper")))
    reason = why_not_comparable(first.fields())
    assert "grammar" in reason
    assert ";" not in reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"task": "recall:pairs=4,vocab=64"},
            "task=recall:pairs=4,vocab=64, published recall:pairs=16",
        ),
        ({"task": "atr_grandparent"}, "nothing was published for atr_grandparent"),
        ({"train.steps": 2000}, "train.steps=2000, published 16 epochs"),
        ({"train.epochs": 4}, "train.epochs=4, published 16 epochs"),
        ({"train.batch": 128}, "train.batch=128, published 32"),
        ({"train.stop": 0.99}, "train.stop=0.99, published none"),
        ({"train.schedule": "linear"}, "train.schedule=linear, published cosine"),
        ({"model.init.linear": 3.0}, "model.init.linear=3.0, published 1.0"),
        ({"train.stop": math.nan, "train.epochs": None}, None),
    ],
)
def test_what_differs_is_said(fields, reason):
    assert why_not_comparable({"task": "ar_16pairs", **fields}) == reason
