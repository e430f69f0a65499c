"""Our recipes beyond the paper switch one thing at a time, and forget no architecture."""

import pytest

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Spec
from mecheval.models.config import ModelConfig
from mecheval.models.registries import architectures
from mecheval.sweeps.newer import (
    EVERYTHING,
    HYBRIDS,
    NOTHING,
    OFF,
    PLACES,
    WITHOUT_CONVOLUTION,
    lattice_nodes,
)
from mecheval.sweeps.recipe import ARCHITECTURES, NEWER, get_experiments, get_scale


def options(text):
    return architectures.check(Spec.parse(text))


def changed(one, other):
    return [name for name, value in options(one).items() if options(other)[name] != value]


def test_every_node_of_the_lattice_is_one_switch_away_from_nothing_or_from_everything():
    nodes = lattice_nodes()
    whole, none = nodes.pop(EVERYTHING), nodes.pop(NOTHING)
    assert len(nodes) == 2 * len(OFF) + 3
    for name, text in nodes.items():
        start = none if name.startswith("+") else whole
        assert len(changed(text, start)) == 1, name
    # from nothing to everything, each switch is turned once
    assert len(changed(none, whole)) == len(OFF)
    assert len(set(map(str, map(ModelConfig, lattice_nodes().values())))) == len(lattice_nodes())


def test_every_architecture_is_in_a_list_that_modern_trains():
    """A new architecture joins NEWER in sweeps/recipe.py, by family."""
    patterns = {Spec.parse(text).name for text in HYBRIDS}
    assert {*ARCHITECTURES, *NEWER} == set(architectures.names()) - patterns
    trained = {one.model.architecture for one in get_experiments("modern", get_scale("small"))}
    assert {*ARCHITECTURES, *NEWER} <= trained


@pytest.mark.parametrize("scale", ["quick", "small", "laptop"])
def test_every_newer_architecture_has_rates_of_its_own_at_every_scale(scale):
    """What no scale lists is tried at every rate, which would be paid for by every run."""
    experiments = get_experiments("modern", get_scale(scale))
    for task in {one.task_spec for one in experiments}:
        rates = {}
        for one in experiments:
            if one.task_spec == task:
                rates.setdefault(one.model.architecture, set()).add(one.train.lr)
        assert {len(found) for found in rates.values()} == {2 if scale == "small" else 1}, task


def test_every_model_of_the_convolutions_has_no_other_one_and_each_place_is_possible():
    for architecture, places in WITHOUT_CONVOLUTION.items():
        assert options(architecture).get("d_conv", 0) == 0
        assert places[0] == ""
        missing = [place for place in PLACES if place not in places]
        for place in missing:
            joint = "," if ":" in architecture else ":"
            with pytest.raises(InvalidInput, match="sconv"):
                ModelConfig(f"{architecture}{joint}sconv={place}")
