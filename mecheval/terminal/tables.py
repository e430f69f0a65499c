"""Tables and summaries for a terminal: runs, measurements, verdicts, tasks and models."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.status import Status
from rich.table import Table
from rich.text import Text

from mecheval.core.notebook import clock as clock
from mecheval.core.registry import Entry
from mecheval.core.spec import print_scalar
from mecheval.tasks.dataset_stats import DatasetStats

if TYPE_CHECKING:  # printing needs neither torch nor pandas
    from pandas import DataFrame

    from mecheval.models.cost import ModelFacts
    from mecheval.runs.finished import Run

Row = Mapping[str, Any]
KEY = 8  # characters of a run's key that are printed
NUMBERS = ("loss", "logit", "kl")  # every other metric is a fraction, printed in per cent


class Screen(Console):
    """A console that leaves a reader who is gone to the command line, as `print` does."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    return Screen(highlight=False, emoji=False)


def roomy_console() -> Console:
    """Return a console for tables that is as wide as needed when it writes to a file."""
    screen = console()
    screen.width = screen.width if screen.is_terminal else 10_000
    return screen


def working(message: str) -> Status:
    """Return a spinner on stderr; it prints nothing when stderr is not a terminal."""
    return Console(stderr=True, emoji=False).status(message)


def duration(low: int | float, high: int | float) -> str:
    """Format a range of seconds: `8–12 minutes`."""
    unit, seconds = "seconds", 1.0
    if high >= 5400:
        unit, seconds = "hours", 3600.0
    elif high >= 90:
        unit, seconds = "minutes", 60.0
    digits = 1 if unit == "hours" and high < 36_000 else 0
    first, last = (f"{end / seconds:.{digits}f}" for end in (low, high))
    if first == last:
        return f"about {last} {unit}"
    return f"up to {last} {unit}" if not float(first) else f"{first}–{last} {unit}"


def title(name: str, *facts: str) -> Text:
    return Text(" · ").join([Text(name, "bold"), *map(Text, facts)])


def entry_list(kind: str, entries: Sequence[Entry]) -> Group:
    """Return names and summaries; a preset does not repeat the options of what it presets."""
    parts: list[RenderableType] = []
    for entry in entries:
        parts.append(Text.assemble((entry.name, "bold"), "  ", entry.summary))
        if entry.options and not entry.preset_of:
            parts.append(_options(entry))
    if not parts:
        parts.append(Text(f"No {kind} are registered; a file given by --plugin can register some."))
    return Group(*parts)


def column_list(lines: Sequence[Mapping[str, str]]) -> Table:
    """Return tables, columns and their meanings; the table's name stands in its first line."""
    table = Table(box=None, pad_edge=False)
    for name in ("table", "column", "meaning"):
        table.add_column(name, no_wrap=name != "meaning", style="bold" if name == "table" else "")
    before = ""
    for line in lines:
        table.add_row("" if line["table"] == before else line["table"], *list(line.values())[1:])
        before = line["table"]
    return table


def dataset_table(facts: DatasetStats) -> Group:
    """Return lengths, distances, repeats and surviving answers, a column for each split."""
    table = Table(box=None, pad_edge=False)
    for split in ("", *(split.split for split in facts.splits)):
        table.add_column(split, justify="right" if split else "left")
    rows = {
        "documents": "{documents}",
        "length in tokens: mean": "{mean_length:.1f}",
        "length in tokens: range": "{shortest}–{longest}",
        "key to value in tokens: mean": "{mean_distance:.2f}",
        "key to value in tokens: longest": "{longest_distance}",
        "occur word for word in training": "{seen_in_training}/{documents}",
        "answer survives a corrupted key": "{answer_survived_key_corruption}/{documents}",
    }
    for name, template in rows.items():
        table.add_row(name, *(template.format(**vars(split)) for split in facts.splits))
    size = f"{facts.train_documents} documents, {facts.train_bytes / 1e6:.1f} MB"
    return Group(
        table,
        f"vocabulary {facts.vocab_size}, documents of at most {facts.max_len} tokens",
        f"training set: {size}, {facts.train_repeats} repeats",
    )


