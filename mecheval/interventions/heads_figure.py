"""The figure of induction heads: their scores, and what their ablation does."""

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mecheval.core.plots import FAINT, INK, Picture, styled

if TYPE_CHECKING:
    from mecheval.interventions.heads import AblationRow, Heads


def heads_figure(found: "Heads") -> Figure:
    """Draw layers by heads with both scores, and the accuracies without heads."""
    with styled():
        figure = Picture(figsize=(10.5, 3.4), layout="constrained", facecolor="white")
        twice, asked, bars = figure.subplots(1, 3, width_ratios=[1, 1, 0.9])
        _scores(twice, found, "repeated", "random tokens read twice")
        _scores(asked, found, "document", "documents: query to value")
        _bars(bars, found.ablations)
        return figure


def _scores(axes: Axes, found: "Heads", name: str, title: str) -> None:
    layers = sorted({row.layer for row in found.rows})
    heads = 1 + max(row.head for row in found.rows)
    table = np.full((heads, len(layers)), np.nan)
    for row in found.rows:
        table[row.head, layers.index(row.layer)] = getattr(row, name)
    picture = axes.imshow(table, cmap=mpl.colormaps["YlGnBu"], vmin=0, vmax=1, aspect="auto")
    for layer, head in found.top:
        place = (layers.index(layer) - 0.5, head - 0.5)
        axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor="#d95f02", linewidth=1.3))
    step = max(1, len(layers) // 10)
    axes.set_xticks(range(0, len(layers), step), [str(n) for n in layers[::step]])
    axes.set(xlabel="layer", ylabel="head")
    axes.grid(False)
    axes.set_title(title, fontsize=9, loc="left", color=INK)
    axes.figure.colorbar(picture, ax=axes, shrink=0.7)


def _bars(axes: Axes, rows: "tuple[AblationRow, ...]") -> None:
    labels, shown = [], []
    for row in rows:
        many = f"{len(row.heads)} heads"
        labels.append({"none": "all heads", "top": f"without {many}"}.get(row.ablated, "others"))
        shown.append(row)
    x = np.arange(len(shown))
    values = np.array([row.accuracy for row in shown])
    errors = np.array(
        [[row.accuracy - row.low for row in shown], [row.high - row.accuracy for row in shown]]
    )
    colours = [{"none": "#225ea8", "top": "#d95f02"}.get(row.ablated, FAINT) for row in shown]
    axes.bar(x, values, yerr=errors, color=colours, capsize=2, width=0.7)
    axes.set_xticks(x, labels, rotation=40, ha="right", fontsize=7)
    axes.set(ylabel="right answers", ylim=(0, 1))
    axes.set_title("ablated (marked at the left)", fontsize=9, loc="left", color=INK)
