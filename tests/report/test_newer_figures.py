"""Figures of our recipes beyond the paper: what a reader must be able to read off."""

import pytest
from matplotlib.text import Text
from support.made_runs import behaviour, finished, grid, planned, verdict

from mecheval.report.drawing import draw
from mecheval.report.parts.mechanisms import FAINTEST, _strength
from mecheval.report.study import Study
from mecheval.sweeps.newer import lattice_nodes
from mecheval.sweeps.recipe import get_experiments, get_scale

SHARES = {"key": 0.0, "value": 1.0, "next_key": 0.0, "query": 0.0}


def made(folder, recipe, accuracy=0.9, mechanism="induction", skip=()):
    """A sweep at the scale `quick` with the same numbers in every run but those skipped."""
    experiments = get_experiments(recipe, get_scale("quick"))
    planned(folder, recipe, experiments)
    for one in experiments:
        if one.model.architecture not in skip:
            rows = behaviour(accuracy, accuracy) + grid(0.8, 0.1, SHARES)
            finished(folder, one, rows, said=verdict(mechanism))
    return draw(Study.read(folder), recipe)


def texts(figure):
    return [found.get_text() for found in figure.picture().findobj(Text) if found.get_text()]


def test_the_lattice_has_a_line_for_every_node_and_says_what_is_switched_on(tmp_path):
    figure = made(tmp_path, "lattice")
    table = figure.table()
    assert list(dict.fromkeys(table["label"])) == list(lattice_nodes())
    line = table[table["label"] == "− convolution"].iloc[0]
    on = {name: line[name] for name in ("decay", "delta", "conv.", "norm", "normaliser")}
    assert on == {"decay": "by head", "delta": "●", "conv.": "", "norm": "●", "normaliser": ""}
    assert texts(figure).count("90 % induction") == 2 * len(lattice_nodes())


def test_a_place_that_a_model_has_not_is_blank_and_one_that_is_not_run_yet_is_hatched(tmp_path):
    figure = made(tmp_path, "convolutions", skip=("attention:sconv=A",))
    table = figure.table()
    cells = {(line["y"], line["x"]): line["state"] for line in table.to_dict("records")}
    assert ("Mamba, d_conv=0", "q") not in cells
    assert cells["Attention", "A"] == "missing"
    assert texts(figure).count("90 %") == len(cells) - 1
    assert {"linear attention", "Gated DeltaNet, d_conv=0"} <= {y for y, _ in cells}
    assert figure.partial


def test_modern_names_the_layers_where_they_are_not_two(tmp_path):
    figure = made(tmp_path, "modern", mechanism="direct retrieval")
    names = list(dict.fromkeys(text for text in texts(figure) if text.startswith("hybrid")))
    assert names == [
        "hybrid:gated_delta_net+attention",
        "hybrid:gated_delta_net*3+attention, 4 layers",
    ]


@pytest.mark.parametrize("recipe", ["lattice", "convolutions", "modern"])
def test_a_chart_has_every_number_of_the_picture(recipe, tmp_path):
    figure = made(tmp_path, recipe)
    (rows,) = figure.spec()["datasets"].values()
    assert len(rows) == len(figure.table())
    assert {row["mechanism"] for row in rows} == {"induction"}


def test_a_colour_is_faint_at_chance_and_full_at_the_top():
    line = {"state": "measured", "chance": 0.25, "value": 0.25}
    assert _strength(line) == FAINTEST
    assert _strength({**line, "value": 0.1}) == FAINTEST
    assert _strength({**line, "value": 1.0}) == 1.0
    assert FAINTEST < _strength({**line, "value": 0.5}) < 0.6
    assert _strength({**line, "state": "missing"}) == 0.0
