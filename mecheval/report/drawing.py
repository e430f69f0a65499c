"""Figures by the name of the recipe whose runs they show.

A figure is a function from a study to a `Figure`. Ours are registered below, those of a package by
entry points of the group `mecheval.figures`.
"""

from mecheval.core.errors import InvalidInput
from mecheval.core.registry import Registry
from mecheval.report.figure import Figure
from mecheval.report.study import Study

figures = Registry("figure", given=("study",))
figures.add("demo", "mecheval.report.verdict_figure:demo")
figures.add("emergence", "mecheval.report.training_figures:emergence")
figures.add("cost", "mecheval.report.training_figures:cost")
for _name in ("convolutions", "lattice", "mamba3", "modern"):
    figures.add(_name, f"mecheval.report.newer_figures:{_name}")


class NothingToDraw(InvalidInput):
    """No run of a study has measured what its figure shows."""

    def __init__(self, study: Study) -> None:
        super().__init__(f"DIR={str(study.folder)!r} has no finished run to draw")


def figure_named(name: str) -> str:
    """Return the registered name of a figure; a number is short for `figure` and that number."""
    full = f"figure{name}" if name[:1].isdigit() else name
    figures.get(full)  # refuses an unknown name
    return full


def figure_of(recipe: str | None) -> str | None:
    """Return the figure that shows the runs of a recipe, if there is one."""
    return recipe if recipe in figures.names() else None


def draw(study: Study, name: str) -> Figure:
    """Draw a figure from the runs of its recipe; refuse runs of another recipe."""
    full = figure_named(name)
    folder = f"DIR={str(study.folder)!r}"
    if study.recipe is None:
        raise InvalidInput(f"{folder} is not a sweep; {full} is drawn from a sweep of its recipe")
    if study.recipe != full:
        command = f"mecheval figure {short_name(study.recipe)} --runs {study.folder}"
        hint = f"; '{command}' draws it" if figure_of(study.recipe) else ""
        raise InvalidInput(f"{folder} is a sweep of {study.recipe}, not of {full}{hint}")
    return figures.get(full)(study)


def short_name(recipe: str) -> str:
    """Return the number of a numbered figure, or the name of another."""
    return recipe.removeprefix("figure")
