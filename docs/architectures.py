"""Write architectures.md: what each architecture is, and what our verdict says of it.

Equations and sources are in architectures.toml, switches in the code, verdicts in the kept studies.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mecheval.core.spec import Spec, print_scalar
from mecheval.interventions.verdict import UNSOLVED
from mecheval.models.registries import architectures
from mecheval.report import labels
from mecheval.report.study import Study
from mecheval.report.verdicts import verdicts
from mecheval.results.archive import KEPT
from mecheval.sweeps.recipe import get_scale
from mecheval.tasks import tasks

HERE = Path(__file__).parent
# the kept studies that are asked, the first that has a model first; all at the scale `small`
STUDIES = ("modern", "figure3", "figure7")
TASKS = {"recall": "AR", "treecall": "ATR"}
# options of every architecture, and one that changes no result
LEFT_OUT = ("positions", "sconv", "sconv_taps", "backend")
NOT_YET = "not run yet"
START = """# Architectures

Made by `docs/architectures.py` from the code, [architectures.toml](architectures.toml) and the runs
kept in `docs/results`; a test fails when it is out of date.

Every row is an architecture that `mecheval run`, `card`, `show` and every recipe take by its name.
Its switches, here with their defaults, are options behind that name, as `mamba:d_conv=0`; each also
takes `positions`, `sconv` and `sconv_taps` ([Models](models.md)). [Reference](reference.md) has
every option with its range, [Published weights](weights.md) what each parameter is called by its
authors."""
VERDICTS = """## How they recall

Accuracy on test and mechanism of models of width 64 at the scale `small` ({tasks}), at the rate
chosen on dev. In square brackets are 95 % intervals: Student's over seeds for an accuracy, Wilson's
for the proportion of seeds with a mechanism; three seeds leave a wide one. Then follows the layer
that retrieves, by seeds. `unsolved`: the corruption of the key takes too little for a mechanism to
be named. `mecheval sweep run modern --scale small` makes these runs;
[What the verdict means](verdict.md) explains the names."""


def page() -> str:
    about = tomllib.loads((HERE / "architectures.toml").read_text(encoding="utf-8"))
    parts = [START, "\n".join(definitions(about))]
    parts += [VERDICTS.format(tasks=sizes()), "\n".join(recalls(about))]
    return "\n\n".join(parts) + "\n"


def definitions(about: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield "| architecture | family | equation | switches | source |"
    yield "|---|---|---|---|---|"
    for name, said in about.items():
        cells = (f"`{name}`", said["family"], said["equation"], switches(name), said["source"])
        yield row(*cells)


def switches(name: str) -> str:
    """Return the options of an architecture with their defaults, but for those that all have."""
    if Spec.parse(name).name in ("hybrid", "parallel"):
        return "those of its mixers, in brackets: `attention[heads=2]`"
    options = [one for one in architectures.describe(name).options if one.name not in LEFT_OUT]
    return ", ".join(f"`{one.name}={print_scalar(one.default)}`" for one in options)


def sizes() -> str:
    scale = get_scale("small")
    both = (Spec("recall", scale.recall.options), Spec("treecall", scale.treecall.options))
    return ", ".join(labels.task(str(tasks.expand(spec))) for spec in both)


def recalls(about: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    known = measured()
    yield "| architecture | layers | " + " | ".join(TASKS.values()) + " |"
    yield "|---|---|---|---|"
    for name in about:
        layers = 4 if "*3" in name else 2
        cells = (verdict(known.get((name, layers, task))) for task in TASKS)
        yield row(f"`{name}`", str(layers), *cells)


def measured() -> dict[tuple[str, int, str], Mapping[str, Any]]:
    """Return the line of each architecture, number of layers and task in the kept studies."""
    lines: dict[tuple[str, int, str], Mapping[str, Any]] = {}
    scale = get_scale("small")
    sized = {"recall": scale.recall.options, "treecall": scale.treecall.options}
    for name in STUDIES:
        folder = HERE / "results" / name
        if not (folder / KEPT).exists():
            continue
        for line in verdicts(Study.read(folder)).to_dict("records"):
            task = Spec.parse(line["task"])
            usual = task.options == sized.get(task.name) and line["model.d_model"] == 64
            if usual and line["state"] == "measured" and not line["setting"]:
                key = (line["model.architecture"], int(line["model.layers"]), task.name)
                lines.setdefault(key, line)
    return lines


def verdict(line: Mapping[str, Any] | None) -> str:
    """Return accuracy and mechanism, each with its interval."""
    if line is None:
        return NOT_YET
    ends = f"[{100 * line['low']:.0f}, {100 * line['high']:.0f}]"
    seeds = labels.seed_count(line["agree"], line["judged"])
    text = f"{100 * line['value']:.0f} % {ends}, **{line['mechanism'] or 'no verdict'}** in {seeds}"
    named = line["mechanism"] not in ("", UNSOLVED)
    return f"{text}; layer {line['layers']}" if named else text


def row(*cells: str) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


if __name__ == "__main__":
    (HERE / "architectures.md").write_text(page(), encoding="utf-8")
    print("wrote architectures.md")
