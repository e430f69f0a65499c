"""Figures 3 to 13, laid out like the paper's, and those of grandparent and reversed queries.

pyproject.toml registers every function as the figure of its name.
"""

from collections.abc import Sequence
from typing import Any

from pandas import DataFrame

from mecheval.core.spec import Spec
from mecheval.paper.comparison import beside
from mecheval.report import labels as names
from mecheval.report.evidence import LAYER_1
from mecheval.report.figure import Figure, Part
from mecheval.report.parts.heat import Heat
from mecheval.report.parts.lines import Lines
from mecheval.report.parts.points import Boxes, Points
from mecheval.report.study import CELL, Study
from mecheval.report.tables import Reading, behaviour, choice, chosen, ordered, read

WIDTH = "width (d_model)"
LIKELIHOOD = "likelihood of the right answer, %"
RESTORED = "Restored: the key is corrupted, and the clean input of layer 1 is put back"
RESTORED += " at one token."
MAMBA_TAPS = "taps of Mamba's convolution"
ROLES = ("key", "value", "query")


def restored(
    panel: str,
    site: str,
    role: str,
    metric: str = "likelihood",
    split: str = "test",
) -> Reading:
    """Return what is left of a number if the key is corrupted and one token restored."""
    place = {"site": site, "role": role, "split": split}
    return Reading(panel=panel, metric=metric, condition="restored", **place)


ENDS = (Reading(panel="Original"), Reading(panel="Corrupted Key", condition="corrupt"))
FIVE = (*ENDS, *(restored(f"Restored @ {role.title()}", LAYER_1, role) for role in ROLES))


def figure3(study: Study) -> Figure:
    """Draw which architectures solve associative recall, and how."""
    parts = _by_architecture(study, "3")
    title = f"Associative recall: {LIKELIHOOD}"
    return Figure.of(study, "figure3", title, parts, RESTORED, choice(study))


def figure4a(study: Study) -> Figure:
    """Draw Mamba with shorter convolutions on associative recall."""
    readings = (behaviour(panel="Accuracy"), FIVE[0], FIVE[2], FIVE[4])
    table = _kernels(read(study, readings, beside=beside("4a")), "d_conv")
    title = "Mamba with shorter convolutions on associative recall, %"
    heat = Heat("", table, WIDTH, MAMBA_TAPS)
    return Figure.of(study, "figure4a", title, [heat], RESTORED, choice(study))


def figure4b(study: Study) -> Figure:
    """Draw Based with shorter convolutions and a long one on associative recall."""
    readings = [behaviour(panel="Accuracy")]
    table = _kernels(read(study, readings, beside=beside("4b")), "kernel")
    heat = Heat("", table, WIDTH, "taps of Based's convolution")
    title = "Based with other convolutions on associative recall, %"
    return Figure.of(study, "figure4b", title, [heat], choice(study))


def figure5(study: Study) -> Figure:
    """Draw what Mamba's convolutions restore on associative recall, at every rate."""
    readings = list(ENDS)
    for layer, role in ((0, "value"), (0, "next_key"), (1, "value")):
        panel = f"Restored @ {layer}, {role.replace('_', ' ').title()}"
        readings.append(restored(panel, f"blocks.{layer}.mixer.conv_out", role))
    table = read(study, readings, beside=beside("5", every_rate=True), every_rate=True)
    table = table.assign(x=table["model.d_model"], y=[f"{r:.0e}" for r in table["train.lr"]])
    place = {reading.panel: i for i, reading in enumerate(readings)}
    table = table.assign(place=table["panel"].map(place))
    by, ascending = ["place", "train.lr", "model.d_model"], [True, False, True]
    table = table.sort_values(by, ascending=ascending, kind="stable").drop(columns="place")
    title = f"Mamba's short convolutions on associative recall: {LIKELIHOOD}"
    note = "Restored: the clean output of the short convolution of a layer put back at one token"
    note += ", for every rate."
    return Figure.of(study, "figure5", title, [Heat("", table, WIDTH, "rate")], note)


def figure7(study: Study) -> Figure:
    """Draw which architectures solve associative treecall, and how."""
    parts = _by_architecture(study, "7")
    title = f"Associative treecall: {LIKELIHOOD}"
    return Figure.of(study, "figure7", title, parts, RESTORED, choice(study))


