"""Which figures there are: a function of a study each, by the name that `mecheval figure` takes."""

from collections.abc import Callable

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.report.figure import Sheet
from mecheval.report.study import Study

Draw = Callable[[Study], Sheet]
figures: dict[str, Draw] = {}


class NothingToDraw(InvalidInput):
    """No run of a study has come to what its figure shows."""

    def __init__(self, study: Study) -> None:
        super().__init__(f"DIR={str(study.folder)!r} has no finished run: nothing can be drawn")


def figure(name: str) -> Callable[[Draw], Draw]:
    """Registers what draws the runs of the recipe `figure<name>`, or of the recipe of that very name."""

    def register(draw: Draw) -> Draw:
        figures[name] = draw
        return draw

    return register


def named(name: str) -> str:
    """A figure's name: `3` and `figure3` are the same."""
    short = name.removeprefix("figure")
    if short not in figures:
        raise InvalidInput(f"no figure named {name!r}{did_you_mean(short, figures)}")
    return short


def figure_of(recipe: str | None) -> str | None:
    """The figure that a recipe's runs are for, if there is one."""
    short = (recipe or "").removeprefix("figure")
    return short if short in figures else None


def draw(study: Study, name: str) -> Sheet:
    """Refuses runs that are of another recipe: they have not what the figure shows."""
    wanted = named(name)
    if study.recipe is None:
        raise InvalidInput(f"DIR={str(study.folder)!r} is no sweep: figure {wanted} is drawn from one of its recipe")
    there = figure_of(study.recipe)
    if there != wanted:
        hint = f"; 'mecheval figure {there} --runs {study.folder}' draws it" if there else ""
        raise InvalidInput(f"DIR={str(study.folder)!r} is a sweep of {study.recipe}, not of figure {wanted}{hint}")
    return figures[wanted](study)
