"""The paper's numbers, and the reasons why a run of ours is not comparable to them.

`published.csv` has a line for each number, in our columns; `variant` is how the source names it,
`confidence` how sure it is. The restored cells of figures 4a, 7 and 8, DeltaNet's results on ATR
and figure 10c could not be recovered as numbers. A cell is of 320 documents (figure 5: 64) and one
seed, and its rate was chosen on the same documents that gave the number.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.core.spec import Spec
from mecheval.tasks import tasks

if TYPE_CHECKING:
    from pandas import DataFrame

FILE = Path(__file__).with_name("published.csv")
_RECALL = ("ar_16pairs", "ar_16pairs:query=value")
_SETTINGS = (*_RECALL, "atr", "atr_8192", "atr_l10", "atr_split", "atr_sibling")
_WITHOUT_POSITIONS = 1e-2  # at this rate and above, figure 3's attention had none
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
    for setting in _SETTINGS:
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
    reference, ours = (tasks.shortest(Spec.parse(text)) for text in (setting, task))
    if str(reference) != str(ours):
        yield f"task={task}, published {reference}"
    family = reference.name
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
    from pandas import read_csv

    options: dict[str, Any] = {"keep_default_na": False}
    options["dtype"] = dict.fromkeys(("figure", "panel", "variant"), str)
    options["na_values"] = {name: [""] for name in ("d_model", "site", "role")}
    # pandas' own parser may miss the last digit
    exact = {"value": float, "lr": lambda text: float(text or "nan")}
    return read_csv(FILE, converters=exact, **options)
