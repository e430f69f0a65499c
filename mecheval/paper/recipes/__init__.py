"""The experiments of every figure of the paper, and some beyond it: one file each, registered when this is imported."""

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.paper.recipes import (  # noqa: F401, importing one registers it
    cost,
    demo,
    emergence,
    figure3,
    figure4a,
    figure4b,
    figure5,
    figure7,
    figure8,
    figure9,
    figure10,
    figure11,
    figure12,
    figure13,
    grandparent,
)
from mecheval.paper.scales import SCALES
from mecheval.sweeps.recipe import Recipe, Scale, Size, recipe, recipes

__all__ = ["SCALES", "Recipe", "Scale", "Size", "all_recipes", "named", "recipe", "scale_named"]


def all_recipes() -> dict[str, Recipe]:
    """Those of the paper in its order, then the others by name."""
    return {found.name: found for found in sorted(recipes.values(), key=_place)}


def named(name: str) -> Recipe:
    if name not in recipes:
        raise InvalidInput(f"no recipe named {name!r}{did_you_mean(name, recipes)}")
    return recipes[name]


def scale_named(name: str) -> Scale:
    if name not in SCALES:
        raise InvalidInput(f"no scale named {name!r}{did_you_mean(name, SCALES)}")
    return SCALES[name]


def _place(found: Recipe) -> tuple[bool, int, str]:
    number = (found.figure or "").rstrip("ab")
    return not found.figure, int(number or 0), found.name
