"""Figures 3–13, laid out like the paper's."""

from collections.abc import Sequence

from pandas import DataFrame

from mecheval.core.spec import Spec
from mecheval.report import labels as names
from mecheval.report.drawing import figure
from mecheval.report.figure import Part, Sheet
from mecheval.report.parts.heat import Heat
from mecheval.report.parts.lines import Lines
from mecheval.report.parts.points import Boxes, Points
from mecheval.report.study import CELL, Study
from mecheval.report.tables import Reading, behaviour, choice, chosen, ordered, read

LAYER_1 = "blocks.1.block_in"
WIDTH = "width (d_model)"
LIKELIHOOD = "Likelihood of the right answer, %"


def restored(panel: str, site: str, role: str, metric: str = "likelihood", split: str = "test") -> Reading:
    return Reading(panel=panel, metric=metric, condition="restored", site=site, role=role, split=split)


ENDS = (Reading(panel="Original"), Reading(panel="Corrupted Key", condition="corrupt"))
FIVE = (*ENDS, *(restored(f"Restored @ {role.title()}", LAYER_1, role) for role in ("key", "value", "query")))


@figure("3")
def associative_recall(study: Study) -> Sheet:
    return Sheet.of(
        study,
        "3",
        f"Associative recall: {LIKELIHOOD.lower()}",
        _by_architecture(study, FIVE, "3"),
        RESTORED,
        choice(study),
    )


@figure("7")
def associative_treecall(study: Study) -> Sheet:
    parts = _by_architecture(study, FIVE, "7")
    return Sheet.of(study, "7", f"Associative treecall: {LIKELIHOOD.lower()}", parts, RESTORED, choice(study))


@figure("4a")
def mamba_kernels(study: Study) -> Sheet:
    wanted = (behaviour(panel="Accuracy"), ENDS[0], FIVE[2], FIVE[4])
    table = _kernels(read(study, wanted, figure="4a"), "d_conv")
    heat = Heat("", table, WIDTH, "taps of Mamba's convolution")
    return Sheet.of(
        study, "4a", "Mamba with shorter convolutions on associative recall, %", [heat], RESTORED, choice(study)
    )


@figure("4b")
def based_kernels(study: Study) -> Sheet:
    table = _kernels(read(study, [behaviour(panel="Accuracy")], figure="4b"), "kernel")
    heat = Heat("", table, WIDTH, "taps of Based's convolution")
    return Sheet.of(study, "4b", "Based with other convolutions on associative recall, %", [heat], choice(study))


@figure("8")
def mamba_kernels_on_treecall(study: Study) -> Sheet:
    table = _kernels(read(study, FIVE, figure="8"), "d_conv")
    heat = Heat("", table, WIDTH, "taps of Mamba's convolution")
    title = "Mamba with shorter convolutions on treecall: likelihood of the right answer, %"
    return Sheet.of(study, "8", title, [heat], RESTORED, choice(study))


@figure("5")
def mamba_convolutions(study: Study) -> Sheet:
    conv = "blocks.{}.mixer.conv_out"
    places = ((0, "value"), (0, "next_key"), (1, "value"))
    wanted = [restored(f"Restored @ {i}, {r.replace('_', ' ').title()}", conv.format(i), r) for i, r in places]
    table = read(study, [*ENDS, *wanted], figure="5", every_rate=True)
    table = table.sort_values(["train.lr", "model.d_model"], ascending=[False, True], kind="stable")
    table = table.assign(x=table["model.d_model"], y=[f"{rate:.0e}" for rate in table["train.lr"]])
    table = table.sort_values(
        "panel", key=lambda p: p.map({r.panel: i for i, r in enumerate([*ENDS, *wanted])}), kind="stable"
    )
    note = "Restored: the clean output of the short convolution of a layer put back at one token, for every rate."
    title = f"Mamba's short convolutions on associative recall: {LIKELIHOOD.lower()}"
    return Sheet.of(study, "5", title, [Heat("", table, WIDTH, "rate")], note)


@figure("9")
def positions(study: Study) -> Sheet:
    table = read(study, [behaviour()], figure="9")
    texts = table["model.architecture"]
    table = table.assign(
        panel=[names.architecture(Spec.parse(text).name) for text in texts],
        series=["with positions" if names.option(text, "positions") else "without positions" for text in texts],
        row=[names.task(text) for text in table["task"]],
        x=table["model.d_model"],
    )
    looks = {"with positions": ("#0072B2", "o"), "without positions": ("#D55E00", "s")}
    lines = Lines("", table, looks, WIDTH, "accuracy on test", dashed=("without positions",))
    return Sheet.of(study, "9", "With and without position embeddings", [lines], choice(study))


@figure("10")
def held_out_pairs(study: Study) -> Sheet:
    dev, test = (behaviour(split=split, panel=split) for split in ("dev", "test"))
    best = _series(read(study, [dev, test], figure="10a"))
    shown = {"dev": "dev: pairs of training", "test": "test: pairs never asked before"}
    best = best.assign(panel=[shown[panel] for panel in best["panel"]], row="")
    every = _against(study, [("", dev, test)])
    shares = [
        (role, restored("", LAYER_1, role, "share", "dev"), restored("", LAYER_1, role, "share", "test"))
        for role in ("key", "value", "query")
    ]
    found = _against(study, shares).query("-0.5 <= x <= 1.5 and -0.5 <= y <= 1.5")
    title = "(c) share restored at the input of layer 1, by the token it was put back at"
    parts: list[Part] = [
        Lines("(a) at the chosen rates", best, _looks(best), WIDTH, "accuracy"),
        Points("(b) at every rate, the chosen ones large", every, _looks(every), "dev accuracy", "test accuracy"),
        Points(title, found, _looks(every), "on dev", "on test", (-0.5, 1.5)),
    ]
    note = "(c): only checkpoints that lose by the corruption have a share; shares beyond −50 and 150 % are left out."
    drawn = [part for part in parts if len(part.table)]
    return Sheet.of(study, "10", "Pairs that were never asked in training", drawn, note, choice(study))


