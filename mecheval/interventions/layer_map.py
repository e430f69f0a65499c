"""A map of where a deep model keeps the information about a corrupted key, layer by layer.

A verdict asks for one role at every boundary. In a deep model the work is shared among layers: this
says in which layers the share at a role rises, with intervals.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.notebook import html_table, short
from mecheval.interventions.grid import Grid
from mecheval.interventions.restoration import shares
from mecheval.metrics.statistics import RESAMPLES, middle

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

HALF = 0.5  # share from which a role holds the information
NOTABLE = 0.1  # rise from which a layer is named
RAISED = {"value": "stored at the value by", "query": "carried to the query by"}
Again = Float64[ndarray, " resamples"]


@dataclass(frozen=True, slots=True)
class LayerRow:
    """The share that the input of a layer restores at a role, and by how much the layer raises it.

    `rise` is the difference between the input of the next layer and that of this one. Intervals
    are at 95 %, by resampling documents.
    """

    layer: int
    kind: str
    role: str
    share: float
    low: float
    high: float
    rise: float
    rise_low: float
    rise_high: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class LayerMap:
    """Shares by layer and role.

    Parameters
    ----------
    rows
        The share of every layer's input at every role.
    layers
        Number of layers.
    roles
        The roles that were restored.
    documents
        Number of documents.
    kinds
        What each layer is, if layers differ.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, depth_grid, layer_map
    >>> task = Recall(pairs=2, vocab=8)
    >>> model = LanguageModel(ModelConfig("attention", d_model=8, layers=3), task.vocab_size)
    >>> layer_map(depth_grid(model, task, documents=40))
    LayerMap(corrupting the key takes too little: there are no shares)
    """

    rows: tuple[LayerRow, ...]
    layers: int
    roles: tuple[str, ...]
    documents: int
    kinds: tuple[str, ...] = ()

    def at(self, role: str) -> list[LayerRow]:
        return [row for row in self.rows if row.role == role]

    def to_frame(self) -> "DataFrame":
        """Return a pandas DataFrame with a line for each layer and role."""
        from pandas import DataFrame

        return DataFrame([row.to_dict() for row in self.rows])

    def plot(self) -> "Figure":
        """Return a matplotlib figure: a heat map of layers by roles, and curves with intervals."""
        from mecheval.interventions.layer_map_figure import layer_map_figure

        return layer_map_figure(self)

    def __str__(self) -> str:
        """Say which layers hold what, and which carry it on."""
        if not self.rows:
            return "corrupting the key takes too little: there are no shares"
        parts = [_held(self.at(role), role) for role in self.roles]
        parts += [_raised(self.at(role), said) for role, said in RAISED.items()]
        return "; ".join(part for part in parts if part)

    def __repr__(self) -> str:
        return short(f"LayerMap({self})", 400)

    def _repr_html_(self) -> str:
        header = list(LayerRow.__slots__)
        lines = [[_cell(getattr(row, name)) for name in header] for row in self.rows]
        return html_table(str(self), header, lines)


def layer_map(grid: Grid, kinds: Sequence[str] = ()) -> LayerMap:
    """Return the shares of a grid by layer and role, with what each layer adds.

    Parameters
    ----------
    grid
        A grid with the inputs of blocks, as `depth_grid` measures it.
    kinds
        What each layer is; by default the grid's kinds.

    Returns
    -------
    LayerMap
        Rows, a table and a figure; as text, the layers that store and those that retrieve.

    Examples
    --------
    >>> from mecheval import LanguageModel, ModelConfig, Recall, depth_grid, layer_map
    >>> task = Recall(pairs=2, vocab=8)
    >>> model = LanguageModel(ModelConfig("attention", d_model=8, layers=3), task.vocab_size)
    >>> layer_map(depth_grid(model, task, documents=40)).documents
    40
    """
    if grid.corrupted != "key":
        raise InvalidInput(f"corrupt={grid.corrupted} must be key for a map of layers")
    names = tuple(kinds) or grid.kinds
    found = {cell[1:]: pair for cell, pair in shares(grid).items() if cell[0] == "restored"}
    roles = tuple(dict.fromkeys(role for _, _, role in grid.cells))
    rows: list[LayerRow] = []
    for role in roles if found else ():
        curve = []
        for layer in range(grid.layers):
            curve.append(found.get((f"blocks.{layer}.block_in", role), _missing()))
        curve.append(_end(role))
        for layer in range(grid.layers):
            (share, again), (after, then) = curve[layer], curve[layer + 1]
            kind = names[layer] if layer < len(names) else ""
            ends, rise = _bounds(share, again), after - share
            rises = _bounds(rise, then - again)
            rows.append(LayerRow(layer, kind, role, share, *ends, rise, *rises))
    return LayerMap(tuple(rows), grid.layers, roles, len(grid.clean["likelihood"]), names)


def _end(role: str) -> tuple[float, Again]:
    """Return the share behind the last layer, where only the query is read."""
    share = float(role == "query")
    return share, np.full(RESAMPLES, share)


def _missing() -> tuple[float, Again]:
    return np.nan, np.full(RESAMPLES, np.nan)


def _bounds(value: float, again: Again) -> tuple[float, float]:
    if np.isnan(value) or np.isnan(again).all():
        return np.nan, np.nan
    low, high = middle(again)
    return min(low, value), max(high, value)


def _held(rows: Sequence[LayerRow], role: str) -> str:
    """Say at the inputs of which layers a role holds half or more; nothing without a share."""
    rows = [row for row in rows if not np.isnan(row.share)]
    if not rows:
        return ""
    layers = [row.layer for row in rows if row.share >= HALF]
    if not layers:
        most = max(rows, key=lambda row: row.share)
        return f"the {_word(role)} never holds half (most {_percent(most)}, layer {most.layer})"
    spans, first = [], layers[0]
    for layer, following in zip(layers, [*layers[1:], -1], strict=True):
        if following != layer + 1:
            spans.append(f"{first}–{layer}" if first < layer else f"{first}")
            first = following
    return f"the {_word(role)} holds half or more at the inputs of layers {', '.join(spans)}"


def _raised(rows: Sequence[LayerRow], what: str) -> str:
    """Name the layers that raise a share notably, and surely: its interval is above 0."""
    if all(np.isnan(row.rise) for row in rows):
        return ""
    named = [row for row in rows if row.rise >= NOTABLE and row.rise_low > 0]
    if not named:
        return f"{what} no single layer"
    ends = [f"{row.rise:.0%} [{row.rise_low:.0%}, {row.rise_high:.0%}]" for row in named]
    names = [f"{row.layer}{f' {row.kind}' if row.kind else ''}" for row in named]
    texts = [f"{name} ({text})" for name, text in zip(names, ends, strict=True)]
    return f"{what} layers {', '.join(texts)}"


def _percent(row: LayerRow) -> str:
    return f"{row.share:z.0%} [{row.low:z.0%}, {row.high:z.0%}]"


def _word(role: str) -> str:
    return role.replace("_", " ")


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