def figure8(study: Study) -> Figure:
    """Draw Mamba with shorter convolutions on associative treecall."""
    table = _kernels(read(study, FIVE, beside=beside("8")), "d_conv")
    title = f"Mamba with shorter convolutions on treecall: {LIKELIHOOD}"
    heat = Heat("", table, WIDTH, MAMBA_TAPS)
    return Figure.of(study, "figure8", title, [heat], RESTORED, choice(study))


def figure9(study: Study) -> Figure:
    """Draw every architecture with and without position embeddings."""
    table = read(study, [behaviour()], beside=beside("9"))
    texts = table["model.architecture"]
    positions = [names.option(text, "positions") for text in texts]
    table = table.assign(
        panel=[names.architecture(Spec.parse(text).name) for text in texts],
        series=["with positions" if value else "without positions" for value in positions],
        row=[names.task(text) for text in table["task"]],
        x=table["model.d_model"],
    )
    looks = {"with positions": ("#0072B2", "o"), "without positions": ("#D55E00", "s")}
    lines = Lines("", table, looks, WIDTH, "accuracy on test", dashed=("without positions",))
    title = "With and without position embeddings"
    return Figure.of(study, "figure9", title, [lines], choice(study))


def figure10(study: Study) -> Figure:
    """Draw accuracy and restored shares on pairs that were never asked in training."""
    dev, test = (behaviour(split=split, panel=split) for split in ("dev", "test"))
    best = _series(read(study, [dev, test], beside=beside("10a")))
    panels = {"dev": "dev: pairs of training", "test": "test: pairs never asked before"}
    best = best.assign(panel=[panels[panel] for panel in best["panel"]], row="")
    every = _against(study, [("", dev, test)])
    sides = []
    for role in ROLES:
        on_dev, on_test = (restored("", LAYER_1, role, "share", s) for s in ("dev", "test"))
        sides.append((role, on_dev, on_test))
    shares = _against(study, sides).query("-0.5 <= x <= 1.5 and -0.5 <= y <= 1.5")
    looks = _looks(every)
    titles = (
        "(a) at the chosen rates",
        "(b) at every rate, the chosen ones large",
        "(c) share restored at the input of layer 1, by the token it was put back at",
    )
    parts: list[Part] = [
        Lines(titles[0], best, _looks(best), WIDTH, "accuracy"),
        Points(titles[1], every, looks, "dev accuracy", "test accuracy"),
        Points(titles[2], shares, looks, "on dev", "on test", (-0.5, 1.5)),
    ]
    drawn = [part for part in parts if len(part.table)]
    note = "(c): only checkpoints that lose by the corruption have a share"
    note += "; shares beyond −50 and 150 % are left out."
    title = "Pairs that were never asked in training"
    return Figure.of(study, "figure10", title, drawn, note, choice(study))


def figure11(study: Study) -> Figure:
    """Draw models of one layer and of two."""
    parts = _by_depth(study, {"recall": "11a", "treecall": "11b"})
    return Figure.of(study, "figure11", "One layer against two", parts, choice(study))


def figure12(study: Study) -> Figure:
    """Draw accuracy, and what each layer's mixer restores at the query, by number of layers."""
    parts: list[Part] = [*_by_depth(study, {"recall": "12a"})]
    rows = study.rows
    for name, value in {"metric": "share", "condition": "restored", "role": "query"}.items():
        rows = rows[rows[name] == value]
    rows = rows[(rows["split"] == "test") & rows["site"].str.endswith(".mixer_out")]
    if len(rows):
        panels = [_layers(n) for n in rows["model.layers"]]
        rows = rows.assign(panel=panels, x=rows["layer"].astype(int))
        rows = _series(rows.sort_values(["model.layers", "layer"]))
        columns = ["panel", "series", "x", "value", "low", "high", "n", *CELL, "train.lr", "seed"]
        title = "(b) share restored by the mixer's output at the query"
        title += ": every rate and width that loses by the corruption"
        parts.append(Boxes(title, rows[columns], _looks(rows), "layer", "restored share"))
    title = "Which layer retrieves, in models of one to three layers"
    return Figure.of(study, "figure12", title, parts, choice(study))


def figure13(study: Study) -> Figure:
    """Draw rightmost sibling queries by number of layers."""
    parts = _by_depth(study, {"treecall": "13"})
    return Figure.of(study, "figure13", "Rightmost sibling queries", parts, choice(study))


