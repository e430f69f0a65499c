"""Claims of the paper: the cells that they read, at the rate that dev chose, and what is said."""

import json
from types import SimpleNamespace

import pytest
from pandas import DataFrame
from support.made_runs import behaviour, experiment, finished, grid, planned, verdict

from mecheval.cli import main
from mecheval.paper.claims import CLAIMS
from mecheval.report.claims import check_claims, claim
from mecheval.report.evidence import Cell, Evidence, _of
from mecheval.report.numbers import HELD, UNDECIDED, at_least, count_at_least
from mecheval.report.study import Study
from mecheval.sweeps.recipe import get_experiments, get_scale, recipe_names

NOT_AT_SMALL = {"positions-narrow"}  # figure 9 has one width there
SURE, FAR = {0: 0.97, 1: 0.98, 2: 0.99}, {0: 0.1, 1: 0.12, 2: 0.11}


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


class Recorder(Evidence):
    """Has no numbers and records the cells that a claim reads, of runs that were planned."""

    def __init__(self, made):
        object.__setattr__(self, "cells", [])
        object.__setattr__(self, "study", SimpleNamespace(runs=made))

    def accuracy(self, cell, split="test"):
        self.cells.append(cell)
        return {}

    def likelihood(self, cell, condition):
        return self.accuracy(cell)

    def share(self, cell, role, site="", split="test"):
        return self.accuracy(cell)

    def share_of_runs(self, cell, role, site=""):
        return self.accuracy(cell)

    def mechanisms(self, cell):
        return list(self.accuracy(cell))


@pytest.mark.slow
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_reads_only_cells_that_its_recipes_train(claim):
    small = get_scale("small")
    recipes = (claim.recipe, *claim.also)
    made = DataFrame([one.fields() for name in recipes for one in get_experiments(name, small)])
    evidence = Recorder(made)
    numbers = list(claim.numbers(evidence))
    assert not any(number.seeds for number in numbers)
    assert evidence.cells or claim.name in NOT_AT_SMALL
    for cell in evidence.cells:
        assert len(_of(made, cell)) >= 3, cell


def test_a_claim_at_every_width_asks_each_that_was_trained():
    runs = DataFrame([one.fields() for one in get_experiments("figure7", get_scale("small"))])
    cells = Recorder(runs).widths(Cell("mamba", "treecall"))
    assert [cell.width for cell in cells] == [16, 32, 64]
    assert [str(cell) for cell in cells] == ["Mamba, d = 16", "Mamba, d = 32", "Mamba, d = 64"]
    best = next(one for one in CLAIMS if one.name == "atr-mamba-best")
    assert len(list(best.numbers(Recorder(runs)))) == 18


def test_a_cell_is_of_its_width_and_the_widest_without_one(tmp_path):
    every = [experiment(seed=seed, model__d_model=width) for seed in range(3) for width in (8, 16)]
    planned(tmp_path, "figure3", every)
    for one in every:
        value = one.model.d_model / 100
        finished(tmp_path, one, behaviour(value, value))
    runs = Evidence(Study.read(tmp_path))
    assert runs.accuracy(Cell("attention", width=8)) == pytest.approx(dict.fromkeys(range(3), 0.08))
    assert runs.accuracy(Cell("attention")) == pytest.approx(dict.fromkeys(range(3), 0.16))
    assert runs.widths(Cell("attention")) == [Cell("attention", width=w) for w in (8, 16)]
    assert runs.accuracy(Cell("attention", width=32)) == {}


def test_shares_of_all_runs_are_of_those_that_solve_the_task(tmp_path):
    every = [experiment(lr=lr, model__d_model=width) for lr in (1e-3, 3e-3) for width in (8, 16)]
    planned(tmp_path, "figure5", every)
    for number, one in enumerate(every):
        rows = behaviour(0.9, 0.9) + grid(0.9, 0.1, {"value": number / 10})
        finished(tmp_path, one, rows, said=verdict("unsolved" if number == 2 else "induction"))
    shares = Evidence(Study.read(tmp_path)).share_of_runs(Cell("attention"), "value")
    assert sorted(shares.values()) == pytest.approx([0.0, 0.1, 0.3])


def test_a_claim_of_two_recipes_joins_their_studies_and_counts_a_shared_run_once(tmp_path):
    @claim("figure8", "", says="", rule="", also=("figure7",))
    def ahead(runs):
        yield at_least(0, "", runs.accuracy(Cell("mamba")))
        yield count_at_least(50, "", runs.accuracy(Cell("based")))

    sweep(tmp_path / "a", {("mamba", 1e-3): SURE}, recipe="figure8")
    assert check_claims([ahead], [tmp_path]) == []  # the other recipe has no runs
    sweep(tmp_path / "b", {("mamba", 1e-3): SURE, ("based", 1e-3): SURE}, recipe="figure7")
    (found,) = check_claims([ahead], [tmp_path])
    assert [number.seeds for number in found.numbers] == [3, 3]


def test_a_claim_is_named_by_its_function():
    names = [claim.name for claim in CLAIMS]
    assert "ar-solved" in names
    assert len(set(names)) == len(names)


def test_the_command_checks_every_sweep_below_a_folder(tmp_path, capsys):
    sweep(tmp_path / "a", {("attention", 1e-3): SURE, ("based", 1e-3): SURE})
    assert main(["claims", str(tmp_path), "--json"]) == 0
    found = {line["name"]: line for line in json.loads(capsys.readouterr().out)}
    assert found["ar-induction"]["answer"] == HELD
    assert found["ar-solved"]["answer"] == UNDECIDED  # there are no runs of Mamba
    assert main(["claims", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "ar-induction · abstract, §4.2 · figure3, scale small: held in every seed" in said
    assert "a rate of failure up to 71 % cannot be excluded" in said
    assert "no runs of figure1, figure2, figure4a" in said


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_folder_without_sweeps_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["claims", name]) == 2
    assert f"DIR={name!r}" in capsys.readouterr().err
