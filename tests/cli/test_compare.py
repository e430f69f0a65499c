"""`mecheval compare`: what it prints, writes and refuses, and what the page about it claims."""

import json
import re
from pathlib import Path

import pytest
from pandas import read_csv
from support.made_runs import behaviour, experiment, finished

from mecheval.cli import main
from mecheval.metrics.statistics import seeds_needed, smallest_p

PAGE = (Path(__file__).parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("made")
    numbers = {
        "attention": [0.9, 0.95, 0.92, 0.97, 0.93, 0.96],
        "mamba": [0.3, 0.28, 0.35, 0.31, 0.33, 0.29],
    }
    for architecture, values in numbers.items():
        for seed, value in enumerate(values):
            finished(place / "runs", experiment(architecture, seed=seed), behaviour(value, value))
        finished(place / "few", experiment(architecture), behaviour(0.5, 0.5))
    finished(place / "alone", experiment(), behaviour(0.5, 0.5))
    return place


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in made.iterdir():
        Path(place.name).symlink_to(place)
    return made / "runs"


def test_the_terminal_shows_groups_pairs_and_counts(folder, capsys):
    assert main(["compare", "runs", "--metric", "accuracy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "recall:pairs=4,vocab=64 · d_model=64 · layers=2"
    (pair,) = (line for line in lines if line.startswith("mamba − attention"))
    assert pair.split()[3:] == ["-62.8%", "[-67.4,", "-58.3]", "0.031", "0.031", "6", "differ"]
    assert "runs: 12 done" in lines
    assert max(map(len, lines)) <= 80


def test_json_and_csv_are_the_table(folder, capsys):
    assert main(["compare", "runs", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["runs"] == {"done": 12, "diverged": 0, "failed": 0, "missing": 0}
    assert [pair["metric"] for pair in said["pairs"]] == ["accuracy", "likelihood"]
    assert {group["group"]: group["seeds"] for group in said["groups"]} == {
        "attention": 6,
        "mamba": 6,
    }
    assert main(["compare", "runs", "--csv"]) == 0
    Path("pairs.csv").write_text(capsys.readouterr().out)
    assert read_csv("pairs.csv")["difference"].tolist() == pytest.approx(
        [p["difference"] for p in said["pairs"]]
    )


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "json", "csv", "html"])
def test_the_forest_is_written(folder, capsys, ending):
    assert main(["compare", "runs", "--out", f"forest.{ending}"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"forest.{ending}"
    assert Path(f"forest.{ending}").stat().st_size > 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["few"], "there are mamba 1; attention 1"),
        (
            ["alone"],
            "by='architecture' must have at least 2 values: "
            "all 1 runs have model.architecture=attention",
        ),
        (["nowhere"], "must be a folder"),
        (["runs", "--by", "architectur"], "did you mean 'model.architecture'"),
        (["runs", "--by", "seed"], "by='seed'"),
        (["runs", "--by", "documents"], "train.documents, eval.documents"),
        (["runs", "--by", "train.stop"], "train.stop=left out"),
        (
            ["runs", "--metric", "f1"],
            "metric='f1' must be one of accuracy, likelihood, loss, share",
        ),
        (["runs", "--metric", "share", "--role", "bos"], "role='bos' must be one of key, value"),
        (["runs", "--role", "value"], "role='value' must come with metric 'share'"),
        (["runs", "--metric", "share"], "with share at key or share at value"),
        (
            ["runs", "--correction", "bonferroni"],
            "correction='bonferroni' must be one of holm, fdr, none",
        ),
        (["runs", "--out", "a.gif"], "must end in .png"),
        ([], "DIR"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_compared_is_one_line_and_exit_2(folder, capsys, arguments, said, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert main(["compare", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert said in line
    assert sorted(tmp_path.rglob("*")) == before


def test_the_pages_smallest_p_are_the_smallest():
    lines = re.findall(r"^\| (\d+) \| (\S+) \| (\S+) \| (\d+) \|$", PAGE, re.M)
    assert len(lines) == 8
    for n, paired, unpaired, most in ((int(n), *rest) for n, *rest in lines):
        assert paired == f"{smallest_p(n, n, paired=True):.2g}"
        assert unpaired == f"{smallest_p(n, n, paired=False):.2g}"
        assert int(most) == sum((seeds_needed(tests) or n + 1) <= n for tests in range(1, 30))
