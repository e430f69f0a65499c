"""The verdict on models with a known mechanism, on models without one, and on given shares."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support import known_models
from support.known_models import TASK, Known
from support.made_grids import ROLES, grid_for, grid_of

from mecheval.core.errors import InvalidInput
from mecheval.interventions.classify import classify
from mecheval.interventions.interchange import interchange
from mecheval.interventions.resampling import WIDER
from mecheval.interventions.restoration import shares
from mecheval.interventions.verdict import (
    ASSOCIATION,
    DIRECT,
    INDUCTION,
    MIXED,
    UNSOLVED,
    Lost,
    Thresholds,
    Verdict,
    supports_verdict,
    verdict,
    verdict_sites,
)
from mecheval.metrics.statistics import RESAMPLES, mean_interval
from mecheval.tasks.recall import Recall

INDUCED = {
    "attention": known_models.induction,
    "attention, by layers 0 and 1 of 3": partial(
        known_models.induction, layers=3, stores=0, finds=1
    ),
    "attention, by layers 0 and 2 of 3": partial(
        known_models.induction, layers=3, stores=0, finds=2
    ),
    "attention, by layers 1 and 2 of 3": partial(
        known_models.induction, layers=3, stores=1, finds=2
    ),
    "based, by its convolution": partial(known_models.by_short_convolution, role="value"),
}
RETRIEVED = {
    f"delta_net, in layer {layer} of {layers}": partial(
        known_models.direct_by_delta_rule, layer=layer, layers=layers
    )
    for layer, layers in ((0, 1), (0, 2), (1, 2), (1, 3))
}
RETRIEVED |= {
    f"mamba, in layer {layer}, {role}": partial(
        known_models.direct_by_state_space, layer=layer, role=role
    )
    for layer in (0, 1)
    for role in ("value", "next_key")
}
SOLVED = {
    **{
        name: (model, (INDUCTION, int("2 of 3" in name) + 1, "value"))
        for name, model in INDUCED.items()
    },
    **{
        name: (model, (DIRECT, model.keywords["layer"], "key")) for name, model in RETRIEVED.items()
    },
    "based, at the next key": (
        partial(known_models.by_short_convolution, role="next_key"),
        (ASSOCIATION, 1, "next_key"),
    ),
    "half and half": (known_models.half_induction_half_direct, (MIXED, None, None)),
}
ARCHITECTURES = ["attention", "base_conv", "based", "delta_net", "h3:d_state=8", "hyena", "mamba"]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "expected"), SOLVED.values(), ids=SOLVED.keys())
def test_the_verdict_is_what_was_built_in(model, expected):
    model = model()
    grid = grid_for(model)
    assert grid.clean["accuracy"].mean() == 1, "it recalls"
    assert grid.clean["likelihood"].mean() > 0.99
    assert grid.corrupt["likelihood"].mean() < 0.2
    found = verdict(grid, len(model.blocks))
    assert (found.mechanism, found.layer, found.role) == expected
    assert found.confidence >= found.layer_confidence > 0.85


@pytest.mark.parametrize(
    ("model", "convolution"),
    [
        (
            partial(known_models.direct_by_state_space, layer=0, role="value"),
            "blocks.0.mixer.conv_out at value",
        ),
        (
            partial(known_models.direct_by_state_space, layer=0, role="next_key"),
            "blocks.0.mixer.conv_out at next_key",
        ),
        (
            partial(known_models.direct_by_state_space, layer=1, role="value"),
            "blocks.1.mixer.conv_out at value",
        ),
        (partial(known_models.direct_by_delta_rule, layer=1), "blocks.1.mixer.k_conv_out at value"),
        (
            partial(known_models.by_short_convolution, role="value"),
            "blocks.0.mixer.conv_out at value",
        ),
        (
            partial(known_models.by_short_convolution, role="next_key"),
            "blocks.0.mixer.conv_out at next_key",
        ),
        (known_models.induction, None),
    ],
)
def test_the_verdict_says_which_convolution_brought_key_and_value_together(model, convolution):
    assert verdict(grid_for(model()), 2).convolution == convolution


def test_a_convolution_has_not_joined_what_was_joined_before_it():
    grid, inner = grid_of(value=1.0, noise=0.0), "blocks.1.mixer.conv_out"
    for role in ROLES:
        grid.cells["restored", inner, role] = grid.cells["restored", "blocks.1.block_in", role]
    assert grid.verdict().convolution is None
    for role in ROLES:
        early = grid.cells.pop(("restored", inner, role))
        grid.cells["restored", "blocks.0.mixer.conv_out", role] = early
    assert grid.verdict().convolution == "blocks.0.mixer.conv_out at value"


@pytest.mark.parametrize(
    ("model", "task", "accuracy"),
    [
        (known_models.memoriser, Known(pairs=4, vocab=16), 1.0),
        (known_models.uniform, TASK, 0.0),
        (known_models.copies_the_last_value, TASK, 0.25),
        *((partial(known_models.random, name), TASK, None) for name in ARCHITECTURES),
    ],
    ids=[
        "memoriser",
        "uniform",
        "copies the last value",
        *(f"random {name}" for name in ARCHITECTURES),
    ],
)
def test_what_does_not_recall_has_no_mechanism(model, task, accuracy):
    """It may always be right, or never, or as often as the query asks for the last pair."""
    grid = grid_for(model(), task)
    assert accuracy is None or grid.clean["accuracy"].mean() == pytest.approx(accuracy, abs=0.1)
    found = verdict(grid, 2)
    assert (found.mechanism, found.layer, found.role, found.confidence) == (
        UNSOLVED,
        None,
        None,
        1.0,
    )


@pytest.mark.slow
def test_a_mechanism_is_claimed_for_at_most_5_of_100_untrained_models():
    tasks = [TASK, Recall(pairs=2, vocab=4)]  # the second has two values, one of which is right
    claimed = []
    for seed in range(100):
        name, task, linear = (
            ARCHITECTURES[seed % 7],
            tasks[seed // 2 % 2],
            (1.0, 10.0, 30.0)[seed % 3],
        )
        model = known_models.random(name, task, layers=1 + seed % 2, seed=seed, linear=linear)
        grid = interchange(
            model, task, verdict_sites(len(model.blocks)), ROLES, documents=16, seed=seed
        )
        if verdict(grid, len(model.blocks)).mechanism != UNSOLVED:
            claimed.append((seed, name))
    assert len(claimed) <= 5, claimed


def answer(grids, layers=2, **limits):
    found = verdict(grids, layers, Thresholds(**limits))
    return found.mechanism, found.layer, found.role


@pytest.mark.parametrize(
    ("layers", "held", "expected"),
    [
        (2, {"value": 1.0}, (INDUCTION, 1, "value")),
        (2, {"next_key": 1.0}, (ASSOCIATION, 1, "next_key")),
        (2, {"key": 1.0}, (DIRECT, 1, "key")),
        (2, {"query": 1.0}, (DIRECT, 0, "key")),
        (2, {"key": 0.3, "query": 0.7}, (DIRECT, 0, "key")),
        (2, {"key": 0.7, "query": 0.3}, (DIRECT, 1, "key")),
        (2, {"value": 0.5, "key": 0.5}, (MIXED, None, None)),
        (2, {"value": 0.6, "next_key": 0.6}, (MIXED, None, None)),
        (2, {"value": 0.3}, (MIXED, None, None)),
        (2, {}, (MIXED, None, None)),
        (3, {"key_1": 1.0, "value_2": 1.0}, (INDUCTION, 2, "value")),
        (3, {"value_1": 1.0, "query_2": 1.0}, (INDUCTION, 1, "value")),
        (3, {"value": 1.0}, (INDUCTION, 2, "value")),
        (3, {"key_1": 1.0, "query_2": 1.0}, (DIRECT, 1, "key")),
        (3, {"query": 1.0}, (DIRECT, 0, "key")),
        (3, {"key": 1.0}, (DIRECT, 2, "key")),
        (4, {"key_1": 1.0, "next_key_2": 1.0, "query_3": 1.0}, (ASSOCIATION, 2, "next_key")),
        (3, {"value_1": 1.0, "value_2": 0.5, "query_2": 0.5}, (MIXED, None, None)),
        (1, {"query": 1.0}, (DIRECT, 0, "key")),
        (1, {"key": 1.0}, (MIXED, None, None)),
    ],
)
def test_where_the_information_is_says_how_it_was_found(layers, held, expected):
    grid = grid_of(layers=layers, **held)
    assert answer(grid, layers) == expected
    assert answer(grid_of(layers=layers, lost=0.1, **held), layers) == (UNSOLVED, None, None)


@pytest.mark.parametrize(
    ("value", "query", "key", "expected"),
    [
        (1.03, 0.02, 0.10, INDUCTION),  # Attention
        (0.86, 0.00, 0.23, INDUCTION),  # Based
        (0.69, 0.00, 0.50, MIXED),  # BaseConv
        (0.02, 0.53, 0.56, DIRECT),  # H3
        (0.07, 0.54, 0.61, DIRECT),  # Hyena
        (0.03, 0.27, 0.62, DIRECT),  # Mamba
    ],
    ids=["attention", "based", "base_conv", "h3", "hyena", "mamba"],
)
def test_the_published_shares_give_the_published_mechanisms(value, query, key, expected):
    """ATR at d = 256, at the input of layer 1: paper §5.2."""
    site = "blocks.1.block_in"
    mean = {(site, "value"): value, (site, "query"): query, (site, "key"): key}
    assert classify(0.9, mean, 2, Thresholds())[0] == expected


def test_thresholds_are_arguments_and_change_the_answer():
    grid = grid_of(value=0.65, key=0.3)
    assert answer(grid) == (INDUCTION, 1, "value")
    assert answer(grid, solved=0.95) == (UNSOLVED, None, None)
    assert answer(grid, holds=0.7) == (MIXED, None, None)
    assert answer(grid, rival=0.2) == (MIXED, None, None)
    faint = grid_of(value=1.0, lost=0.15)
    assert answer(faint) == (UNSOLVED, None, None)
    assert answer(faint, solved=0.12) == (INDUCTION, 1, "value")
    assert verdict(grid, 2, Thresholds(rival=0.2)).thresholds == Thresholds(rival=0.2)


def test_the_evidence_is_the_numbers_it_rests_on():
    grid = grid_of(layers=3, value_1=0.9, query_2=0.8)
    found = verdict(grid, 3)
    expected = {f"{site} at {role}": share for (_, site, role), (share, _) in shares(grid).items()}
    assert len(expected) == 12
    lost = grid.clean["likelihood"].mean() - grid.corrupt["likelihood"].mean()
    assert found.evidence == pytest.approx({"clean − corrupt": lost, **expected})
    assert found.evidence["blocks.1.block_in at value"] == pytest.approx(0.9, abs=0.05)
    assert found.to_dict()["evidence"] == found.evidence
    assert found.to_dict()["thresholds"] == {"solved": 0.2, "holds": 0.5, "rival": 0.4}


def test_a_clear_case_is_sure_and_a_close_one_is_not():
    clear, close = (verdict(grid_of(n=60, value=value, noise=0.5), 2) for value in (1.0, 0.55))
    assert clear.confidence > 0.99
    assert 0.3 < close.confidence < 0.9
    more = verdict(grid_of(n=6000, value=0.55, noise=0.5), 2)
    assert (more.mechanism, more.confidence) == (INDUCTION, 1.0), "more documents decide it"


def test_the_confidence_is_the_part_of_resamples_with_the_same_mechanism():
    grid = grid_of(n=40, value=0.6, key=0.3, noise=0.3)
    found = verdict(grid, 2)
    again = {
        cell[1:]: share + (means - share) * np.sqrt(40 / (40 - WIDER))
        for cell, (share, means) in shares(grid).items()
    }
    site = "blocks.1.block_in"
    value = again[site, "value"]
    key = np.maximum(again[site, "key"], 0) + np.maximum(again[site, "query"], 0)
    induced = (value >= 0.5) & (key < 0.4) & (again[site, "next_key"] < 0.4)
    assert found.mechanism == INDUCTION
    assert found.confidence == induced.sum() / RESAMPLES
    assert 0.1 < found.confidence < 0.95


def test_the_layer_can_be_less_sure_than_the_mechanism():
    grid = grid_of(n=50, key=0.51, query=0.49, noise=0.5)
    found = verdict(grid, 2)
    assert found.mechanism == DIRECT
    assert found.confidence > 0.99
    assert 0.2 < found.layer_confidence < 0.9


def test_seeds_that_agree_make_it_sure_and_one_that_does_not_makes_it_less():
    agree = [grid_of(seed=seed, value=1.0) for seed in range(3)]
    found = verdict(agree, 2)
    assert (found.mechanism, found.confidence, found.layer_confidence) == (INDUCTION, 1.0, 1.0)
    found = verdict([*agree[:2], grid_of(seed=2, key=1.0)], 2)
    # of three seeds drawn with replacement, at most one is the other: 20 of 27
    assert found.mechanism == INDUCTION
    assert found.confidence == pytest.approx(20 / 27, abs=0.06)
    assert found.evidence["blocks.1.block_in at value"] == pytest.approx(2 / 3, abs=0.02)
    assert found.evidence["blocks.1.block_in at key"] == pytest.approx(1 / 3, abs=0.02)


def test_seeds_that_read_in_different_layers_agree_on_the_mechanism_only():
    found = verdict(
        [grid_of(seed=0, key=1.0), grid_of(seed=1, key=1.0), grid_of(seed=2, query=1.0)], 2
    )
    assert (found.mechanism, found.layer, found.confidence) == (DIRECT, 1, 1.0)
    assert found.layer_confidence == pytest.approx(20 / 27, abs=0.06)


@pytest.mark.parametrize("failed", [0, 2])
def test_a_seed_that_did_not_learn_does_not_hide_what_the_others_do(failed):
    grids = [
        grid_of(seed=seed, value=1.0, lost=0.0 if seed == failed else 0.8) for seed in range(3)
    ]
    found = verdict(grids, 2)
    assert found.mechanism == INDUCTION
    assert found.evidence["clean − corrupt"] == pytest.approx(0.8 * 2 / 3, abs=0.02)
    assert found.evidence["blocks.1.block_in at value"] == pytest.approx(1.0, abs=0.02)
    assert found.confidence == pytest.approx(26 / 27, abs=0.03), (
        "unless that one is drawn three times"
    )


def test_seeds_that_did_not_learn_are_unsolved_together():
    found = verdict([grid_of(seed=seed, value=1.0, lost=0.0) for seed in range(3)], 2)
    assert (found.mechanism, found.confidence) == (UNSOLVED, 1.0)


def test_seeds_may_have_different_numbers_of_documents():
    found = verdict([grid_of(n=n, seed=n, value=0.9) for n in (50, 64, 70)], 2)
    assert (found.mechanism, found.confidence) == (INDUCTION, 1.0)


def test_one_seed_in_a_list_is_one_seed():
    grid = grid_of(value=0.55, key=0.3)
    assert verdict([grid], 2) == verdict(grid, 2) == verdict(grid, 2)


@pytest.mark.parametrize("n", [1, 2])
def test_few_documents_have_a_verdict(n):
    assert verdict(grid_of(n=n, seed=1, value=1.0), 2).mechanism == INDUCTION


def test_real_models_of_several_seeds():
    """A memoriser and an induction head: the mean of both has lost half."""
    known = Known(pairs=4, vocab=16)
    grids = [
        grid_for(model(), known)
        for model in (known_models.induction, known_models.memoriser, known_models.induction)
    ]
    found = verdict(grids, 2)
    assert found.mechanism == INDUCTION
    assert found.confidence == pytest.approx(26 / 27, abs=0.03)


def test_a_grid_without_the_cells_of_a_verdict_is_refused():
    grid = grid_of(value=1.0)
    del grid.cells["restored", "blocks.1.block_in", "next_key"]
    with pytest.raises(InvalidInput, match=r"blocks\.1\.block_in at next_key"):
        verdict(grid, 2)
    with pytest.raises(InvalidInput, match=r"blocks\.2\.block_in"):
        verdict([grid_of(value=1.0)], 3)
    ablated = grid_of(value=1.0)
    cells = {("ablated", *cell[1:]): values for cell, values in ablated.cells.items()}
    with pytest.raises(InvalidInput, match="restored"):
        verdict(replace(ablated, cells=cells))


def test_a_grid_supports_a_verdict_if_it_has_the_cells_and_corrupts_the_key():
    grid = grid_of(value=1.0)
    assert supports_verdict(grid)
    assert not supports_verdict(replace(grid, layers=3))
    assert not supports_verdict(replace(grid, corrupted="value"))


def test_a_grid_knows_its_layers():
    grid = grid_of(value=0.65, key=0.3, layers=3)
    assert grid.verdict() == verdict(grid) == verdict([grid], layers=3)
    limits = Thresholds(holds=0.7)
    assert grid.verdict(limits) == verdict(grid, 3, limits) != grid.verdict()
    with pytest.raises(InvalidInput, match=r"blocks\.3\.block_in at value"):
        replace(grid, layers=4).verdict()
    for layers in (1, 2, 3):
        model = known_models.random("attention", layers=layers)
        assert grid_for(model, documents=8).layers == layers


def test_a_verdict_comes_back_from_its_record():
    found = grid_of(value=0.6, key=0.3).verdict(Thresholds(holds=0.55))
    assert Verdict.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_the_record_of_an_older_version_has_what_can_be_derived():
    """Records without the fields that came later; numbers of a kept Mamba."""
    site, old = "blocks.1.block_in", {"confidence": 1.0, "layer_confidence": 0.54, "layer": 1}
    evidence = {"clean − corrupt": 0.5, f"{site} at key": 0.61, f"{site} at query": 0.42}
    limits = {"solved": 0.2, "holds": 0.5, "rival": 0.4}
    old |= {"mechanism": DIRECT, "role": "key", "convolution": None, "thresholds": limits}
    found = Verdict.from_dict({**old, "evidence": evidence})
    assert found.by_layer == {0: 0.42, 1: 0.61}
    assert found.lost == Lost(0.5)
    assert (found.documents, found.by_mechanism, found.only_possible) == (None, {}, False)
    one = {"clean − corrupt": 0.5, "blocks.0.mixer_out at query": 1.0}
    assert Verdict.from_dict({**old, "layer": 0, "evidence": one}).only_possible


def test_below_30_documents_there_is_no_confidence():
    few, enough = (grid_of(n=n, value=1.0).verdict() for n in (29, 30))
    assert (few.mechanism, few.confidence, few.layer_confidence) == (INDUCTION, None, None)
    assert (few.documents, enough.documents, enough.confidence) == (29, 30, 1.0)


def test_a_negative_share_does_not_hide_a_rival():
    assert answer(grid_of(key=-0.3, query=0.65, value=0.6)) == (MIXED, None, None)
    assert answer(grid_of(key=-0.9, query=0.9)) == (DIRECT, 0, "key")


def test_the_lost_likelihood_has_an_interval_over_documents_or_seeds():
    grid = grid_of(n=64, lost=0.3)
    gap = grid.clean["likelihood"] - grid.corrupt["likelihood"]
    lost = grid.verdict().lost
    assert lost == Lost(gap.mean(), *mean_interval(gap))
    assert lost.low < 0.3 < lost.high
    seeds = verdict([grid_of(seed=seed, lost=0.3 + 0.1 * seed) for seed in range(3)]).lost
    assert seeds.high - seeds.low > 0.3, "seeds differ by more than documents"


def test_documents_are_counted_by_the_mechanism_that_serves_each():
    grid, other = grid_of(value=1.0, noise=0.0), grid_of(query=1.0, noise=0.0)
    for cell, values in grid.cells.items():
        values["likelihood"][130:] = other.cells[cell]["likelihood"][130:]
    assert grid.verdict().by_mechanism == {INDUCTION: 130, DIRECT: 70}
    grid.clean["likelihood"][:50] = grid.corrupt["likelihood"][:50]
    counts = grid.verdict().by_mechanism
    assert counts == {INDUCTION: 80, DIRECT: 70}, "those that lose nothing are left out"


@pytest.mark.parametrize(
    ("layers", "held", "expected"),
    [
        (2, {"key": 0.6, "query": 0.4}, {0: 0.4, 1: 0.6}),
        (3, {"key_1": 1.0, "query_2": 0.7, "key_2": 0.3}, {0: 0.0, 1: 0.7, 2: 0.3}),
        (2, {"value": 1.0, "query": 0.2}, {1: 1.0}),
        (3, {"value_1": 1.0, "value_2": 0.65, "query_2": 0.35}, {1: 0.35, 2: 0.65}),
        (1, {"query": 0.9}, {0: 0.9}),
        (2, {"value": 0.6, "key": 0.6}, {}),
    ],
)
def test_each_layer_has_the_share_that_it_retrieves(layers, held, expected):
    found = grid_of(layers=layers, noise=0.0, **held).verdict()
    assert found.by_layer == pytest.approx(expected, abs=1e-9)
    assert found.only_possible == (layers == 1)
