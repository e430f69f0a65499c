"""How documents, trees, tables and lists look in a terminal: coloured where it has colours, lettered everywhere."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.status import Status
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from mecheval.core.registry import Entry
from mecheval.core.spec import print_scalar
from mecheval.tasks.dataset_stats import DatasetStats
from mecheval.tasks.sample import Record

if TYPE_CHECKING:  # torch is not needed to print
    from pandas import DataFrame

    from mecheval.models.cost import ModelFacts
    from mecheval.runs.finished import Run

LETTERS = {"bos": "B", "key": "K", "value": "V", "next_key": "N", "divider": "D", "query": "Q"}
COLOURS = {
    "bos": "dim",
    "key": "bold cyan",
    "value": "bold green",
    "next_key": "yellow",
    "divider": "dim",
    "query": "bold magenta",
}
SAME = "·"
KEY = 8  # letters that tell runs apart
NUMBERS = ("loss", "logit", "kl")  # other metrics are parts of one, shown in per cent


def clock(seconds: float) -> str:
    """Format a duration as h:mm:ss."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def verdict_table(names: Sequence[str], lines: Sequence[Sequence[str | Text]]) -> Table:
    """Print verdicts: the named columns, then the accuracy and the mechanism of each line."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    table.add_column("right answers", no_wrap=True, justify="right")
    table.add_column("how it recalls")
    for line in lines:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in line))
    return table


def whole_percent(row: Mapping[str, Any]) -> str:
    """Format a fraction with its interval in whole per cent: 97% [95%, 99%]."""
    return "{value:.0%} [{low:.0%}, {high:.0%}]".format(**row)


def title(name: str, *facts: str) -> Text:
    return Text(" · ").join([Text(name, "bold"), *map(Text, facts)])


def legend() -> Text:
    return Text("  ").join(Text(f"{LETTERS[role]} {role}", COLOURS[role]) for role in LETTERS)


def document(record: Record, width: int) -> Group:
    """Tokens over role letters over what the corruption changed, folded to the width; then the tree."""
    twin = record.corrupted
    changes = [SAME if a == b else b for a, b in zip(record.tokens, twin.tokens, strict=True)]
    note = "" if twin.usable else ", not usable: the answer survived" if twin.answer else ", not usable"
    title = Text.assemble("→ ", (record.answer or "none", "bold green"), "; corrupted → ", twin.answer or "none", note)
    tree = [Padding(_tree(record), (0, 0, 0, 2), expand=False)] if record.parents else []
    return Group(title, *_folded(record, changes, width), *tree)


def entries(kind: str, found: Sequence[Entry]) -> Group:
    """Name and summary of each; the options where they are defined, not again for every preset of them."""
    parts: list[RenderableType] = []
    for entry in found:
        parts.append(Text.assemble((entry.name, "bold"), "  ", entry.summary))
        if entry.options and not entry.preset_of:
            parts.append(_options(entry))
    return Group(*(parts or [Text(f"no {kind}; one can come in by --plugin file.py")]))


def honesty(facts: DatasetStats) -> Group:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for split in facts.splits:
        table.add_column(split.split, justify="right")
    of = [f"/{split.documents}" for split in facts.splits]
    rows = {
        "documents": [f"{s.documents}" for s in facts.splits],
        "length in tokens: mean": [f"{s.mean_length:.1f}" for s in facts.splits],
        "length in tokens: range": [f"{s.shortest}–{s.longest}" for s in facts.splits],
        "key to value in tokens: mean": [f"{s.mean_distance:.2f}" for s in facts.splits],
        "key to value in tokens: longest": [f"{s.longest_distance}" for s in facts.splits],
        "occur word for word in training": [f"{s.seen_in_training}{n}" for s, n in zip(facts.splits, of, strict=True)],
        "answer survives a corrupted key": [
            f"{s.answer_survived_key_corruption}{n}" for s, n in zip(facts.splits, of, strict=True)
        ],
    }
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return Group(
        table,
        f"vocabulary {facts.vocab_size}, documents of at most {facts.max_len} tokens",
        f"training set: {facts.train_documents} documents, {facts.train_bytes / 1e6:.1f} MB, "
        f"{facts.train_repeats} repeats",
    )


def site_table(found: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for site in found:
        table.add_row(Text(site["name"], "bold"), " ".join(site["shape"]), Text(site["summary"], "dim"))
    return table


def costs(facts: "ModelFacts") -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("parameters", f"{facts.parameters:,} ({facts.parameters_without_embedding:,} without the embedding)")
    for length, size in facts.state_bytes.items():
        table.add_row(f"state after {length} tokens", f"{size:,} bytes in float32")
    for length, flops in facts.flops_per_token.items():
        table.add_row(f"operations a token, {length} tokens", f"{flops:,} (without the head)")
    return table


def run_summary(run: "Run") -> Group:
    """Show status and scores of one run, each with its interval."""
    table = Table(box=None, pad_edge=False, show_header=False)
    scores = {(row.split, row.metric): row for row in run.rows if row.corrupted is None}
    for metric in ("accuracy", "likelihood", "loss"):
        if row := scores.get(("test", metric)):
            table.add_row(metric, with_interval(metric, row.to_dict()), f"n={row.n}")
    if row := scores.get(("test_unseen", "accuracy")):
        name = "accuracy, documents never seen in training"
        table.add_row(name, with_interval("accuracy", row.to_dict()), f"n={row.n}")
    facts = [str(run.record["model.architecture"]), run.status, f"{run.outcome['steps']} steps"]
    facts += [run.outcome["reason"]] if run.outcome.get("reason") else []
    line = title(str(run.record["task"]), *facts)
    mechanism = [verdict(run.verdict_record)] if run.verdict_record else []
    return Group(line, table, *mechanism, *_emerged(run.emerged), Text(str(run.folder)))


def run_table(runs: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], width: int) -> Group:
    """One line for each run; its accuracy on test where it has one."""
    behaviour = [row for row in rows if row["metric"] == "accuracy" and row.get("corrupted") is None]
    scores = {row["key"]: with_interval("accuracy", row) for row in behaviour if row["split"] == "test"}

    def each(field: str) -> list[str]:
        return [str(run.get(field, "")) for run in runs]

    cells = {"status": each("status")}
    cells |= {"accuracy on test": [scores.get(run["key"], run["reason"] or "–") for run in runs]}
    cells |= {"task": each("task"), "model": each("model.architecture"), "steps": each("steps")}
    cells |= {"layers": each("model.layers"), "lr": each("train.lr"), "d_model": each("model.d_model")}
    cells |= {"seed": each("seed"), "key": [str(run["key"] or "")[:KEY] for run in runs]}
    return _fitted(cells, width, "--json has all")


def frame(found: "DataFrame", width: int) -> Group:
    cells = {str(name): [_cell(name, value) for value in found[name]] for name in found}
    return _fitted(cells, width, "--sql chooses columns, --csv has all")


def _fitted(cells: Mapping[str, Sequence[str]], width: int, elsewhere: str) -> Group:
    """What is the same in every line is said once; columns that have no room give way, those in the middle first."""
    same = {name: column[0] for name, column in cells.items() if len(column) > 1 and len(set(column)) == 1}
    widths = {name: max(map(len, [name, *column])) for name, column in cells.items() if name not in same}
    shown = list(widths)
    while len(shown) > 2 and sum(widths[name] + 2 for name in shown) > width:
        del shown[(len(shown) - 1) // 2]
    table = Table(box=None, pad_edge=False)
    for name in shown:
        table.add_column(name, overflow="fold")
    for line in zip(*(cells[name] for name in shown), strict=True):
        table.add_row(*map(Text, line))
    told = ", ".join(f"{name}={value}" for name, value in same.items())
    hidden = ", ".join(name for name in widths if name not in shown)
    notes = {"in every line: ": told, "no room for ": hidden and f"{hidden}; {elsewhere}"}
    before, after = ([Text(f"{start}{text}", "dim")] if text else [] for start, text in notes.items())
    return Group(*before, table, *after)


def _cell(name: object, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if value == value else "–"
    return "–" if value is None else str(value)[: KEY if name == "key" else None]


def verdict(found: Mapping[str, Any]) -> Text:
    """In words."""
    from mecheval.interventions.verdict import meaning

    sure = f" ({found['confidence']:.0%} of resamples agree)"
    return Text.assemble("verdict: ", (found["mechanism"], "bold"), f": {meaning(found)}{sure}")


def _emerged(found: Mapping[str, Mapping[str, int]]) -> list[Text]:
    """When each place first gave half of the likelihood back."""
    return [Text(f"since step {step}: half of it comes back with {site} at {role}", "dim")
            for site, roles in found.items() for role, step in roles.items()]  # fmt: skip


def with_interval(metric: str, row: Mapping[str, Any]) -> str:
    numbers = [f"{row[name]:.3f}" if metric in NUMBERS else f"{row[name]:.1%}" for name in ("value", "low", "high")]
    return "{} [{}, {}]".format(*numbers)


def _folded(record: Record, changes: Sequence[str], width: int) -> Iterator[Text]:
    letters, style = lettered(record), coloured(record)
    columns = [max(map(len, cells)) for cells in zip(record.tokens, letters, changes, strict=True)]
    for here in folds(columns, width - 12):
        for name, cells in (("clean", record.tokens), ("role", letters), ("corrupted", changes)):
            line = Text(f"  {name:<10}")
            for i in here:
                own = style.get(i, "") if cells is not changes else "dim" if cells[i] == SAME else "bold red"
                line.append(cells[i].ljust(columns[i]), own)
                line.append(" ")
            line.rstrip()
            yield line


def lettered(record: Record) -> list[str]:
    """The letters of the roles that each token has."""
    return ["".join(LETTERS[role] for role, at in record.roles.items() if at == i) for i in range(len(record.tokens))]


def coloured(record: Record) -> dict[int, str]:
    """The style of each token that has a role."""
    return {at: COLOURS[role] for role, at in record.roles.items()}


def folds(columns: Sequence[int], width: int) -> Iterator[range]:
    """Which columns stand beside each other, at least one, with a space between."""
    start = 0
    while start < len(columns):
        stop, room = start + 1, width - columns[start]
        while stop < len(columns) and room > columns[stop]:
            room -= columns[stop] + 1
            stop += 1
        yield range(start, stop)
        start = stop


def _tree(record: Record) -> Tree:
    assert record.parents
    letters = {at: LETTERS[role] for role, at in record.roles.items() if role in ("key", "value")}
    colours = {at: COLOURS[role] for role, at in record.roles.items() if role in ("key", "value")}
    nodes = {
        i: Tree(Text.assemble((token, colours.get(i, "")), (f" {i} ", "dim"), (letters.get(i, ""), colours.get(i, ""))))
        for i, token in enumerate(record.tokens)
        if i and i < record.roles["divider"]
    }
    for i, node in nodes.items():
        if record.parents[i] >= 0:
            nodes[record.parents[i]].children.append(node)
    return next(node for i, node in nodes.items() if record.parents[i] < 0)


def _options(entry: Entry) -> Padding:
    table = Table(box=None, pad_edge=False, show_header=False)
    for option in entry.options:
        default = "" if option.default is None else print_scalar(option.default)
        table.add_row(f"{option.name}={default}", option.allowed, Text(option.summary, "dim"))
    return Padding(table, (0, 0, 1, 2))


def console() -> Console:
    return Console(highlight=False)


def roomy_console() -> Console:
    """For tables: a file has room."""
    found = console()
    found.width = found.width if found.is_terminal else 10_000
    return found


def working(what: str) -> Status:
    """A spinner on stderr while something takes its time; nothing where stderr is no terminal."""
    return Console(stderr=True).status(what)
