"""Figures of training: when a mechanism emerges, the curves, and what a token costs."""

from collections.abc import Callable
from typing import Any

from pandas import DataFrame, concat

from mecheval.interventions.emergence import crossings
from mecheval.report import labels as names
from mecheval.report.drawing import NothingToDraw
from mecheval.report.figure import Figure
from mecheval.report.parts.curves import LOG, SHARE, Curves
from mecheval.report.parts.lines import Lines
from mecheval.report.study import CELL, Study
from mecheval.report.tables import at_chosen, averaged
from mecheval.tasks import tasks

ROWS = {"share": "restored share", "loss": "dev loss"}
ROWS |= {"gradient_norm": "gradient norm", "accuracy": "dev accuracy"}
MOST = 160  # points of a curve
Label = Callable[[dict[str, Any]], str]


def emergence(study: Study, first: str | None = None) -> Figure:
    """Draw the restored shares, the loss and the gradient norm during training.

    The panel of the architecture `first` comes first.
    """
    rows = at_chosen(study, study.rows)
    last = [f"blocks.{int(n) - 1}.block_in" for n in rows["model.layers"]]
    roles = {role: colour for role, colour in names.ROLES.items() if role != "divider"}
    rows = rows[(rows["site"] == last) & rows["role"].isin(list(roles))]
    for name, value in {"metric": "share", "condition": "restored", "split": "dev"}.items():
        rows = rows[rows[name] == value]
    shares = rows.assign(series=rows["role"].str.replace("_", " "), quantity="share")
    trained = at_chosen(study, study.curves).assign(series="training")
    table = _curves([shares, *(_quantity(trained, name) for name in ("loss", "gradient_norm"))])
    if not len(table):
        raise NothingToDraw(study)
    if first is not None:
        table = table.sort_values(
            "model.architecture", key=lambda texts: texts != first, kind="stable"
        )
    colours = {role.replace("_", " "): colour for role, colour in roles.items()}
    used = {role: colour for role, colour in colours.items() if role in set(table["series"])}
    kinds = {ROWS["share"]: SHARE} if len(shares) else {}
    kinds |= {ROWS["loss"]: LOG, ROWS["gradient_norm"]: LOG}
    curves = Curves("", table, kinds, {**used, "training": names.INK}, _marks(rows))
    note = (
        "Share restored at the input of the last layer, on dev, by the token it was put back at; "
        "there is none before the corruption costs anything. Dotted: the first step at which a "
        "share is one half."
    )
    return Figure.of(study, "emergence", "When the mechanism comes about", [curves], note)


def training(study: Study, first: str | None = None) -> Figure:
    """Draw accuracy, loss and gradient norm over the steps, at the chosen rates.

    The architecture `first` comes first; curves that ended at `train.stop` are marked.
    """
    curves = at_chosen(study, study.curves)
    curves = curves.assign(series=[names.architecture(a) for a in curves["model.architecture"]])
    quantities = [name for name in ("accuracy", "loss", "gradient_norm") if name in curves]
    quantities = [name for name in quantities if curves[name].notna().any()]
    if not quantities:  # no run at a chosen rate has a curve
        raise NothingToDraw(study)
    table = _curves([_quantity(curves, name) for name in quantities], _width)
    looks = names.looks_by_name(curves["model.architecture"])
    colours = {name: look[0] for name, look in looks.items()}
    if first is not None and names.architecture(first) in colours:
        colours = {names.architecture(first): colours[names.architecture(first)], **colours}
    kinds = {ROWS[name]: SHARE if name == "accuracy" else LOG for name in quantities}
    parts = [Curves("", table, kinds, colours, _stops(study, curves))]
    return Figure.of(study, "training", "Training at the chosen rates", parts)


