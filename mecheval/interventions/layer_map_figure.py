"""The figure of a layer map: roles by layers, the kind of each layer, and curves below."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from mecheval.core.plots import EMPTY, FAINT, INK, Picture, styled
from mecheval.interventions.layer_map import LayerMap

WIDTH, MOST_NUMBERS = 0.34, 40  # inches of a layer; layers up to which cells have numbers
KINDS = ("#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e", "#e6ab02", "#a6761d", "#666666")
CURVES = {"key": "#6b6b6b", "value": "#225ea8", "next_key": "#41b6c4", "query": "#d95f02"}


def layer_map_figure(found: LayerMap) -> Figure:
    """Draw the shares of every role at the input of every layer."""
    with styled():
        width = max(5.0, 1.3 + WIDTH * found.layers)
        height = 0.36 * len(found.roles) + 3.4
        figure = Picture(figsize=(width, height), layout="constrained", facecolor="white")
        ratios = [0.36 * len(found.roles) + 0.3, 2.3]
        above, below = figure.subplots(2, 1, height_ratios=ratios, sharex=True)
        _heat(above, found)
        for role in found.roles:
            _curve(below, found, role)
        below.set(xlabel="input of layer", ylabel="share restored", ylim=(-0.1, 1.15))
        every = range(found.layers)
        below.set_xticks(list(every), [str(layer) for layer in every], fontsize=7)
        below.legend(loc="center left", ncols=1, fontsize=8)
        if found.kinds:
            _mark_kinds(above, found)
        title = f"what the input of each layer restores · n = {found.documents}"
        above.set_title(title, loc="left", fontsize=10, color=INK)
        return figure


def _heat(axes: Axes, found: LayerMap) -> None:
    axes.set(xlim=(-0.5, found.layers - 0.5), ylim=(len(found.roles) + 0.5, 0))
    names = [role.replace("_", " ") for role in found.roles]
    axes.set_yticks([i + 0.5 for i in range(len(names))], names)
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for y, role in enumerate(found.roles):
        for row in found.at(role):
            known = not np.isnan(row.share)
            shade = min(max(row.share, 0.0), 1.0) if known else 0.0
            face = mpl.colormaps["YlGnBu"](shade) if known else EMPTY
            place = (row.layer - 0.5, y)
            axes.add_patch(Rectangle(place, 1, 1, facecolor=face, edgecolor="white"))
            if found.layers <= MOST_NUMBERS:
                ink = "white" if shade > 0.5 else INK
                look: Any = {"ha": "center", "va": "center", "fontsize": 6.5, "color": ink}
                text = f"{100 * row.share:.0f}".replace("-0", "0") if known else "–"
                axes.text(row.layer, y + 0.5, text, **look)


def _curve(axes: Axes, found: LayerMap, role: str) -> None:
    rows = found.at(role)
    x = [row.layer for row in rows]
    colour = CURVES.get(role, FAINT)
    axes.plot(x, [row.share for row in rows], color=colour, label=role.replace("_", " "))
    low, high = [row.low for row in rows], [row.high for row in rows]
    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)


def _mark_kinds(axes: Axes, found: LayerMap) -> None:
    """Draw a strip below the cells with a colour for each kind of layer."""
    colours = dict(zip(dict.fromkeys(found.kinds), KINDS, strict=False))
    y = len(found.roles) + 0.12
    for layer, kind in enumerate(found.kinds):
        place = (layer - 0.5, y)
        look: Any = {"facecolor": colours.get(kind, FAINT), "edgecolor": "white"}
        axes.add_patch(Rectangle(place, 1, 0.3, **look))
    handles = [Patch(color=colour, label=kind) for kind, colour in colours.items()]
    place_of: Any = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 4, "fontsize": 7}
    axes.legend(handles=handles, **place_of)
