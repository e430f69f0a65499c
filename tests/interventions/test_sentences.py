"""What we say and what is so: models whose mechanism is known, and the sentence each is given."""

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from support import known_models
from support.known_models import TASK, Known, V
from support.made_grids import grid_for, grid_of

from mecheval.interventions.interchange import interchange
from mecheval.interventions.sentence import layers_text, percent, sentence
from mecheval.interventions.verdict import Verdict, verdict, verdict_sites
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.tasks.recall import Recall

KEYS = list(TASK.symbols("key"))


def tokens(count):
    """Mark the first keys."""
    marks = torch.zeros(V, dtype=torch.bool)
    marks[KEYS[:count]] = True
    return marks


@dataclass(frozen=True)
class Row:
    """A model, what is so by its construction, and what is said about it."""

    model: Any
    so: str
    said: str | tuple[str, ...]  # the whole sentence, or its parts and what it must not have
    never: tuple[str, ...] = ()
    task: Any = TASK
    documents: int = 128


INDUCED = "each key is stored with its value; layer 1 looks the pair up later"
STRAIGHT = "nothing is stored at the value; layer {} carries the answer straight to the query"
NO_USE = (
    "unsolved (100 % of resamples): shows no use of the key: "
    "corrupting it takes 0.0 of the 20 points required [0.0, 0.0]"
)
MODELS = {
    "induction": Row(
        known_models.induction,
        "layer 0 writes each key to the token after it, layer 1 looks for it there",
        f"induction (100 % of resamples): {INDUCED} (100 %)",
    ),
    "4 layers": Row(
        partial(known_models.induction, layers=4, stores=1, finds=3),
        "layer 1 of 4 stores, layer 3 finds, the others do nothing",
        f"induction (100 % of resamples): {INDUCED.replace('layer 1', 'layer 3')} (100 %)",
    ),
    "direct, layer 0": Row(
        partial(known_models.direct_by_delta_rule, layer=0),
        "layer 0 holds each value at its key and reads it at the query",
        f"direct retrieval (100 % of resamples): {STRAIGHT.format(0)} (100 %)",
    ),
    "direct, layer 1": Row(
        partial(known_models.direct_by_state_space, layer=1, role="value"),
        "the state of layer 1 adds up value times key, and the query reads it",
        f"direct retrieval (100 % of resamples): {STRAIGHT.format(1)} (100 %)",
    ),
    "direct, two layers": Row(
        known_models.direct_in_two_layers,
        "layer 0 answers half of the keys, layer 1 the others",
        (
            "direct retrieval (100 % of resamples): nothing is stored at the value; "
            "retrieved in layers 0 and 1 (44 % / 56 % restored)",
        ),
        never=("layer 1 carries", "layer 0 carries"),
    ),
    "one layer": Row(
        partial(known_models.direct_by_delta_rule, layer=0, layers=1),
        "it has one layer, so that nothing can be stored for a later one",
        "direct retrieval: with one layer the architecture allows no other",
    ),
    "association": Row(
        partial(known_models.by_short_convolution, role="next_key"),
        "a convolution brings key and value to the next key, where layer 1 finds both",
        "association at next_key (100 % of resamples): key and value are joined one token after "
        "the pair; layer 1 (linear_attention) finds them there (100 %)",
    ),
    "hybrid": Row(
        partial(known_models.by_short_convolution, role="value"),
        "a convolution in layer 0 brings the key to the value, linear attention finds it",
        "induction (100 % of resamples): each key is stored with its value; "
        "layer 1 (linear_attention) looks the pair up later (100 %)",
    ),
    "split, 5 keys of 8": Row(
        partial(known_models.half_induction_half_direct, tokens(5)),
        "5 of 8 keys are stored at their value, the other 3 are read in place",
        "induction in 65 % of documents [56, 73], direct retrieval in 35 % [27, 44]: "
        "each of the 128 documents that lose enough is judged alone",
        never=("100 %",),
    ),
    "split, 4 keys of 8": Row(
        partial(known_models.half_induction_half_direct, tokens(4)),
        "half of the keys are stored at their value, the others are read in place",
        ("mixed (9", "induction in 50 % of documents", "direct retrieval in 50 %"),
        never=("each key is stored", "straight"),
    ),
    "window too short": Row(
        known_models.induction_in_a_window,
        "layer 1 sees the last pair alone: one query of four is answered, by induction",
        (INDUCED, "only 28 % of documents lose 20 points or more"),
        never=("100 %",),
    ),
    "half learned": Row(
        partial(known_models.half_learned, 0.1),
        "it looks the key up and is not sure of what it finds",
        (
            "unsolved (100 % of resamples): uses the key, but below the threshold: "
            "corrupting it takes 12 of the 20 points required [12, 12]",
        ),
        never=("no use",),
    ),
    "memoriser": Row(
        known_models.memoriser,
        "it knows the answer to every key and does not read the document",
        NO_USE,
        task=Known(pairs=4, vocab=16),
    ),
    "last value": Row(
        known_models.copies_the_last_value,
        "it answers with the last value, a quarter right",
        NO_USE,
    ),
    "untrained": Row(known_models.uniform, "it gives every token the same likelihood", NO_USE),
    "few documents": Row(
        known_models.induction,
        "12 documents say little about others",
        f"induction (too few documents, 12 of at least 30, for a confidence): {INDUCED}",
        documents=12,
    ),
    "one document": Row(
        known_models.induction,
        "a resample of one document is that document",
        f"induction (too few documents, 1 of at least 30, for a confidence): {INDUCED}",
        documents=1,
    ),
}
GRIDS = {
    "negative rival": (
        {"key": -0.3, "query": 0.65, "value": 0.6},
        "mixed (100 % of resamples): no one place decides at the input of layer 1: "
        "query 65 %, value 60 %",
    ),
    "shared by two layers": (
        {"key": 0.61, "query": 0.42},
        "direct retrieval (100 % of resamples): nothing is stored at the value; "
        "retrieved in layers 0 and 1 (42 % / 61 % restored)",
    ),
    "looked up by two layers": (
        {"layers": 3, "value_1": 1.0, "value_2": 0.65, "query_2": 0.35},
        "induction (100 % of resamples): each key is stored with its value; "
        "retrieved in layers 1 and 2 (35 % / 65 % restored)",
    ),
    "in part at the value": (
        {"key": 0.8, "value": 0.2},
        "direct retrieval (100 % of resamples): 20 % is also restored at the value; "
        "layer 1 carries the answer straight to the query (100 %)",
    ),
    "in part still at the key": (
        {"value": 0.7, "key": 0.3},
        "induction (100 % of resamples): each key is stored with its value, "
        "30 % also by direct retrieval; layer 1 looks the pair up later (100 %)",
    ),
    "nowhere": (
        {"value": 0.45},
        "mixed (100 % of resamples): no one place decides at the input of layer 1: value 45 %",
    ),
    "one layer, after its mixer": (
        {"layers": 1, "query": 0.3},
        "mixed (100 % of resamples): the mixer's output at the query restores only 30 %",
    ),
}


