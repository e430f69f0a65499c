"""In a model that has learned, a card measures where the answer comes back and what it costs."""

import pytest
from support.card_runs import THIRD_PARTY, alone

from mecheval.cards.measure import FILE, load_or_measure
from mecheval.models.registries import mixers
from mecheval.plugins import register_from_text
from mecheval.runs.experiment import Experiment
from mecheval.runs.finished import Run
from mecheval.runs.run import run

pytestmark = pytest.mark.slow

FIELDS = {
    "task": "recall:pairs=2,vocab=8",
    "model.d_model": 32,
    "model.max_len": 256,
    "train.batch": 64,
}
FIELDS |= {
    "model.init.linear": 3.0,
    "model.init.embedding": 5.0,
    "train.lr": 1e-2,
    "train.steps": 600,
}
FIELDS |= {"train.stop": 0.9, "eval.every": 25, "eval.documents": 128, "eval.grid_documents": 64}


def experiment(architecture):
    return Experiment.of({**FIELDS, "model.architecture": architecture})


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Train a gated recurrence that recalls, and measure it beside the baselines."""
    out = tmp_path_factory.mktemp("learned")
    with alone():
        own = experiment(register_from_text(mixers, f"{THIRD_PARTY / 'gated.py'}:GatedRecurrence"))
        folder = run(own, out).folder
        every = [own, experiment("attention"), experiment("mamba")]
        arguments = {"best": {own.task_spec: folder}, "experiments": every, "folder": out}
        yield load_or_measure(**arguments), Run(folder).load_model(), arguments


@pytest.mark.slow
def test_every_site_that_need_not_be_materialised_is_in_the_heat_map(learned):
    found, model, _ = learned
    from mecheval.models.site import sites

    wanted = [name for name, site in sites(model).items() if not site.materialised]
    assert list(dict.fromkeys(cell["site"] for cell in found.cells)) == wanted
    assert "blocks.0.mixer.conv_out" in wanted


def test_the_key_holds_everything_at_first_and_the_query_at_last(learned):
    shares = {(cell["site"], cell["role"]): cell["value"] for cell in learned[0].cells}
    assert shares["embed_out", "key"] == pytest.approx(1)
    assert shares["embed_out", "query"] == pytest.approx(0)
    assert shares["final_in", "query"] == pytest.approx(1)
    assert shares["final_in", "key"] == pytest.approx(0)


def test_costs_are_those_of_the_built_model(learned):
    found, model, _ = learned
    cost = found.costs[0]
    assert cost["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    # two layers, each 16 key channels by 32 value channels and two taps that wait, of four bytes
    assert [size["value"] for size in cost["state_bytes"]] == [4 * 2 * (16 * 32 + 2 * 32)] * 2
    assert [size["tokens"] for size in cost["flops_per_token"]] == [64, 256]


def test_a_step_is_timed_as_a_ratio_and_to_itself_it_is_one(learned):
    own, *others = learned[0].steps
    assert (own["ratio"], own["low"], own["high"]) == (1, 1, 1)
    for other in others:
        assert 0 < other["low"] <= other["ratio"] <= other["high"]


@pytest.mark.slow
def test_what_was_measured_is_kept_as_long_as_the_runs_are_the_same(learned):
    found, _, arguments = learned
    file = arguments["folder"] / FILE
    before = file.read_bytes()
    assert load_or_measure(**arguments) == found
    assert file.read_bytes() == before
    file.write_bytes(before[: len(before) // 2])
    again = load_or_measure(**arguments)
    assert (again.cells, again.looks, again.costs) == (found.cells, found.looks, found.costs)
    assert again.steps != found.steps, "time was measured again"