def _stops(study: Study, curves: DataFrame) -> DataFrame:
    """Return the last step of each run that ended early, at the accuracy `train.stop`."""
    marks = []
    stop = study.runs.get("train.stop")
    limits = {} if stop is None else dict(zip(study.runs["key"], stop, strict=True))
    ends = curves.loc[curves.groupby("key", sort=False)["step"].idxmax()]
    for last in ends.to_dict("records"):
        limit = limits.get(last["key"])
        if limit == limit and limit is not None and last.get("accuracy", 0.0) >= limit:
            text = f"{last['series']}: stopped at {limit:.0%}"
            mark = {"panel": _width(last), "step": int(last["step"]), "text": text}
            marks.append({**mark, "series": last["series"]})
    return DataFrame(marks, columns=["panel", "step", "text", "series"])


def cost(study: Study) -> Figure:
    """Draw the time and memory of a token against the length of documents."""
    lines = []
    for run in study.runs[study.runs["outcome"] == "done"].to_dict("records"):
        spent = study.facts[run["key"]]["provenance"]
        length = int(tasks.build(run["task"]).max_len)
        tokens = run["train.batch"] * length  # of a step
        total = run["steps"] * tokens
        series = names.architecture(run["model.architecture"])
        line = {**run, "series": series, "length": length, "metric": "cost", "n": total}
        for panel, name, unit in (
            ("CPU time, µs for each token", "cpu_seconds", total / 1e6),
            ("peak memory, kB for each token of a step", "peak_memory_bytes", tokens * 1e3),
        ):
            if unit and spent.get(name) is not None:
                value = spent[name] / unit
                lines.append({**line, "panel": panel, "value": value, "low": value, "high": value})
    by = ["panel", "series", "length", "model.architecture", "model.d_model", "model.layers"]
    table = averaged(DataFrame(lines, columns=[*by, "metric", "value", "low", "high", "n"]), by)
    if not len(table):
        raise NothingToDraw(study)
    table = table.assign(row="", x=table["length"])
    looks = names.looks_by_name(table["model.architecture"])
    part = Lines("", table, looks, "tokens of a document", "", unit="", even=False)
    note = (
        "A whole run, its evaluations included, over the tokens it was trained on; memory is that "
        "of the process, the libraries' own included, over the tokens of one step."
    )
    return Figure.of(study, "cost", "What a token costs, the longer the document", [part], note)


def _quantity(curves: DataFrame, name: str) -> DataFrame:
    return curves.assign(value=curves[name], quantity=name).dropna(subset=["value"])


def _architecture(line: dict[str, Any]) -> str:
    return names.architecture(line["model.architecture"])


def _width(line: Any) -> str:
    return f"d_model {int(line['model.d_model'])}, {int(line['model.layers'])} layers"


def _curves(parts: list[DataFrame], panel: Label = _architecture) -> DataFrame:
    """Return one table of all quantities; long curves are thinned."""
    table = concat(parts, ignore_index=True)
    runs = table[["model.architecture", "model.d_model", "seed", "key"]].itertuples(index=False)
    table = table.assign(
        panel=[panel(line) for line in table[list(CELL)].to_dict("records")],
        row=table["quantity"].map(ROWS),
        run=[f"{a}, d={d}, seed {s}, {key[:8]}" for a, d, s, key in runs],
        place=[names.order(text) for text in table["model.architecture"]],
    )
    by = ["model.d_model", "place", "seed", "series", "step"]
    table = table.sort_values(by, kind="stable")
    line = table.groupby(["row", "series", "key"])
    table = table[line.cumcount() % (line["step"].transform("size") // MOST + 1) == 0]
    return table[["panel", "row", "series", "run", "step", "value", *CELL, "train.lr", "seed"]]


def _marks(shares: DataFrame) -> DataFrame:
    """Return the first role to reach one half in each run."""
    marks = []
    for _, rows in shares.groupby("key", sort=False):
        steps: dict[str, int] = {}
        for crossed in crossings(rows.to_dict("records")).values():
            steps |= crossed
        if steps:
            role, step = min(steps.items(), key=lambda item: item[1])
            series = role.replace("_", " ")
            panel = names.architecture(rows["model.architecture"].iloc[0])
            text = f"½ at {series}: {step}"
            marks.append({"panel": panel, "step": step, "text": text, "series": series})
    return DataFrame(marks, columns=["panel", "step", "text", "series"])
