"""What the Vega-Lite charts have in common."""

from collections.abc import Mapping
from typing import Any

import altair
from pandas import DataFrame

from mecheval.report.labels import INK, MARKERS
from mecheval.report.tables import ordered

Chart = Any  # altair's kinds have no name in common that its own functions take
Looks = dict[str, tuple[str, str]]  # colour and marker by series

# the page's own colour, be it light or dark; in a file by itself that is black
_INK = "currentColor"
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "title": {"color": _INK, "fontSize": 12, "fontWeight": "normal", "anchor": "middle"},
    "axis": {
        "labelColor": _INK,
        "titleColor": _INK,
        "titleFontWeight": "normal",
        "gridColor": "#88888833",
        "domainColor": "#888888",
        "tickColor": "#888888",
        "labelLimit": 240,
    },
    "header": {"labelColor": _INK, "labelFontSize": 12, "labelFontWeight": "bold", "titleColor": _INK},
    "legend": {"labelColor": _INK, "titleColor": _INK, "symbolOpacity": 1},
}


def colour(colours: Mapping[str, str], field: str = "series", **other: Any) -> altair.Color:
    names = list(colours)
    scale = altair.Scale(domain=names, range=[_INK if value == INK else value for value in colours.values()])
    return altair.Color(f"{field}:N", sort=names, title=None, scale=scale, **other)


def series(looks: Looks) -> altair.Color:
    return colour({name: look[0] for name, look in looks.items()})


def shape(looks: Looks) -> altair.Shape:
    scale = altair.Scale(domain=list(looks), range=[MARKERS[marker] for _, marker in looks.values()])
    return altair.Shape("series:N", sort=list(looks), title=None, scale=scale)


def panels(table: DataFrame) -> altair.Column:
    return altair.Column("panel:N", sort=ordered(table["panel"]), title=None)


def shares(ends: tuple[float, float] = (0.0, 1.0)) -> dict[str, Any]:
    """Of an axis in per cent."""
    return {"scale": altair.Scale(domain=list(ends)), "axis": altair.Axis(format=".0%")}


def shade(field: str) -> altair.Color:
    """Of a heat map's cell."""
    scale = altair.Scale(scheme="yellowgreenblue", domain=[0, 1], clamp=True)
    return altair.Color(f"{field}:Q", scale=scale, legend=None)


def ink(field: str) -> Any:
    """Of the number in such a cell."""
    dark = f"isValid(datum.{field}) && datum.{field} > 0.5"
    return altair.condition(dark, altair.value("white"), altair.value("#222222"))


def titled(chart: Any, title: str) -> Chart:
    return chart.properties(title=title) if title else chart


def tooltips(table: DataFrame) -> list[altair.Tooltip]:
    """Every fact of a number that the table has."""
    plain = {"panel": "panel", "series": "series", "y": "y", "x": "x", "state": "state", "n": "documents"}
    plain |= {"seeds": "seeds", "train.lr": "rate", "why": "not the paper's setting"}
    plain |= {name: f"runs {name}" for name in ("done", "diverged", "failed", "missing")}
    percent = {"value": "ours", "low": "95 % from", "high": "to", "published": "paper", "difference": "ours less paper"}
    found = [(name.replace(".", r"\."), title) for name, title in plain.items() if name in table]
    texts = [altair.Tooltip(f"{name}:N", title=title) for name, title in found]
    return texts + [altair.Tooltip(f"{n}:Q", title=t, format=".1%") for n, t in percent.items() if n in table]
