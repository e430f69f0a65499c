"""The experiments of each recipe, at every scale."""

import re
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from support.tiny_scale import MICRO, micro_scale

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import canonical_json
from mecheval.models.language_model import LanguageModel
from mecheval.plugins import load_plugin, register_model
from mecheval.runs.experiment import Experiment
from mecheval.runs.run import run
from mecheval.sweeps.recipe import (
    ARCHITECTURES,
    get_experiments,
    get_scale,
    recipe,
    recipe_names,
    recipes,
    scales,
)

SCALES = ("quick", "small", "laptop", "paper")
COUNTS = {  # experiments at the scales quick, small, laptop and paper
    "figure1": (8, 24, 16, 240),
    "figure2": (1, 3, 3, 35),
    "figure3": (7, 126, 28, 245),
    "figure4a": (5, 90, 20, 175),
    "figure4b": (5, 90, 20, 175),
    "figure5": (1, 18, 4, 35),
    "figure7": (21, 168, 7, 525),
    "figure8": (5, 90, 5, 125),
    "figure9": (42, 126, 70, 1190),
    "figure10": (7, 21, 7, 175),
    "figure11": (28, 84, 56, 840),
    "figure12": (21, 63, 63, 735),
    "figure13": (21, 63, 21, 525),
    "convolutions": (33, 99, 99, 231),
    "cost": (49, 147, 147, 49),
    "demo": (7, 42, 21, 49),
    "emergence": (7, 21, 21, 49),
    "grandparent": (21, 63, 21, 525),
    "lattice": (34, 204, 68, 204),
    "mamba3": (8, 160, 80, 56),
    "modern": (42, 252, 84, 252),
    "reverse": (7, 21, 21, 245),
}
recipe_module = sys.modules[
    "mecheval.sweeps.recipe"
]  # the package's name `recipe` is the decorator
PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
OF_THE_PAPER = [name for name in COUNTS if name.startswith("figure")]


class Fields:
    """The fields of an experiment in its place: the paper's scale has thousands."""

    of = dict


@cache
def fields_of(name, scale):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe_module, "Experiment", Fields)
        experiments = list(recipes.get(name)(get_scale(scale)))
    return [one.fields() if isinstance(one, Experiment) else one for one in experiments]


def made(name, scale):
    """The experiments themselves, of one rate and seed."""
    alike = {}
    for fields in fields_of(name, scale):
        one_rate = {**fields, "train.lr": 1e-3, "seed": 0}
        alike[canonical_json(one_rate)] = one_rate
    return [Experiment.of(fields) for fields in alike.values()]


def test_a_third_party_model_keeps_its_own_initialisation(own_names):
    class Whole:
        """Theirs."""

        def __init__(self, vocab_size: int, d_model: int, layers: int, max_len: int) -> None: ...

    register_model("theirs")(Whole)
    for experiment in get_scale("quick").experiments("recall", ["theirs", "mamba"]):
        start = {experiment.model.init_linear, experiment.model.init_embedding}
        assert start == ({1.0} if experiment.model.architecture == "theirs" else {3.0, 5.0})


