"""The figure of a capacity curve."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mecheval.core.plots import FAINT, INK, Picture, styled
from mecheval.metrics.capacity import Capacity, CapacityRow

COLOUR = "#225ea8"
SHADES = ("#a1dab4", "#41b6c4", "#2c7fb8", "#253494")


def capacity_figure(curve: Capacity) -> Figure:
    """Draw accuracy by number of pairs beside chance, and by distance for some of them."""
    with styled():
        figure = Picture(figsize=(8.2, 3.2), layout="constrained", facecolor="white")
        left, right = figure.subplots(1, 2, sharey=True)
        rows = curve.by_pairs()
        _curve(left, [row.pairs for row in rows], rows, COLOUR, "right answers")
        chance = [row.chance for row in rows]
        left.plot([row.pairs for row in rows], chance, "--", color=FAINT, label="without recall")
        left.set(xlabel="pairs in the document", ylabel="right answers", ylim=(-0.02, 1.02))
        left.set_title(f"{curve.name or 'capacity'} · n = {rows[0].n} each", loc="left", color=INK)
        left.legend(loc="best")
        _by_distance(right, curve)
        return figure


def _by_distance(axes: Axes, curve: Capacity) -> None:
    pairs = [row.pairs for row in curve.by_pairs()]
    chosen = pairs[-len(SHADES) :] if len(pairs) <= len(SHADES) else _spread(pairs)
    for number, shade in zip(chosen, SHADES, strict=False):
        rows = curve.by_distance(number)
        _curve(axes, [row.distance or 0 for row in rows], rows, shade, f"{number} pairs")
    axes.set(xlabel="tokens from the value to the query")
    axes.legend(loc="best")


def _spread(pairs: list[int]) -> list[int]:
    last = len(pairs) - 1
    places = {round(i * last / (len(SHADES) - 1)) for i in range(len(SHADES))}
    return [pairs[place] for place in sorted(places)]


def _curve(axes: Axes, x: list[int], rows: list[CapacityRow], colour: str, label: str) -> None:
    y = [row.accuracy for row in rows]
    below = [row.accuracy - row.low for row in rows]
    above = [row.high - row.accuracy for row in rows]
    look: Any = {"color": colour, "marker": "o", "markersize": 4, "linewidth": 1.4, "capsize": 2}
    axes.errorbar(x, y, yerr=[below, above], label=label, elinewidth=0.8, **look)
