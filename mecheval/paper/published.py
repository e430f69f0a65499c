"""The paper's numbers in our columns, and the reasons why a run of ours is not comparable to them.

`published.csv` has a line for each number: figure, panel, task, arch, variant, layers, d_model, lr,
metric, value (in percent, but for shares) and confidence. The restored cells of figures 4a, 7 and
8, DeltaNet's results on ATR and figure 10c could not be recovered as numbers. A cell is of 320
documents (figure 5: 64) and one seed, and its rate was chosen on the same documents that gave the
number.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.core.spec import Spec, parse_scalar
from mecheval.models.registries import architectures
from mecheval.tasks import tasks

if TYPE_CHECKING:
    from pandas import DataFrame, Series

FILE = Path(__file__).with_name("published.csv")
_ABOUT = ("figure", "panel", "task", "setting", "architecture", "layers", "d_model", "lr")
_PLACE = ("metric", "condition", "site", "role", "split")
COLUMNS = (*_ABOUT, *_PLACE, "statistic", "value", "confidence")

_SETTINGS = {"AR": "ar_16pairs", "ATR L5 V20": "atr", "ATR L5 V8192": "atr_8192"}
_SETTINGS |= {"ATR L10 V20": "atr_l10", "ATR-gen": "atr_split", "ATR-sibling": "atr_sibling"}
_SETTINGS |= {"AR-reverse": "ar_16pairs:query=value"}
_ARCHITECTURES = {"Attention": "attention", "Based": "based", "Mamba": "mamba"}
_ARCHITECTURES |= {"DeltaNet": "delta_net", "Hyena": "hyena", "H3": "h3", "BaseConv": "base_conv"}
_VARIANTS = {  # patterns of variants that name an option of the architecture
    r"no conv": "d_conv=0",
    r"d_conv=(\d)": r"d_conv=\1",
    r"conv kernel (\d)": r"kernel=\1",
    r"implicit long conv": "kernel=long",
    r"PE": "positions=true",
    r"NoPE": "positions=false",
}
_WITHOUT_POSITIONS = 1e-2  # at this rate and above, figure 3's attention had none
_RESTORED = re.compile(r"likelihood_restored_L(\d)(in|convout)_(\w+)")
_BOX = re.compile(r"mixer output @query, Layer (\d)")
_EPOCHS = {"recall": 16, "treecall": 32}
_LINEAR = ("atr_split", "atr_sibling")  # which decayed linearly
_AS_RUN = {"train.documents": 100_032, "train.batch": 32, "train.warmup": 0.1, "train.stop": None}
_AS_RUN |= {"model.max_len": 1024, "model.init.linear": 1.0, "model.init.embedding": 1.0}


def published(figure: str) -> "DataFrame":
    """Return the numbers of a figure and of its panels: "12" is 12a and 12b.

    `setting` is a task of ours, values are fractions, `lr` is NaN where the best rate was chosen.
    `statistic` is `value`, or the part of a box over all widths and rates: `median`, `q1`, `q3`,
    `whisker_lo`, `outlier`, ….
    """
    table = _table()
    whole = table["figure"].str.rstrip("ab")
    return table[(table["figure"] == figure) | (whole == figure)].reset_index(drop=True)


def setting_of(task: str) -> str | None:
    """Return the published task that a task of ours is at any size; None if it is none."""
    spec = tasks.expand(Spec.parse(task))
    for setting in _SETTINGS.values():
        known = tasks.expand(Spec.parse(setting))
        if known.name == spec.name and _kind(known) == _kind(spec):
            return setting
    return None


def why_not_comparable(fields: Mapping[str, Any]) -> str | None:
    """Say how the fields of an experiment differ from the published runs; None if they do not."""
    known = {name: value for name, value in fields.items() if value == value}
    return "; ".join(_differences(known)) or None


def _differences(fields: Mapping[str, Any]) -> Iterator[str]:
    task, setting = str(fields["task"]), setting_of(str(fields["task"]))
    if setting is None:
        yield f"nothing was published for {task}"
        return
    theirs, ours = (tasks.shortest(Spec.parse(text)) for text in (setting, task))
    if str(theirs) != str(ours):
        yield f"task={task}, published {theirs}"
    family = theirs.name
    if family == "treecall":
        yield "the paper's grammar could not be regenerated: compare shapes, not points"
    steps, epochs = fields.get("train.steps"), fields.get("train.epochs") or _EPOCHS["recall"]
    if steps or epochs != _EPOCHS[family]:
        length = f"steps={steps}" if steps else f"epochs={epochs}"
        yield f"train.{length}, published {_EPOCHS[family]} epochs"
    as_run = {**_AS_RUN, "train.schedule": "linear" if setting in _LINEAR else "cosine"}
    for name, value in as_run.items():
        if fields.get(name, value) != value:
            yield f"{name}={fields[name]}, published {'none' if value is None else value}"
    rate = fields.get("train.lr", 0)
    attention = family == "recall" and fields.get("model.architecture") == "attention"
    if attention and rate >= _WITHOUT_POSITIONS:
        yield f"published attention had no positions at train.lr={rate}"


def _kind(spec: Spec) -> tuple[object, ...]:
    """Return the options that make a task another one, not only a smaller one."""
    options = tasks.check(spec)
    if spec.name == "recall":
        return options["query"], options["queries"] > 1, options["held_out"] > 0
    return (
        options["query"],
        options["held_out"] > 0,
        options["terminals"] > 1000,
        options["max_rhs"] > 5,
        options["head"],
    )


@cache
def _table() -> "DataFrame":
    from pandas import DataFrame, read_csv

    lines = read_csv(FILE, dtype=str, keep_default_na=False)
    table = DataFrame([_in_our_columns(line) for _, line in lines.iterrows()], columns=COLUMNS)
    return table.sort_values("lr", na_position="first", kind="stable", ignore_index=True)


def _in_our_columns(line: "Series[str]") -> dict[str, Any]:
    metric = _measured(line["metric"], line["variant"])
    scale = 1 if metric["metric"] == "share" else 100
    reverse = "-reverse" if line["task"] == "AR-reverse" else ""
    setting = _SETTINGS[line["task"]]
    return {
        "figure": line["figure"].partition("-")[0] + reverse,
        "panel": line["panel"],
        "task": tasks.expand(Spec.parse(setting)).name,
        "setting": setting,
        "architecture": _architecture(line),
        "layers": int(line["layers"]),
        "d_model": _number(line["d_model"]),
        "lr": _number(line["lr"]),
        "split": "test",
        "statistic": "value",
        **metric,
        **({"split": line["panel"]} if line["figure"] == "10a" else {}),
        "value": float(line["value"]) / scale,
        "confidence": line["confidence"],
    }


def _measured(name: str, variant: str) -> dict[str, Any]:
    """Split a name such as `likelihood_restored_L1in_key` into columns."""
    if box := _BOX.fullmatch(variant):
        reading = {"metric": "share", "condition": "restored", "role": "query"}
        statistic = name.removeprefix("attrib_box_")
        return {**reading, "site": f"blocks.{box[1]}.mixer_out", "statistic": statistic}
    if restored := _RESTORED.fullmatch(name):
        place = {"in": "block_in", "convout": "mixer.conv_out"}[restored[2]]
        site, role = f"blocks.{restored[1]}.{place}", restored[3].replace("nextkey", "next_key")
        return {"metric": "likelihood", "condition": "restored", "site": site, "role": role}
    metric, _, rest = name.partition("_")
    if metric == "accuracy":
        return {"metric": metric, "condition": "clean", **({"split": rest} if rest else {})}
    return {"metric": metric, "condition": "clean" if rest.startswith("original") else "corrupt"}


def _architecture(line: "Series[str]") -> str:
    text = line["variant"]
    if text.startswith("PE; LR"):
        text = "NoPE" if float(line["lr"]) >= _WITHOUT_POSITIONS else "PE"
    for pattern, option in _VARIANTS.items():
        if match := re.fullmatch(pattern, text):
            name, _, value = match.expand(option).partition("=")
            spec = Spec(_ARCHITECTURES[line["arch"]], {name: parse_scalar(value)})
            return str(architectures.shortest(spec))
    return _ARCHITECTURES[line["arch"]]


def _number(text: str) -> float:
    """Return a number, or NaN for the best one, for all and for an unknown one."""
    return float("nan") if text in ("best", "all", "") else float(text)