def grandparent(study: Study) -> Figure:
    """Draw grandparent queries by number of layers."""
    return Figure.of(study, "grandparent", "Grandparent queries", _by_depth(study), choice(study))


def reverse(study: Study) -> Figure:
    """Draw AR that shows a value and asks for its key, at every rate, as it was published."""
    numbers = beside("3-reverse", every_rate=True)
    table = _series(read(study, [behaviour()], beside=numbers, every_rate=True))
    rows = zip(table["series"], table["train.lr"], strict=True)
    table = table.assign(panel="Accuracy", y=[f"{name}, rate {rate:.0e}" for name, rate in rows])
    title = "Associative recall with reversed queries: accuracy on test, %"
    note = "Shown is a value; asked for is its key, which stands before it."
    return Figure.of(study, "reverse", title, [Heat("", table, WIDTH, "")], note)


def _by_architecture(study: Study, figure: str) -> list[Heat]:
    """Return a heat map for each task: architectures down, widths across, the five panels."""
    table = _series(read(study, FIVE, beside=beside(figure)))
    table = table.assign(y=table["series"])
    tasks = ordered(table["task"])
    return [Heat(names.task(task), table[table["task"] == task], WIDTH, "") for task in tasks]


def _by_depth(study: Study, figure_of: dict[str, str] | None = None) -> list[Lines]:
    """Return a part for each task: accuracy over widths, a panel for each number of layers."""
    parts = []
    for task in study.field("task"):
        figure = (figure_of or {}).get(Spec.parse(task).name)
        table = read(study, [behaviour()], beside=beside(figure) if figure else None)
        table = _series(table[table["task"] == task].sort_values("model.layers", kind="stable"))
        table = table.assign(panel=[_layers(n) for n in table["model.layers"]], row="")
        parts.append(Lines(names.task(task), table, _looks(table), WIDTH, "accuracy on test"))
    return parts


def _layers(n: int) -> str:
    return f"{int(n)} layer" if n == 1 else f"{int(n)} layers"


def _kernels(table: DataFrame, option: str) -> DataFrame:
    taps = [names.option(text, option) for text in table["model.architecture"]]
    return table.assign(x=table["model.d_model"], y=["none" if n == 0 else str(n) for n in taps])


def _series(table: DataFrame) -> DataFrame:
    """Sort the lines in the paper's order and name the architecture of each."""
    texts = table["model.architecture"]
    place = {text: i for i, text in enumerate(sorted(set(texts), key=names.order))}
    x = table["x"] if "x" in table else table["model.d_model"]
    table = table.assign(series=[names.architecture(text) for text in texts], x=x)
    return table.iloc[texts.map(place).argsort(kind="stable")]


def _looks(table: DataFrame) -> dict[str, tuple[str, str]]:
    return names.looks_by_name(table["model.architecture"])


def _against(study: Study, pairs: Sequence[tuple[str, Reading, Reading]]) -> DataFrame:
    """Return one reading against another of the same checkpoints, at every rate."""
    by = [*CELL, "train.lr"]
    best = set(chosen(study)[by].itertuples(index=False, name=None))
    lines = []
    for panel, *sides in pairs:
        x, y = (read(study, [side], every_rate=True) for side in sides)
        both = x.assign(x=x["value"], y=y["value"], panel=panel)
        both = both.assign(width=x["model.d_model"], rate=x["train.lr"])
        both["chosen"] = [cell in best for cell in both[by].itertuples(index=False, name=None)]
        dots = _seed_pairs(study, *sides)
        for line in both.dropna(subset=["x", "y"]).to_dict("records"):
            x_seeds, y_seeds = dots.get(tuple(line[name] for name in by), ([], []))
            lines.append({**line, "seeds": len(x_seeds), "x_seeds": x_seeds, "y_seeds": y_seeds})
    columns = [*by, "panel", "x", "y", "width", "rate", "chosen", "seeds", "x_seeds", "y_seeds"]
    return _series(DataFrame(lines, columns=columns))


def _seed_pairs(study: Study, x: Reading, y: Reading) -> dict[Any, tuple[list[float], list[float]]]:
    """Return the numbers of both readings by cell and rate, for the runs that have both."""
    both = x.of(study.rows).set_index("key")
    both = both.assign(y=y.of(study.rows).set_index("key")["value"]).dropna(subset=["y"])
    groups = both.groupby([*CELL, "train.lr"])
    return {cell: (group["value"].tolist(), group["y"].tolist()) for cell, group in groups}