def test_the_recipes_are_the_papers_figures_in_order_and_then_ours():
    assert scales.names() == list(SCALES)
    assert recipe_names() == list(COUNTS)
    assert all(recipes.describe(name).summary for name in COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_every_recipe_yields_so_many_experiments_and_none_twice(name):
    keys = [{canonical_json(fields) for fields in fields_of(name, scale)} for scale in SCALES]
    assert (
        tuple(map(len, keys))
        == tuple(len(fields_of(name, scale)) for scale in SCALES)
        == COUNTS[name]
    )


def test_the_page_says_how_many_runs_each_recipe_has():
    lines = re.findall(r"^\| `(\w+)`((?: \| [\d,]+, [\d,]+)+) \|$", PAGE.read_text(), re.MULTILINE)
    said = {
        name: tuple(int(runs.replace(",", "")) for runs in re.findall(r"\| ([\d,]+), ", rest))
        for name, rest in lines
    }
    assert said == COUNTS


def test_more_seeds_are_the_widest_models():
    seeds = {(e["model.d_model"], e["seed"]) for e in fields_of("figure3", "laptop")}
    assert seeds == {(32, 0), (64, 0), (64, 1), (64, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_every_model_of_every_recipe_can_be_built(scale):
    for model in {experiment.model for name in COUNTS for experiment in made(name, scale)}:
        with torch.device("meta"):
            built = LanguageModel(model, vocab_size=8)
        assert {parameter.device.type for parameter in built.parameters()} == {"meta"}


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_the_papers_scale_is_the_papers(name):
    assert {e["model.d_model"] for e in fields_of(name, "paper")} == {16, 32, 64, 128, 256}
    for e in fields_of(name, "paper"):
        rates, epochs = ((3e-5, 1e-4, 3e-4, 1e-3, 3e-3), 32)
        if e["task"].startswith("recall"):
            rates, epochs = ((*rates, 1e-2, 3e-2), 16)
            assert e["task"] == "recall:pairs=16"
        assert e["train.lr"] in rates
        assert (e["train.epochs"], e["train.documents"], e["train.batch"]) == (epochs, 100_032, 32)
        assert (e["eval.documents"], e["seed"]) == (320, 0)


def test_figure_9_has_every_architecture_with_and_without_positions():
    # an option at its default is not said
    found = {e.model.architecture for e in made("figure9", "quick")}
    both = {f"{name}:positions=true" for name in ARCHITECTURES} - {"attention:positions=true"}
    assert found == both | set(ARCHITECTURES) | {"attention:positions=false"}


def test_figure_10_looks_at_dev_and_at_test_and_asks_there_what_training_never_did():
    assert {e.eval.grid_split for e in made("figure10", "small")} == {"both"}
    assert {e.task.held_out for e in made("figure10", "small")} == {0.2}


def test_the_demo_trains_each_architecture_once():
    assert [e["model.architecture"] for e in fields_of("demo", "quick")] == list(ARCHITECTURES)


def test_every_step_of_the_cost_recipe_has_as_many_tokens():
    for e in made("cost", "quick"):
        length = e.task.max_len + 1
        assert length in (64, 128, 256, 512, 1024, 2048, 4096)
        assert length * e.train.batch == 16_384
        assert e.model.max_len == 4096


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_the_last_experiment_of_every_recipe_runs_to_its_end(name, tmp_path):
    experiment = get_experiments(name, micro_scale(name))[-1]
    assert run(experiment, tmp_path).status == "done"


def test_a_recipe_in_a_file_is_named_like_ours_and_its_task_is_trained_as_recall_is(
    tmp_path, own_names
):
    file = tmp_path / "mine.py"
    file.write_text("""
from mecheval.plugins import register_task
from mecheval.sweeps.recipe import recipe
from mecheval.tasks.recall import Recall

@register_task("mine")
class Mine(Recall):
    "Recall by another name."

@recipe("mine")
def mine(scale):
    "My own question."
    yield from scale.experiments("mine:pairs=2", ["attention"], layers=(1, 2))
""")
    load_plugin(file)
    assert "mine" in recipe_names()
    experiments = get_experiments("mine", MICRO)
    assert [(e.task_spec, e.model.layers, e.train.batch) for e in experiments] == [
        ("mine:pairs=2", 1, 8),
        ("mine:pairs=2", 2, 8),
    ]


def test_a_mixer_that_no_scale_knows_is_tried_at_every_rate():
    found = get_scale("quick").experiments("recall", ["linear_attention"])
    assert [e.train.lr for e in found] == [1e-3, 3e-3, 1e-2]


def test_wrong_names_are_refused_with_the_right_ones():
    with pytest.raises(InvalidInput, match=r"no recipe named 'figure33'; did you mean 'figure"):
        get_experiments("figure33", MICRO)
    with pytest.raises(InvalidInput, match=r"no scale named 'smal'; did you mean 'small'"):
        get_scale("smal")
    with pytest.raises(InvalidInput, match="is taken"):
        recipe("figure3")(lambda scale: iter(()))
