"""The words on a card follow from its numbers."""

from dataclasses import replace
from pathlib import Path

import pytest
from pandas import DataFrame

from mecheval.cards import sentences
from mecheval.cards.caveats import caveats
from mecheval.cards.facts import EmergenceStep, Estimate, Line
from mecheval.report.study import Study

TASK = "recall:pairs=4,vocab=64"
SURE = Estimate(0.995, 0.99, 1.0, 512, 3)
RATE = {"dev_accuracy": 0.5, "state": "measured"}
RATES = tuple({"rate": rate, **RATE, "chosen": rate == 3e-3} for rate in (1e-3, 3e-3, 1e-2))
LINE = Line(
    task=TASK,
    architecture="Mine",
    shown="Mine",
    state="measured",
    accuracy=SURE,
    likelihood=SURE,
    mechanism="induction",
    heading="induction in 3 of 3 seeds",
    meaning="each key is stored with its value",
    confidence=1.0,
    layer=1,
    role="value",
    agree=3,
    judged=3,
    rate=3e-3,
    rates=RATES,
    outcomes={"done": 9, "diverged": 0, "failed": 0, "missing": 0},
)
COST = {
    "architecture": "Mine",
    "parameters_without_embedding": 100,
    "state_bytes": [{"tokens": 64, "value": 1}],
}


def cell(site, role, value):
    return {
        "task": TASK,
        "site": site,
        "role": role,
        "value": value,
        "low": value,
        "high": value,
        "n": 320,
    }


INSIDE = [cell("blocks.0.mixer.head_out", "value", 0.9)]


def said(line=LINE, others=(), cells=INSIDE, costs=(COST, {**COST, "architecture": "attention"})):
    runs = DataFrame([{"model.d_model": 64, "model.layers": 2, "task": TASK}])
    study = Study(Path(), "card", "quick", runs, DataFrame(), DataFrame())
    return caveats(study, [line], others, cells, costs)


def test_a_perfect_card_has_one_caveat():
    (only,) = said()
    assert only.startswith("One scale: width 64, 2 layers, documents of at most 11 tokens.")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"mechanism": "unsolved"}, "is not solved"),
        ({"mechanism": ""}, "is without a verdict"),
        ({"mechanism": "", "accuracy": None, "state": "diverged"}, "is not measured (diverged)"),
        ({"accuracy": replace(SURE, value=0.6)}, "60% of the answers are right"),
        ({"mechanism": "mixed"}, "the verdict is mixed"),
        ({"agree": 2}, "seeds disagree, 2 of 3 say induction"),
        ({"agree": 1, "judged": 1}, "1 seed at the chosen rate, fewer than 3"),
        ({"confidence": 0.7}, "only 70% of the resampled documents"),
        ({"accuracy": Estimate(0.95, 0.85, 1.0, 512, 3)}, "only known to be 85% to 100%"),
        (
            {"rate": 1e-2, "accuracy": replace(SURE, value=0.97)},
            "0.01, is at the edge of those tried (0.001 to 0.01)",
        ),
        ({"rates": RATES[1:2]}, "only one rate was tried, 0.003"),
        (
            {"outcomes": {**LINE.outcomes, "diverged": 2, "failed": 1}},
            "of 12 runs, 2 diverged, 1 failed",
        ),
    ],
)
def test_what_speaks_against_a_card_is_said(changed, words):
    assert any(words in caveat for caveat in said(replace(LINE, **changed)))
    assert not any(words in caveat for caveat in said())


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (
            {"others": [replace(LINE, shown="Attention", mechanism="unsolved")]},
            "Attention has not solved it",
        ),
        ({"cells": [cell("blocks.0.block_in", "key", 1.0)]}, "no sites inside"),
        (
            {
                "costs": [
                    COST,
                    {**COST, "architecture": "mamba", "parameters_without_embedding": 400},
                ]
            },
            "0.25 times",
        ),
        ({"costs": [{**COST, "state_bytes": []}]}, "state is unknown"),
    ],
)
def test_what_speaks_against_what_is_around_it_is_said(evidence, words):
    assert any(words in caveat for caveat in said(**evidence))


def test_a_rate_at_the_edge_does_not_matter_without_mistakes():
    assert len(said(replace(LINE, rate=1e-2))) == 1


def test_what_it_does_is_one_sentence():
    assert sentences.summary(LINE) == (
        "On AR (4 pairs, 64 symbols) it answers 99.5% of the documents correctly, by induction "
        "in 3 of 3 seeds: each key is stored with its value."
    )
    text = "uses the key, but below the threshold"
    unsolved = replace(LINE, mechanism="unsolved", heading="unsolved in 3 of 3 seeds", meaning=text)
    assert sentences.summary(unsolved).endswith(f"correctly; unsolved in 3 of 3 seeds: {text}.")
    diverged = replace(LINE, accuracy=None, state="diverged", mechanism="")
    assert "it is diverged" in sentences.summary(diverged)


def test_the_information_is_followed_from_layer_to_layer():
    cells = [cell("blocks.0.block_in", "key", 1.0), cell("blocks.0.block_in", "query", 0.0)]
    cells += [cell("blocks.1.block_in", "value", 0.93), cell("blocks.1.block_in", "next_key", 0.55)]
    cells += [cell("blocks.1.mixer_out", "query", 0.99), cell("final_in", "query", 0.3)]
    assert sentences.location(cells) == (
        "The key's information is held at the input of layer 0 by the key (100%); at the input "
        "of layer 1 by the value (93%) and the next key (55%); after the last layer by no single "
        "token (most by the query, 30%)."
    )
    assert sentences.location([]) == ""
    hybrid = sentences.location(cells, ("mamba", "Own"))
    assert "at the input of layer 0 (mamba) by the key" in hybrid
    assert "at the input of layer 1 (Own) by the value" in hybrid


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        (
            {"key": 0.1, "value": 0.2, "next_key": 0.9},
            "brings back 90%, at the key itself 10%. The short convolution has carried the key "
            "to the next key, and that is enough for most of the answer.",
        ),
        ({"key": 0.1, "value": 0.8, "next_key": 0.3}, "has carried the key to the value"),
        (
            {"key": 0.9, "value": 0.1, "next_key": 0.0},
            "Nothing shows that the short convolution carries the key on",
        ),
    ],
)
def test_dependence_on_a_short_convolution_is_said_with_the_token(shares, words):
    site = "blocks.0.mixer.conv_out"
    (found,) = sentences.convolutions([cell(site, role, share) for role, share in shares.items()])
    assert words in found
    assert found.startswith("Layer 0: restoring conv_out")
    assert sentences.convolutions(INSIDE) == []
    cells = [cell(site, role, share) for role, share in shares.items()]
    (found,) = sentences.convolutions(cells, ("Own", "attention"))
    assert found.startswith("Layer 0 (Own): restoring conv_out")


def test_a_convolution_has_not_carried_what_was_there_before():
    cells = [
        cell("blocks.1.block_in", "value", 0.97),
        cell("blocks.1.mixer.conv_out", "value", 0.9),
    ]
    (found,) = sentences.convolutions(cells)
    assert found.endswith(
        "The key was there before the short convolution: the layer's input there brings back 97%."
    )


def test_emergence_is_said_for_each_seed():
    steps = [EmergenceStep(0, "next_key", 1200), EmergenceStep(1, "value", 300)]
    text = sentences.emergence(steps)
    assert text.endswith("seed 0 at step 1,200 (next key), seed 1 at step 300 (value).")
    assert sentences.emergence([]) == ""
