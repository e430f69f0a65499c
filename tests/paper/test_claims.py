"""A claim holds, does not hold or is undecided: by its rule, at the rate of dev, over seeds."""

import json
from math import inf

import pytest
from pandas import DataFrame
from support.made_runs import behaviour, experiment, finished, grid, planned, verdict

from mecheval.cli import main
from mecheval.paper.claims import CLAIMS
from mecheval.report.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Finding,
    agreed,
    at_least,
    at_most,
    difference,
    mean,
)
from mecheval.report.evidence import Cell, Evidence, _of
from mecheval.report.study import Study
from mecheval.sweeps.recipe import get_experiments, get_scale, recipe_names

SURE, FAR, SPREAD = (
    {0: 0.97, 1: 0.98, 2: 0.99},
    {0: 0.1, 1: 0.12, 2: 0.11},
    {0: 0.5, 1: 0.7, 2: 0.95},
)


def sweep(folder, accuracies, recipe="figure3", mechanism="induction"):
    """Write a run for each architecture, rate and seed, with the same accuracy on dev and test."""
    runs = {}
    for (architecture, rate), seeds in accuracies.items():
        for seed, value in seeds.items():
            runs[experiment(architecture, rate, seed)] = value
    planned(folder, recipe, list(runs), "small")
    shares = grid(0.9, 0.1, {"key": 0.0, "value": 1.0, "query": 0.0})
    for one, value in runs.items():
        finished(folder, one, behaviour(value, value) + shares, said=verdict(mechanism))
    return folder


@pytest.mark.parametrize(
    ("seeds", "answer"), [(SURE, HOLDS), (FAR, FAILS), (SPREAD, UNDECIDED), ({0: 1.0}, UNDECIDED)]
)
def test_the_interval_over_seeds_answers_not_the_mean(seeds, answer):
    assert at_least(90, mean("", seeds)).answer == answer


def test_the_interval_of_a_mean_is_students():
    """Of 0.97, 0.98, 0.99: 0.98 ± 4.303 · 0.01 / √3."""
    number = mean("", SURE)
    assert (number.value, number.low, number.high) == pytest.approx((98.0, 95.516, 100.0), abs=1e-3)
    assert mean("", SURE, bounds=(-inf, inf)).high == pytest.approx(100.484, abs=1e-3)


def test_seeds_are_compared_pair_by_pair():
    """They differ by 0.1 each, though seeds differ by more among themselves."""
    less = {seed: value - 0.1 for seed, value in SPREAD.items()}
    number = difference("", SPREAD, less)
    assert (number.value, number.low, number.high) == pytest.approx((10.0, 10.0, 10.0))
    assert at_most(5, number).answer == FAILS


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (["induction"] * 3, HOLDS),
        (["induction"] * 2, UNDECIDED),
        (["induction", "induction", "mixed"], FAILS),
        (["induction", "induction", "unsolved"], UNDECIDED),
        ([], UNDECIDED),
    ],
)
def test_every_seed_must_have_the_mechanism_and_an_unsolved_task_decides_nothing(said, answer):
    assert agreed("", "induction", said).answer == answer


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, UNDECIDED], UNDECIDED),
        ([UNDECIDED, FAILS], FAILS),
        ([], UNDECIDED),
    ],
)
def test_a_claim_holds_only_if_all_its_numbers_do(answers, answer):
    numbers = [at_least(0, mean("", SURE))] * len(answers)
    numbers = [type(n)(**{**vars(n), "answer": a}) for n, a in zip(numbers, answers, strict=True)]
    assert Finding(CLAIMS[0], "small", numbers).answer == answer


def test_numbers_are_those_of_the_rate_that_dev_chose(tmp_path):
    folder = sweep(tmp_path / "runs", {("attention", 1e-3): FAR, ("attention", 3e-3): SURE})
    assert Evidence(Study.read(folder)).accuracy(Cell("attention")) == pytest.approx(SURE)


def test_likelihood_is_read_with_a_clean_and_with_a_corrupt_key(tmp_path):
    found = Evidence(Study.read(sweep(tmp_path / "runs", {("attention", 1e-3): SURE})))
    left = {
        condition: found.likelihood(Cell("attention"), condition)
        for condition in ("clean", "corrupt")
    }
    assert left == {"clean": dict.fromkeys(SURE, 0.9), "corrupt": dict.fromkeys(SURE, 0.1)}


def test_a_cell_is_of_its_task_at_any_size_and_of_its_depth(tmp_path):
    tasks = [
        {"task": "treecall:max_len=32"},
        {"task": "treecall:max_len=32,max_rhs=10"},
        {"model__layers": 1},
    ]
    every = [experiment(**fields) for fields in tasks]
    planned(tmp_path, "figure11", every)
    for number, one in enumerate(every):
        finished(tmp_path, one, behaviour(0.5, 0.1 * (number + 1)))
    found = Evidence(Study.read(tmp_path))
    wanted = [
        Cell("attention", "treecall"),
        Cell("attention", "treecall:max_rhs=10"),
        Cell("attention", layers=1),
    ]
    assert [found.accuracy(cell)[0] for cell in wanted] == pytest.approx([0.1, 0.2, 0.3])
    assert found.accuracy(Cell("attention")) == {}


def test_every_claim_is_of_a_recipe_and_every_figure_of_the_paper_has_one():
    assert {claim.recipe for claim in CLAIMS} <= set(recipe_names())
    assert {name for name in recipe_names() if name.startswith("figure")} <= {
        claim.recipe for claim in CLAIMS
    }
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)


class Recorder(Evidence):
    """Has no numbers and records the cells that a claim reads."""

    def __init__(self):
        object.__setattr__(self, "cells", [])

    def accuracy(self, cell, split="test"):
        self.cells.append(cell)
        return {}

    def likelihood(self, cell, condition):
        return self.accuracy(cell)

    def share(self, cell, role, site=""):
        return self.accuracy(cell)

    def share_bounds(self, cell, role, site=""):
        return -inf, inf

    def mechanisms(self, cell):
        return list(self.accuracy(cell))


@pytest.mark.slow
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_reads_only_cells_that_its_recipe_trains(claim):
    made = DataFrame([one.fields() for one in get_experiments(claim.recipe, get_scale("small"))])
    found = Recorder()
    assert all(number.answer == UNDECIDED for number in claim.numbers(found))
    assert found.cells
    for cell in found.cells:
        assert len(_of(made, cell)) >= 3, cell


def test_the_command_checks_every_sweep_below_a_folder(tmp_path, capsys):
    sweep(tmp_path / "a", {("attention", 1e-3): SURE, ("based", 1e-3): SURE})
    assert main(["claims", str(tmp_path), "--json"]) == 0
    found = {line["name"]: line for line in json.loads(capsys.readouterr().out)}
    assert found["ar-induction"]["answer"] == HOLDS
    assert found["ar-solved"]["answer"] == UNDECIDED  # there are no runs of Mamba
    assert main(["claims", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "ar-induction · abstract, §4.2 · figure3, scale small: holds" in said
    assert "no runs of figure4a" in said


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_folder_without_sweeps_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["claims", name]) == 2
    assert f"DIR={name!r}" in capsys.readouterr().err
