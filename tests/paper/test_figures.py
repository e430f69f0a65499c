"""Every figure from a sweep of its recipe; what failed is hatched, what is missing is stamped."""

import json
from itertools import pairwise

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from support.made_runs import behaviour, experiment, finished, grid, planned

from mecheval.core.errors import InvalidInput
from mecheval.report.drawing import draw, figure_named, figures
from mecheval.report.files import save
from mecheval.report.study import Study
from mecheval.sweeps.recipe import recipe_names


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


def hatches(figure: Figure) -> list[str]:
    return [found.get_hatch() for found in figure.findobj(Rectangle) if found.get_hatch()]


def five(folder, architectures=("attention", "mamba", "hyena", "h3")):
    """A sweep of figure 3: one run done, one diverged, one failed, one missing."""
    every = [experiment(name) for name in architectures]
    planned(folder, "figure3", every)
    finished(
        folder,
        every[0],
        behaviour(0.9, 0.8) + grid(0.8, 0.1, {"key": 0.0, "value": 1.0, "query": 0.0}),
    )
    finished(folder, every[1], status="diverged", reason="the loss is nan")
    (folder / f"{every[2].name}.partial").mkdir()
    return Study.read(folder)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipe_names())
def test_a_figure_is_drawn_from_a_sweep_of_its_recipe(recipe, micro, tmp_path):
    study = Study.read(micro(recipe))
    assert study.counts["done"] == len(study.runs)
    sheet = draw(study, recipe)
    save(sheet, tmp_path / "figure.pdf")
    spec = json.dumps(sheet.spec(), allow_nan=False)
    assert '"$schema"' in spec
    assert len(sheet.table())
    assert not sheet.partial


def test_every_recipe_has_its_figure_and_every_figure_its_recipe():
    assert set(recipe_names()) == set(figures.names())


def test_a_cell_shows_its_number_and_its_interval(tmp_path):
    shown = texts(draw(five(tmp_path), "3").picture())
    assert "80.0" in shown
    assert "[78, 82]" in shown
    assert [name for name in dict.fromkeys(shown) if name in ("Mamba", "Attention")] == [
        "Mamba",
        "Attention",
    ]


@pytest.mark.parametrize("recipe", ["figure3", "figure5", "figure8"])
def test_headings_of_panels_do_not_run_into_one_another(recipe, micro):
    """With one narrow column in each."""
    picture = draw(Study.read(micro(recipe)), recipe).picture()
    FigureCanvasAgg(picture).draw()
    boxes = sorted(
        (axis.title.get_window_extent() for axis in picture.findobj(Axes) if axis.get_title()),
        key=lambda b: b.x0,
    )
    assert len(boxes) >= 4
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def test_what_failed_is_hatched_in_every_panel_and_what_is_missing_dotted(tmp_path):
    picture = draw(five(tmp_path), "3").picture()
    assert hatches(picture).count("//////") == 10
    assert hatches(picture).count("...") == 5
    assert [texts(picture).count(word) for word in ("diverged", "failed", "not yet")] == [5, 5, 5]


def test_on_a_page_only_a_number_has_the_colour_of_a_number(tmp_path):
    layers = draw(five(tmp_path), "3").spec()["spec"]["layer"]
    coloured = [
        layer for layer in layers if layer["encoding"].get("color", {}).get("field") == "value"
    ]
    assert [layer["transform"] for layer in coloured] == [[{"filter": "isValid(datum.value)"}]]


def test_a_sweep_that_is_not_done_is_stamped_with_its_counts(tmp_path):
    shown = texts(draw(five(tmp_path), "3").picture())
    assert "PARTIAL" in shown
    assert "PARTIAL · scale quick · runs: 1 done, 1 diverged, 1 failed, 1 missing" in shown


def test_the_reason_why_numbers_are_not_compared_is_below_the_figure(tmp_path):
    sheet = draw(five(tmp_path), "3")
    assert any("recall:pairs=16" in note for note in sheet.notes)
    assert any("n = 320 documents, 1 seed" in note for note in sheet.notes)


def test_the_papers_number_is_in_the_cell_where_it_can_be_compared(tmp_path):
    one = experiment(
        "mamba", task="recall:pairs=16", model__d_model=256, train__steps=None, train__batch=32
    )
    planned(tmp_path, "figure3", [one], "paper")
    finished(
        tmp_path,
        one,
        behaviour(0.9, 0.9) + grid(0.9, 0.05, {"key": 0.0, "value": 0.0, "query": 1.0}),
    )
    assert "90.3 −0.3" in texts(draw(Study.read(tmp_path), "3").picture())


def test_picture_and_page_show_the_same_numbers(micro):
    sheet = draw(Study.read(micro("figure3")), "3")
    drawn = next(iter(sheet.spec()["datasets"].values()))
    assert [line["value"] for line in drawn] == pytest.approx(sheet.table()["value"].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "pdf", "svg", "json", "csv", "html"])
def test_the_same_figure_is_the_same_file(ending, tmp_path):
    sheet = draw(five(tmp_path), "3")
    first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    save(sheet, first)
    save(sheet, second)
    assert first.read_bytes() == second.read_bytes()


def test_text_in_an_svg_is_text(tmp_path):
    save(draw(five(tmp_path), "3"), tmp_path / "figure.svg")
    assert ">Attention</text>" in (tmp_path / "figure.svg").read_text()


def test_runs_of_another_recipe_are_refused_with_what_draws_them(tmp_path, micro):
    with pytest.raises(InvalidInput, match="mecheval figure 3 --runs"):
        draw(five(tmp_path), "7")
    loose = tmp_path / "loose"
    finished(loose, experiment(), behaviour(0.5, 0.5))
    with pytest.raises(InvalidInput, match="is not a sweep"):
        draw(Study.read(loose), "3")


def test_a_number_is_short_for_the_figure_of_that_number():
    assert figure_named("3") == figure_named("figure3") == "figure3"


def test_an_unknown_figure_is_refused_with_the_nearest():
    with pytest.raises(InvalidInput, match="did you mean 'emergence'"):
        figure_named("emergance")


@pytest.mark.parametrize("recipe", ["figure9", "figure10", "demo"])
def test_every_seed_is_a_dot_in_picture_and_page(recipe, tmp_path):
    """Accuracies that no mean has, so that only the dot of a seed can be there."""
    task = "treecall:held_out=0.2,max_len=32" if recipe == "figure10" else "recall:pairs=4,vocab=64"
    every = [experiment(seed=seed, task=task) for seed in range(3)]
    planned(tmp_path, recipe, every)
    for one, value in zip(every, (0.31, 0.62, 0.93), strict=True):
        finished(tmp_path, one, behaviour(value, value))
    figure = draw(Study.read(tmp_path), recipe)
    drawn = [path.get_offsets() for path in figure.picture().findobj(PathCollection)]
    numbers = {round(float(number), 6) for points in drawn for point in points for number in point}
    assert {0.31, 0.62, 0.93} <= numbers
    assert "flatten" in json.dumps(figure.spec())
    assert any("Small dots: seeds" in note for note in figure.notes)
