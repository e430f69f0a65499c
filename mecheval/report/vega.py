"""Colours, scales, tooltips and dots that the Vega-Lite charts have in common."""

from collections.abc import Mapping
from typing import Any

import altair
from pandas import DataFrame

from mecheval.report.labels import INK, MARKERS
from mecheval.report.study import OUTCOMES
from mecheval.report.tables import ordered

Chart = Any  # altair's chart types have no common base that its own functions accept
Looks = dict[str, tuple[str, str]]  # colour and marker by series

INK_OF_PAGE = "currentColor"  # the page's own, light or dark; black in a file by itself
_TEXT = {
    "labelColor": INK_OF_PAGE,
    "titleColor": INK_OF_PAGE,
    "labelFontSize": 11,
    "titleFontSize": 12,
}
_AXIS = {"gridColor": "#88888833", "domainColor": "#888888", "tickColor": "#888888"}
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "title": {"color": INK_OF_PAGE, "fontSize": 12, "fontWeight": "normal", "anchor": "middle"},
    "axis": {**_TEXT, **_AXIS, "titleFontWeight": "normal", "labelLimit": 240},
    "header": {**_TEXT, "labelFontSize": 12, "labelFontWeight": "bold"},
    "text": {"fontSize": 11, "color": INK_OF_PAGE},
    "rule": {"color": INK_OF_PAGE},
    "tick": {"color": INK_OF_PAGE},
    "legend": {**_TEXT, "symbolOpacity": 1},
}
_TEXTS = {"panel": "panel", "series": "series", "y": "y", "x": "x", "state": "state"}
_TEXTS |= {"n": "documents", "seeds": "seeds", "train.lr": "rate", "why": "not the paper's setting"}
_TEXTS |= {name: f"runs {name}" for name in OUTCOMES}
_NUMBERS = {"value": "ours", "low": "95 % from", "high": "to"}
_NUMBERS |= {"published": "paper", "difference": "ours less paper"}


def colour(colours: Mapping[str, str], field: str = "series", **other: Any) -> altair.Color:
    names = list(colours)
    inks = [INK_OF_PAGE if value == INK else value for value in colours.values()]
    scale = altair.Scale(domain=names, range=inks)
    return altair.Color(f"{field}:N", sort=names, title=None, scale=scale, **other)


def series(looks: Looks) -> altair.Color:
    return colour({name: look[0] for name, look in looks.items()})


def shape(looks: Looks) -> altair.Shape:
    names, markers = list(looks), [MARKERS[marker] for _, marker in looks.values()]
    scale = altair.Scale(domain=names, range=markers)
    return altair.Shape("series:N", sort=names, title=None, scale=scale)


def seed_dots(base: Chart, *fields: str, **mark: Any) -> Chart:
    """Return a layer with a dot for each seed, from columns that hold lists of the seeds' values.

    Where there is one seed, its value is the number itself and needs no dot.
    """
    several = base.transform_filter("datum.seeds > 1").transform_flatten(list(fields))
    return several.mark_circle(**{"size": 12, "opacity": 0.55, **mark})


def panels(table: DataFrame) -> altair.Column:
    return altair.Column("panel:N", sort=ordered(table["panel"]), title=None)


def shares(ends: tuple[float, float] = (0.0, 1.0)) -> dict[str, Any]:
    """Return the scale and the labels of an axis in per cent."""
    return {"scale": altair.Scale(domain=list(ends)), "axis": altair.Axis(format=".0%")}


def shade(field: str) -> altair.Color:
    """Return the colour of a heat map's cell."""
    scale = altair.Scale(scheme="yellowgreenblue", domain=[0, 1], clamp=True)
    return altair.Color(f"{field}:Q", scale=scale, legend=None)


def ink(field: str) -> Any:
    """Return the colour of the text in a heat map's cell."""
    dark = f"isValid(datum.{field}) && datum.{field} > 0.5"
    return altair.condition(dark, altair.value("white"), altair.value("#222222"))


def titled(chart: Any, title: str) -> Chart:
    return chart.properties(title=title) if title else chart


def tooltips(table: DataFrame) -> list[altair.Tooltip]:
    """Return tooltips with every fact about a number that the table has."""
    tips = []
    for name, title in _TEXTS.items():
        if name in table:
            escaped = name.replace(".", r"\.")
            tips.append(altair.Tooltip(f"{escaped}:N", title=title))
    for name, title in _NUMBERS.items():
        if name in table:
            tips.append(altair.Tooltip(f"{name}:Q", title=title, format=".1%"))
    return tips
