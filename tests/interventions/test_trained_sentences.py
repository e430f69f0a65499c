"""What we say of trained models and what is so, by logits that are computed here by hand."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import pytest
from cards.test_said import LINE
from support import trained_models
from support.evidence import Evidence, evidence
from support.made_grids import grid_of
from support.statements import untrue, untrue_on_card

from mecheval.cards import sentences
from mecheval.cards.facts import Estimate
from mecheval.interventions.grid import GridOptions
from mecheval.interventions.grid_eval import evaluate_grid
from mecheval.interventions.sentence import phrases, sentence


@dataclass(frozen=True)
class Row:
    """What is so of a trained model, in words and as a test of the evidence, and what is said."""

    so: str
    holds: Callable[[Evidence], bool]
    said: tuple[str, ...]


def stored(layer: int = 1) -> Callable[[Evidence], bool]:
    """Tell that only the value of a layer's input, and the query behind it, bring all back."""
    return lambda e: (
        e.accuracy > 0.95
        and e.loss > 0.5
        and e.back[layer, "value"] > 0.95
        and e.back[layer, "key"] < 0.05 > e.back[layer, "query"]
        and e.back[layer + 1, "query"] > 0.95
    )


def carried(layer: int) -> Callable[[Evidence], bool]:
    """Tell that the query has nothing before a layer and all behind it, and the value never."""
    return lambda e: (
        e.accuracy > 0.9
        and e.back[layer, "query"] < 0.1
        and e.back[layer + 1, "query"] > 0.95
        and e.most("value", "next_key") < 0.05
    )


def unused(accuracy: float, by: float = 0.06) -> Callable[[Evidence], bool]:
    """Tell that a corrupted key takes nothing, and the accuracy is about this."""
    return lambda e: abs(e.accuracy - accuracy) < by and abs(e.loss) < 0.02