@figure("11")
def one_layer(study: Study) -> Sheet:
    return Sheet.of(
        study, "11", "One layer against two", _by_depth(study, {"recall": "11a", "treecall": "11b"}), choice(study)
    )


@figure("12")
def layer_of_retrieval(study: Study) -> Sheet:
    rows = study.rows
    mine = rows[
        (rows["metric"] == "share")
        & (rows["condition"] == "restored")
        & (rows["role"] == "query")
        & (rows["split"] == "test")
    ]
    mine = mine[mine["site"].str.endswith(".mixer_out")]
    mine = mine.assign(panel=[_layers(n) for n in mine["model.layers"]], x=mine["layer"].astype(int))
    parts: list[Part] = [*_by_depth(study, {"recall": "12a"})]
    if len(mine):
        mine = _series(mine.sort_values(["model.layers", "layer"]))
        wanted = ["panel", "series", "x", "value", "low", "high", "n", *CELL, "train.lr", "seed"]
        title = (
            "(b) share restored by the mixer's output at the query: every rate and width that loses by the corruption"
        )
        parts.append(Boxes(title, mine[wanted], _looks(mine), "layer", "restored share"))
    return Sheet.of(study, "12", "Which layer retrieves, in models of one to three layers", parts, choice(study))


@figure("13")
def siblings(study: Study) -> Sheet:
    return Sheet.of(study, "13", "Rightmost sibling queries", _by_depth(study, {"treecall": "13"}), choice(study))


@figure("grandparent")
def grandparents(study: Study) -> Sheet:
    return Sheet.of(study, "grandparent", "Grandparent queries", _by_depth(study, {}), choice(study))


RESTORED = "Restored: the key is corrupted, and the clean input of layer 1 is put back at one token."


def _by_architecture(study: Study, wanted: Sequence[Reading], paper: str) -> list[Heat]:
    table = read(study, wanted, figure=paper)
    table = _series(table).assign(x=table["model.d_model"])
    table = table.assign(y=table["series"])
    tasks = ordered(table["task"])
    return [Heat(names.task(task), table[table["task"] == task], WIDTH, "") for task in tasks]


def _by_depth(study: Study, papers: dict[str, str]) -> list[Lines]:
    """A part for each task: accuracy over widths, a panel for each number of layers."""
    parts = []
    for task in study.field("task"):
        table = read(study, [behaviour()], figure=papers.get(Spec.parse(task).name))
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
    """In the paper's order, each line with the name of its architecture."""
    texts = sorted(set(table["model.architecture"]), key=names.order)
    place = {text: i for i, text in enumerate(texts)}
    found = table.assign(series=[names.architecture(text) for text in table["model.architecture"]])
    by = found["model.architecture"].map(place)
    found = found.assign(x=found["x"] if "x" in found else found["model.d_model"])
    return found.iloc[by.argsort(kind="stable")]


def _looks(table: DataFrame) -> dict[str, tuple[str, str]]:
    texts = sorted(set(table["model.architecture"]), key=names.order)
    return {names.architecture(text): look for text, look in names.looks(texts).items()}


def _against(study: Study, pairs: Sequence[tuple[str, Reading, Reading]]) -> DataFrame:
    """One reading against another of the same checkpoints, at every rate."""
    best = {tuple(line) for line in chosen(study)[[*CELL, "train.lr"]].itertuples(index=False, name=None)}
    found = []
    for panel, *sides in pairs:
        x, y = (read(study, [side], every_rate=True) for side in sides)
        both = x.assign(x=x["value"], y=y["value"], panel=panel, width=x["model.d_model"], rate=x["train.lr"])
        both["chosen"] = [tuple(line) in best for line in both[[*CELL, "train.lr"]].itertuples(index=False, name=None)]
        dots = _seed_pairs(study, *sides)
        for line in both.dropna(subset=["x", "y"]).to_dict("records"):
            x_seeds, y_seeds = dots.get(tuple(line[name] for name in [*CELL, "train.lr"]), ([], []))
            found.append({**line, "seeds": len(x_seeds), "x_seeds": x_seeds, "y_seeds": y_seeds})
    wanted = [*CELL, "train.lr", "panel", "x", "y", "width", "rate", "chosen", "seeds", "x_seeds", "y_seeds"]
    return _series(DataFrame(found, columns=wanted))


def _seed_pairs(study: Study, x: Reading, y: Reading) -> dict[object, tuple[list[float], list[float]]]:
    """Return the numbers of both readings by cell and rate, for the runs that have both."""
    both = x.of(study.rows).set_index("key")
    both = both.assign(y=y.of(study.rows).set_index("key")["value"]).dropna(subset=["y"])
    groups = both.groupby([*CELL, "train.lr"])
    return {cell: (group["value"].tolist(), group["y"].tolist()) for cell, group in groups}