def site_table(sites: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for site in sites:
        shape, summary = " ".join(site["shape"]), Text(site["summary"], "dim")
        table.add_row(Text(site["name"], "bold"), shape, summary)
    return table


def layer_kinds(kinds: Sequence[str]) -> str:
    """Return the mixers of the layers, layers in a row as one: 0–2 mamba, 3 attention."""
    texts = []
    for kind, alike in groupby(enumerate(kinds), key=itemgetter(1)):
        layers = [layer for layer, _ in alike]
        span = f"{layers[0]}–{layers[-1]}" if len(layers) > 1 else f"{layers[0]}"
        texts.append(f"{span} {kind}")
    return ", ".join(texts)


def cost_table(
    facts: "ModelFacts", kinds: Sequence[str] = (), about: Row = MappingProxyType({})
) -> Table:
    """Return what a model costs; `about` has more facts on a model of transformers."""
    table = Table(box=None, pad_edge=False, show_header=False)
    if kinds:
        table.add_row("layers", Text(layer_kinds(kinds)))
    without = f"{facts.parameters_without_embedding:,} without the embedding"
    table.add_row("parameters", f"{facts.parameters:,} ({without})")
    for length, size in facts.state_bytes.items():
        table.add_row(f"state after {length} tokens", f"{size:,} bytes in float32")
    for length, flops in facts.flops_per_token.items():
        table.add_row(f"operations per token, {length} tokens", f"{flops:,} (without the head)")
    if about:
        table.add_row("sites", f"{about['sites']}")
        table.add_row("weights", f"{about['dtype']} on {about['device']}")
    for note in about.get("notes", ()):
        table.add_row("note", Text(note))
    return table


def run_summary(run: "Run") -> Group:
    """Return status, scores with their intervals, and verdict of one run."""
    table = Table(box=None, pad_edge=False, show_header=False)
    scores = {(row.split, row.metric): row for row in run.rows if row.corrupted is None}
    labels = {("test", metric): metric for metric in ("accuracy", "likelihood", "loss")}
    labels["test_unseen", "accuracy"] = "accuracy, documents never seen in training"
    for (split, metric), label in labels.items():
        if row := scores.get((split, metric)):
            table.add_row(label, with_interval(metric, row.to_dict()), f"n={row.n}")
    facts = [str(run.record["model.architecture"]), run.status, f"{run.outcome['steps']} steps"]
    if run.outcome.get("reason"):
        facts.append(run.outcome["reason"])
    lines = [Text(f"accuracy without recall: {_chance(run)}", "dim")] if run.rows else []
    if run.verdict_record:
        lines.append(verdict(run.verdict_record))
    for site, roles in run.emerged.items():
        for role, step in roles.items():
            text = f"since step {step}: {site} restores half of the lost likelihood at the {role}"
            lines.append(Text(text, "dim"))
    return Group(title(str(run.record["task"]), *facts), table, *lines, Text(str(run.folder)))


def _chance(run: "Run") -> str:
    return str(run.chance) if run.chance else "not known: the task is not registered here"


def run_table(runs: Sequence[Row], rows: Sequence[Row], width: int) -> Group:
    """Return one line for each run, with its accuracy on test if it has one."""
    scores = {}
    for row in rows:
        behaviour = row["metric"] == "accuracy" and row.get("corrupted") is None
        if behaviour and row["split"] == "test":
            scores[row["key"]] = with_interval("accuracy", row)

    def column(field: str) -> list[str]:
        return [str(run.get(field, "")) for run in runs]

    cells = {"status": column("status")}
    cells["accuracy on test"] = [scores.get(run["key"], run["reason"] or "–") for run in runs]
    cells |= {"task": column("task"), "model": column("model.architecture")}
    cells |= {"steps": column("steps"), "layers": column("model.layers"), "lr": column("train.lr")}
    cells |= {"d_model": column("model.d_model"), "seed": column("seed")}
    cells["key"] = [str(run["key"] or "")[:KEY] for run in runs]
    return _fit(cells, width, "--json prints all columns")


def frame(table: "DataFrame", width: int) -> Group:
    cells = {str(name): [_cell(name, value) for value in table[name]] for name in table}
    return _fit(cells, width, "--sql chooses columns, --csv prints all")


def verdict_table(names: Sequence[str], lines: Sequence[Sequence[str | Text]]) -> Table:
    """Return a table of verdicts: the named columns, accuracy and mechanism of each line."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    table.add_column("right answers", no_wrap=True, justify="right")
    table.add_column("how it recalls")
    for line in lines:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in line))
    return table


def verdict(record: Row) -> Text:
    """Return the sentence for a recorded verdict."""
    return Text.assemble("verdict: ", verdict_sentence(record))


def verdict_sentence(*records: Row) -> Text:
    """Return the sentence for a verdict, or for those of several seeds, the mechanism in bold."""
    from mecheval.interventions.sentence import phrases

    mechanism, explanation = phrases(*records)
    return Text.assemble((mechanism, "bold"), ": ", explanation)


def with_interval(metric: str, row: Row) -> str:
    """Format a value with its interval: 97.2% [95.1%, 98.8%], or 0.134 [0.120, 0.148]."""
    style = ".3f" if metric in NUMBERS else ".1%"
    return f"{row['value']:{style}} [{row['low']:{style}}, {row['high']:{style}}]"


def whole_percent(row: Row) -> str:
    """Format a fraction with its interval in whole per cent: 97% [95%, 99%]."""
    return "{value:.0%} [{low:.0%}, {high:.0%}]".format(**row)


def _fit(cells: Mapping[str, Sequence[str]], width: int, hint: str) -> Group:
    """Return a table that fits: constant columns are said once, middle ones are dropped."""
    constant, widths = {}, {}
    for name, column in cells.items():
        if len(column) > 1 and len(set(column)) == 1:
            constant[name] = column[0]
        else:
            widths[name] = max(map(len, [name, *column]))
    names = list(widths)
    while len(names) > 2 and sum(widths[name] + 2 for name in names) > width:
        del names[(len(names) - 1) // 2]
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    for line in zip(*(cells[name] for name in names), strict=True):
        table.add_row(*map(Text, line))
    parts: list[RenderableType] = [table]
    if constant:
        shared = ", ".join(f"{name}={value}" for name, value in constant.items())
        parts.insert(0, Text(f"in every line: {shared}", "dim"))
    if hidden := ", ".join(name for name in widths if name not in names):
        parts.append(Text(f"no room for {hidden}; {hint}", "dim"))
    return Group(*parts)


def _cell(name: object, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if value == value else "–"
    return "–" if value is None else str(value)[: KEY if name == "key" else None]


def _options(entry: Entry) -> Padding:
    table = Table(box=None, pad_edge=False, show_header=False)
    for option in entry.options:
        default = "" if option.default is None else print_scalar(option.default)
        table.add_row(f"{option.name}={default}", option.allowed, Text(option.summary, "dim"))
    return Padding(table, (0, 0, 1, 2))