INDUCED = ("induction (100 % of resamples)", "each key is stored with its value; layer 1 looks")
DIRECT = ("direct retrieval (100 % of resamples)", "nothing is stored at the value; layer {} carr")
FOUND = (INDUCED[0], "each key is stored with its value; layer 1 ({}) looks")
NO_USE = ("unsolved (100 % of resamples): shows no use of the key",)
ROWS = {
    "attention": Row("layer 0 puts the key on the value, layer 1 finds it", stored(), INDUCED),
    "based": Row(
        "the convolution puts the key on the value",
        stored(),
        (FOUND[0], FOUND[1].format("linear_attention")),
    ),
    "4 layers": Row(
        "layers 0 and 1 do all, layers 2 and 3 nothing",
        stored(),
        (FOUND[0], FOUND[1].format("linear_attention")),
    ),
    "convolution, then attention": Row(
        "a hybrid of the two above", stored(), (FOUND[0], FOUND[1].format("attention"))
    ),
    "two queries": Row("the first of two queries is found like one", stored(), INDUCED),
    "half learned": Row(
        "it finds the pair, and is right a little more often than by a guess",
        lambda e: 0.25 < e.accuracy < 0.5 and 0.02 < e.loss < 0.17,
        ("unsolved (", "uses the key, but below the threshold"),
    ),
    "nearly solved": Row(
        "it finds the pair in half of the documents, so that 19 points are lost: near 20",
        lambda e: 0.4 < e.accuracy < 0.6 and 0.16 < e.loss < 0.22 and e.back[1, "value"] > 0.9,
        ("unsolved (", "uses the key, but below the threshold"),
    ),
    "delta rule": Row("layer 0 does all", carried(0), (DIRECT[0], DIRECT[1].format(0))),
    "mamba": Row("layer 0 does all", carried(0), (DIRECT[0], DIRECT[1].format(0))),
    "delta rule, then attention": Row(
        "the delta rule of layer 0 does all",
        carried(0),
        (DIRECT[0], DIRECT[1].format("0 (delta_net)")),
    ),
    "attention, then delta rule": Row(
        "the delta rule of layer 1 does all",
        carried(1),
        (DIRECT[0], DIRECT[1].format("1 (delta_net)")),
    ),
    "mamba, both layers": Row(
        "layer 0 answers some of it, layer 1 the rest",
        lambda e: e.accuracy > 0.95 and 0.3 < e.back[1, "query"] < 0.6 and e.back[1, "key"] > 0.3,
        ("direct retrieval (100 % of resamples)", "retrieved in layers 0 and 1 ("),
    ),
    "one layer": Row(
        "it has one layer, and retrieves",
        lambda e: e.layers == 1 and e.accuracy > 0.95 and e.loss > 0.5,
        ("direct retrieval: with one layer the architecture allows no other",),
    ),
    "one layer of attention": Row("any value, one in four", unused(0.25), NO_USE),
    "mamba without convolution": Row("any value, one in four", unused(0.25), NO_USE),
    "memoriser": Row(
        "all of its 64 training documents by heart, and chance on others",
        lambda e: e.train_accuracy == 1.0 and unused(0.08)(e),
        ("unsolved (", "shows no use of the key"),
    ),
    "one pair": Row("the only value there is, whatever the key", unused(1.0, 0.001), NO_USE),
    "window too short": Row(
        "two layers see the last pair or two: a quarter of the documents use the key",
        lambda e: 0.35 < e.accuracy < 0.6 and 0.15 < (e.lost >= 0.2).mean() < 0.35,
        ("direct retrieval (", "% of documents lose 20 points or more"),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def hybrids():
    with trained_models.registered():
        yield


@cache
def measured(name):
    """Return evidence, and the grid over all sites that are not materialised."""
    model, made = trained_models.kept(name), trained_models.experiment(name)
    seen = None
    if made.train.documents < 1000:
        seen = made.task.documents(made.seed, "train", 0, made.train.documents)
    options = GridOptions(site="all", documents=320)
    grid = evaluate_grid(model, made.task, options, seed=made.seed).grid
    return evidence(model, made.task, seen), grid


FEW = ("attention", "mamba, both layers", "half learned", "memoriser")
every_row = pytest.mark.parametrize(
    "name",
    [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in ROWS],
)


def test_every_situation_has_a_row():
    assert set(ROWS) == set(trained_models.SITUATIONS)


@every_row
def test_what_is_said_of_a_trained_model_is_so(name):
    row, (so, grid) = ROWS[name], measured(name)
    said = str(grid.verdict())
    assert row.holds(so), f"it is not so that {row.so}: {so.accuracy}, {so.loss}, {so.back}"
    assert [part for part in row.said if part not in said] == [], f"{said}, but {row.so}"
    assert untrue(said, so) == [], said


@every_row
def test_what_a_card_says_of_a_trained_model_is_so(name):
    so, grid = measured(name)
    record = grid.verdict().to_dict()
    heading, meaning = phrases(record)
    right = float(grid.clean["accuracy"].mean())
    line = replace(
        LINE,
        accuracy=Estimate(right, right, right, 320, 1),
        mechanism=record["mechanism"],
        heading=heading,
        meaning=meaning,
    )
    cells = [vars_of(row) for row in grid.rows(metrics=["share"]) if row.condition == "restored"]
    texts = [sentences.summary(line), sentences.location(cells), sentences.above_all(cells)]
    texts += sentences.convolutions(cells)
    assert len(texts) > 2
    for text in filter(None, texts):
        assert untrue_on_card(text, so) == [], text


def vars_of(row):
    return {name: getattr(row, name) for name in ("site", "layer", "role", "value")}


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("attention", {"query": 1.0}),
        ("attention", {"next_key": 1.0}),
        ("delta rule", {"key": 1.0}),
        ("delta rule", {"value": 1.0}),
        ("mamba, both layers", {"query": 1.0}),
        ("window too short", {"key": 1.0}),
        ("memoriser", {"value": 1.0}),
        ("half learned", {"lost": 0.0}),
        ("one pair", {"lost": 0.1}),
    ],
)
def test_a_sentence_that_is_not_so_is_noticed(name, lie):
    so, _ = measured(name)
    assert untrue(sentence(grid_of(noise=0.0, **lie).verdict().to_dict()), so)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["based", "one layer"])
def test_training_again_gives_the_same_verdict(name, tmp_path):
    again = trained_models.train(name, tmp_path)
    _, grid = measured(name)
    found, kept = again.verdict, grid.verdict()
    assert (found.mechanism, found.layer, found.role) == (kept.mechanism, kept.layer, kept.role)
    assert untrue(str(found), evidence(again.load_model(), again.experiment.task)) == []
