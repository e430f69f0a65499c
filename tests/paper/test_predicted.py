"""The prediction about Mamba-3: its rules tell runs that confirm it from runs that do not."""

import pytest
from support.made_runs import behaviour, finished, grid, planned, verdict

from mecheval.paper.claims.predicted import PREDICTED, WHERE
from mecheval.report.claims import check_claims
from mecheval.report.numbers import FAILED, FAILS, HOLDS
from mecheval.sweeps.recipe import get_experiments, get_scale

SHARES = {"key": 0.0, "value": 1.0, "next_key": 0.0, "query": 0.0}


def answers(folder, bare_one, bare_two, with_conv):
    """The answer to each claim if models have these accuracies and mechanisms in all ten seeds."""
    experiments = get_experiments("mamba3", get_scale("small"))
    planned(folder, "mamba3", experiments, "small")
    for one in experiments:
        bare = one.model.architecture in ("mamba3", "mamba2:d_conv=0")
        accuracy, mechanism = with_conv if not bare else (bare_one, bare_two)[one.model.layers - 1]
        rows = behaviour(accuracy, accuracy) + grid(0.8, 0.1, SHARES)
        finished(folder, one, rows, said=verdict(mechanism))
    return {found.claim.name: found.answer for found in check_claims(PREDICTED, [folder])}


LOST, INDUCES, RETRIEVES = (0.26, "unsolved"), (0.9, "induction"), (0.97, "direct retrieval")


@pytest.mark.parametrize("two_layers", [INDUCES, LOST])
def test_it_holds_if_one_layer_fails_and_two_do_induction_or_fail(two_layers, tmp_path):
    found = answers(tmp_path, LOST, two_layers, RETRIEVES)
    assert set(found.values()) == {HOLDS}
    assert len(found) == len(PREDICTED)


@pytest.mark.parametrize(
    ("wrong", "models"),
    [
        ("mamba3-one-layer", (RETRIEVES, INDUCES, RETRIEVES)),
        ("mamba3-two-layers", (LOST, RETRIEVES, RETRIEVES)),
        ("mamba3-convolution", (LOST, INDUCES, LOST)),
        ("mamba3-direct", (LOST, INDUCES, INDUCES)),
    ],
)
def test_each_part_fails_by_the_runs_that_contradict_it(wrong, models, tmp_path):
    assert answers(tmp_path, *models)[wrong] in (FAILS, FAILED)


def test_it_is_dated_and_was_not_written_afterwards():
    assert "2026-11-19" in WHERE
    assert not any(claim.seen for claim in PREDICTED)


def test_ten_seeds_of_one_layer_and_two_at_every_scale_that_has_several():
    for scale, seeds in (("quick", 1), ("small", 10), ("laptop", 10)):
        cells = {}
        for one in get_experiments("mamba3", get_scale(scale)):
            cell = (one.model.architecture, one.model.layers)
            cells.setdefault(cell, set()).add(one.seed)
        assert len(cells) == 8
        assert {len(found) for found in cells.values()} == {seeds}
