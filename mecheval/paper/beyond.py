"""Beyond the paper: when a mechanism comes about, what a token costs, and how training went."""

from typing import Any

from pandas import DataFrame, concat

from mecheval.interventions.emergence import crossings
from mecheval.report import labels as names
from mecheval.report.drawing import NothingToDraw, figure
from mecheval.report.figure import Sheet
from mecheval.report.parts.curves import LOG, SHARE, Curves
from mecheval.report.parts.lines import Lines
from mecheval.report.study import CELL, Study
from mecheval.report.tables import at_chosen, averaged
from mecheval.tasks import tasks

ROWS = {"share": "restored share", "loss": "dev loss", "gradient_norm": "gradient norm", "accuracy": "dev accuracy"}
MOST = 160  # points of a curve


@figure("emergence")
def emergence(study: Study) -> Sheet:
    rows = at_chosen(study, study.rows)
    last = [f"blocks.{int(n) - 1}.block_in" for n in rows["model.layers"]]
    wanted = (rows["metric"] == "share") & (rows["condition"] == "restored") & (rows["split"] == "dev")
    roles = {role: colour for role, colour in names.ROLES.items() if role != "divider"}  # which holds nothing
    mine = rows[wanted & (rows["site"] == last) & rows["role"].isin(list(roles))]
    shares = mine.assign(series=mine["role"].str.replace("_", " "), quantity="share")
    trained = at_chosen(study, study.curves).assign(series="training")
    table = _curves([shares, *(_quantity(trained, name) for name in ("loss", "gradient_norm"))])
    if not len(table):
        raise NothingToDraw(study)
    colours = {role.replace("_", " "): colour for role, colour in roles.items()}
    used = {role: colour for role, colour in colours.items() if role in set(table["series"])}
    kinds = {ROWS["share"]: SHARE} if len(shares) else {}
    kinds |= {ROWS["loss"]: LOG, ROWS["gradient_norm"]: LOG}
    curves = Curves("", table, kinds, {**used, "training": names.INK}, _marks(mine))
    note = (
        "Share restored at the input of the last layer, on dev, by the token it was put back at; there is none before "
        "the corruption costs anything. Dotted: the first step at which a share is one half."
    )
    return Sheet.of(study, "emergence", "When the mechanism comes about", [curves], note)


def training(study: Study) -> Sheet:
    """Of the chosen rates: accuracy, loss and gradient norm over steps."""
    found = at_chosen(study, study.curves)
    found = found.assign(series=[names.architecture(text) for text in found["model.architecture"]])
    wanted = [name for name in ("accuracy", "loss", "gradient_norm") if name in found and found[name].notna().any()]
    table = _curves([_quantity(found, name) for name in wanted], _widths)
    texts = sorted(set(found["model.architecture"]), key=names.order)
    colours = {names.architecture(text): look[0] for text, look in names.looks(texts).items()}
    kinds = {ROWS[name]: SHARE if name == "accuracy" else LOG for name in wanted}
    return Sheet.of(study, "training", "Training at the chosen rates", [Curves("", table, kinds, colours)])


@figure("cost")
def cost(study: Study) -> Sheet:
    found = []
    for run in study.runs[study.runs["outcome"] == "done"].to_dict("records"):
        spent = study.facts[run["key"]]["provenance"]
        length = _length(run["task"])
        read = run["steps"] * run["train.batch"] * length
        held = run["train.batch"] * length
        shown = {"series": names.architecture(run["model.architecture"]), "length": length, "metric": "cost"}
        for panel, value in (
            ("CPU time, µs for each token", 1e6 * spent["cpu_seconds"] / read),
            ("peak memory, kB for each token of a step", spent["peak_memory_bytes"] / held / 1e3),
        ):
            found.append({**run, **shown, "panel": panel, "value": value, "low": value, "high": value, "n": read})
    by = ["panel", "series", "length", "model.architecture", "model.d_model", "model.layers"]
    table = averaged(DataFrame(found, columns=[*by, "metric", "value", "low", "high", "n"]), by)
    if not len(table):
        raise NothingToDraw(study)
    table = table.assign(row="", x=table["length"])
    texts = sorted(set(table["model.architecture"]), key=names.order)
    looks = {names.architecture(text): look for text, look in names.looks(texts).items()}
    lines = Lines("", table, looks, "tokens of a document", "", unit="", even=False)
    note = (
        "A whole run, its evaluations included, over the tokens it was trained on; memory is that of the process, the "
        "libraries' own included, over the tokens of one step."
    )
    return Sheet.of(study, "cost", "What a token costs, the longer the document", [lines], note)


def _length(task: str) -> int:
    """Of the longest document."""
    return int(tasks.build(task).max_len)


def _quantity(curves: DataFrame, name: str) -> DataFrame:
    return curves.assign(value=curves[name], quantity=name).dropna(subset=["value"])


def _curves(parts: list[DataFrame], panel: Any = None) -> DataFrame:
    """One table of all quantities; long curves are thinned."""
    table = concat(parts, ignore_index=True)
    table = table.assign(
        panel=[(panel or _architecture)(line) for line in table.to_dict("records")],
        row=table["quantity"].map(ROWS),
        run=[
            f"{a}, d={d}, seed {s}, {key[:8]}"
            for a, d, s, key in table[["model.architecture", "model.d_model", "seed", "key"]].itertuples(index=False)
        ],
    )
    place = [names.order(text) for text in table["model.architecture"]]
    table = table.assign(place=place).sort_values(["model.d_model", "place", "seed", "series", "step"], kind="stable")
    line = table.groupby(["row", "series", "key"])
    table = table[line.cumcount() % (line["step"].transform("size") // MOST + 1) == 0]
    return table[["panel", "row", "series", "run", "step", "value", *CELL, "train.lr", "seed"]]


def _architecture(line: dict[str, Any]) -> str:
    return names.architecture(line["model.architecture"])


def _widths(line: dict[str, Any]) -> str:
    return f"d_model {int(line['model.d_model'])}, {int(line['model.layers'])} layers"


def _marks(shares: DataFrame) -> DataFrame:
    """The first role to come to one half in each run."""
    found = []
    for _, rows in shares.groupby("key", sort=False):
        steps = {role: step for roles in crossings(rows.to_dict("records")).values() for role, step in roles.items()}
        if steps:
            role, step = min(steps.items(), key=lambda item: item[1])
            shown = role.replace("_", " ")
            panel = names.architecture(rows["model.architecture"].iloc[0])
            found.append({"panel": panel, "step": step, "series": shown, "text": f"½ at {shown}: {step}"})
    return DataFrame(found, columns=["panel", "step", "text", "series"])