@pytest.mark.parametrize("row", MODELS.values(), ids=MODELS.keys())
def test_what_is_said_of_a_model_is_so(row):
    said = str(grid_for(row.model(), row.task, row.documents).verdict())
    if isinstance(row.said, str):
        assert said == row.said, row.so
    else:
        assert [part for part in row.said if part not in said] == [], f"{said}, but {row.so}"
    assert not [part for part in row.never if part in said], f"{said}, but {row.so}"


@pytest.mark.parametrize(("held", "said"), GRIDS.values(), ids=GRIDS.keys())
def test_what_is_said_of_shares_is_so(held, said):
    assert str(grid_of(noise=0.0, **held).verdict()) == said


@pytest.mark.parametrize(
    ("n", "lost", "said"),
    [
        (400, 0.16, "uses the key, but below the threshold: corrupting it takes 16 of the 20 poi"),
        (400, 0.03, "uses the key, but below the threshold: corrupting it takes 3.3 of the 20 po"),
        (400, 0.0, "shows no use of the key: corrupting it takes 0.3 of the 20 points required ["),
        (3, 0.02, "may or may not use the key: corrupting it takes"),
        (400, -0.04, "is misled by the key: corrupting it takes −3.7 of the 20 points required ["),
    ],
)
def test_unsolved_says_how_much_the_corruption_takes(n, lost, said):
    found = grid_of(n=n, lost=lost).verdict()
    assert found.mechanism == "unsolved"
    assert str(found).split(": ", 1)[1].startswith(said)


def test_the_layer_has_its_own_number():
    grid = grid_of(n=50, key_1=0.5, query_1=0.24, layers=2, noise=1.0, seed=3)
    found = replace(grid_of(value=1.0).verdict(), confidence=0.974, layer_confidence=0.54)
    expected = "induction (97 % of resamples): each key is stored with its value; "
    assert str(found) == f"{expected}layer 1 looks the pair up later (54 %)"
    assert layers_text(found.to_dict()) == "1 (54 %)"
    assert layers_text(grid_of(key=0.6, query=0.4).verdict().to_dict()) == "0 and 1"
    assert grid.verdict().layer_confidence <= grid.verdict().confidence


def test_in_a_model_whose_layers_differ_the_mixer_of_the_layer_is_named():
    kinds = ("mamba", "attention[heads=2]")
    late, early, shared, unclear = (
        replace(grid_of(noise=0.0, **held).verdict(), kinds=kinds)
        for held in ({"key": 1.0}, {"query": 1.0}, {"key": 0.6, "query": 0.4}, {"key": 0.3})
    )
    assert "; layer 1 (attention[heads=2]) carries the answer" in str(late)
    assert layers_text(late.to_dict()) == "1 attention[heads=2] (100 %)"
    assert "retrieved in layers 0 (mamba) and 1 (attention[heads=2]) (40 % / 60 %" in str(shared)
    assert layers_text(shared.to_dict()) == "0 mamba and 1 attention[heads=2]"
    assert "at the input of layer 1 (attention[heads=2]): " in str(unclear)
    seeds = [json.loads(json.dumps(found.to_dict())) for found in (late, late, early)]
    assert sentence(*seeds).endswith(
        "layer 1 (attention[heads=2]) carries the answer straight to the query (in 2 of 3), "
        "layer 0 (mamba) in 1 of 3"
    )
    assert layers_text(*seeds) == "1 attention[heads=2] (2 of 3), 0 mamba (1 of 3)"
    alike = replace(late, kinds=())
    assert "kinds" not in alike.to_dict()
    assert "; layer 1 carries the answer" in str(alike)


def test_a_verdict_knows_the_mixers_of_the_layers_of_its_model():
    task = Recall(pairs=2, vocab=8)
    said = {}
    for text in ("hybrid:mamba+attention[window=3]", "hybrid:mamba*2"):
        model = LanguageModel(ModelConfig(text, d_model=8), task.vocab_size)
        found = interchange(model, task, verdict_sites(2), documents=32).verdict()
        assert Verdict.from_dict(json.loads(json.dumps(found.to_dict()))) == found
        said[text] = found.kinds
    assert list(said.values()) == [("mamba", "attention"), ()]


def test_what_is_not_quite_all_is_not_100_per_cent():
    assert [percent(x) for x in (1.0, 0.999, 0.99, 0.0, -0.031)] == [
        "100 %",
        "> 99 %",
        "99 %",
        "0 %",
        "−3 %",
    ]


def records(*grids):
    return [json.loads(json.dumps(grid.verdict().to_dict())) for grid in grids]


def test_over_seeds_mechanism_and_layer_have_their_own_counts():
    late, early = (grid_of(noise=0.0, **{role: 1.0}) for role in ("key", "query"))
    seeds = records(late, late, early)
    assert sentence(*seeds) == (
        "direct retrieval in 3 of 3 seeds: nothing is stored at the value; "
        "layer 1 carries the answer straight to the query (in 2 of 3), layer 0 in 1 of 3"
    )
    assert layers_text(*seeds) == "1 (2 of 3), 0 (1 of 3)"
    other = sentence(*seeds, *records(grid_of(noise=0.0, value=1.0)))
    assert other.startswith("direct retrieval in 3 of 4 seeds, induction in 1: nothing is stored")


def test_over_seeds_it_is_said_which_share_the_work_and_which_documents_differ():
    shared = records(*(grid_of(seed=seed, key=0.6, query=0.4, noise=0.0) for seed in range(3)))
    assert sentence(*shared) == (
        "direct retrieval in 3 of 3 seeds: nothing is stored at the value; "
        "retrieved in layers 0 and 1 (40 % / 60 % restored, in 3 of 3 seeds)"
    )
    split = records(grid_for(known_models.half_induction_half_direct(tokens(5)), documents=128))
    assert sentence(*split, *split).endswith(
        "induction in 65 % of documents, direct retrieval in 35 %"
    )


def test_over_seeds_unsolved_gives_the_range():
    seeds = records(*(grid_of(seed=seed, lost=0.15 + 0.02 * seed) for seed in range(2)))
    assert sentence(*seeds) == (
        "unsolved in 2 of 2 seeds: uses the key, but below the threshold: "
        "corrupting it takes 15 to 17 of the 20 points required"
    )
    mixed = records(grid_of(lost=0.0), grid_of(lost=0.17))
    assert "differs between seeds in its use of the key" in sentence(*mixed)


def test_one_verdict_over_several_grids_says_so():
    found = verdict([grid_of(seed=seed, value=1.0, noise=0.0) for seed in range(3)])
    assert str(found).startswith("induction (100 % of resamples of 3 seeds): ")


def test_a_kept_record_of_an_older_version_has_its_sentence():
    """Mamba of figure 7 at published size: 100 % sure of the mechanism, 54 % of the layer."""
    site = "blocks.1.block_in"
    evidence = {"clean − corrupt": 0.78, f"{site} at key": 0.405, f"{site} at query": 0.404}
    old = {"mechanism": "direct retrieval", "layer": 1, "role": "key", "convolution": None}
    old |= {"confidence": 1.0, "layer_confidence": 0.54, "evidence": evidence, "thresholds": {}}
    assert sentence(old) == (
        "direct retrieval (100 % of resamples): nothing is stored at the value; "
        "retrieved in layers 0 and 1 (40 % / 40 % restored)"
    )
    unsolved = {**old, "mechanism": "unsolved", "layer": None, "role": None}
    weak = {**unsolved, "evidence": {"clean − corrupt": 0.165}}
    assert sentence(weak).endswith("takes 16 of the 20 points required")
    faint = sentence({**unsolved, "evidence": {"clean − corrupt": 0.02}})
    assert "may or may not use the key" in faint, "without an interval small values are undecided"
