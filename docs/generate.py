"""Write the generated pages, and docs/sample.svg, the picture in docs/tasks.md."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

import mecheval
from mecheval.cli import command_names, main
from mecheval.core.options import REQUIRED
from mecheval.core.registry import Entry, Registry
from mecheval.core.spec import print_scalar
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.language_model import LanguageModel
from mecheval.models.registries import architectures, mixers, models
from mecheval.models.site import sites
from mecheval.plugins import build_task
from mecheval.runs.experiment import fields_of
from mecheval.tasks import tasks
from mecheval.tasks.sample import sample
from mecheval.terminal.documents import document, legend

HERE = Path(__file__).parent
PATTERNS = {"hybrid": "hybrid:mamba+attention", "parallel": "parallel:attention|mamba"}
MADE = "Made by `make docs` from the code; a test fails when it is out of date."


def pages() -> dict[str, str]:
    """Return the generated pages by the name of their file."""
    return {"reference.md": reference(), "sites.md": site_page(), "api.md": api()}


def reference() -> str:
    parts = ["# Reference", MADE, "## Commands"]
    for name in command_names():
        parts += [f"### mecheval {name}", f"```text\n{help_text(name)}\n```"]
    kinds = {"Tasks": tasks, "Architectures": architectures, "Mixers": mixers, "Models": models}
    for title, registry in kinds.items():
        parts += [f"## {title}", *entries(registry)]
    parts += ["## Fields of an experiment", field_table()]
    return joined(parts)


def site_page() -> str:
    parts = ["# Sites", f"{MADE} `mecheval show sites MODEL` prints the same for a model of yours."]
    parts += [
        "A site is a named tensor in the forward pass that can be read or changed: "
        "[Models](models.md#sites) says how."
    ]
    parts += [
        "The models here have as few layers as show every kind; "
        "with more, `blocks.1`, `blocks.2` … follow."
    ]
    for name in architectures.names():
        example = PATTERNS.get(name, name)
        parts += [f"## {example}", architectures.describe(name).summary, site_table(example)]
    return joined(parts)


def api() -> str:
    """A directive for every public name, by the module it lives in."""
    parts = ["# Python", MADE]
    parts += [
        "The public names. `import mecheval` costs nothing: each is imported when it is first used."
    ]
    for module in sorted(set(mecheval._MODULES.values())):
        names = [name for name in mecheval.__all__ if mecheval._MODULES[name] == module]
        parts += [f"## {module}", *(f"::: mecheval.{name}" for name in names)]
    return joined(parts)


def joined(parts: list[str]) -> str:
    return "\n\n".join(parts) + "\n"


def entries(registry: Registry) -> Iterator[str]:
    found = [registry.describe(name) for name in registry.names()]
    if not found:
        yield f"No {registry.kind} is built in yet; one can come in by `--plugin file.py`."
    for entry in found:
        if not entry.preset_of:
            yield f"### {entry.name}"
            yield entry.summary
            yield option_table(entry)
    presets = [f"| `{entry.name}` | {entry.summary} |" for entry in found if entry.preset_of]
    if presets:
        yield "### Presets"
        yield "\n".join(["| name | what it is |", "|---|---|", *presets])


def option_table(entry: Entry) -> str:
    rows = ["| option | default | allowed | meaning |", "|---|---|---|---|"]
    for option in entry.options:
        default = "" if option.default in (None, REQUIRED) else f"`{print_scalar(option.default)}`"
        meaning = option.summary.replace("|", r"\|")
        rows.append(f"| `{option.name}` | {default} | {option.allowed} | {meaning} |")
    return "\n".join(rows)


def field_table() -> str:
    """Like an entry's options, by their dotted names."""
    fields = tuple(replace(option, name=name) for name, option in fields_of().items())
    return option_table(Entry("experiment", "", fields))


def site_table(architecture: str) -> str:
    layers = len(build_architecture(architecture).pattern)  # every kind of layer once
    model = LanguageModel(
        ModelConfig(architecture=architecture, d_model=16, layers=layers), vocab_size=8
    )
    rows = [
        f"| `{name}` | {' '.join(site.axes)} | {site.about} |"
        for name, site in sites(model).items()
    ]
    return "\n".join(["| site | shape | what it is |", "|---|---|---|", *rows])


def help_text(command: str) -> str:
    os.environ["COLUMNS"] = "100"  # the help is folded to the terminal
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        main([*command.split(), "--help"])
    return output.getvalue().strip()


def picture() -> str:
    """Two documents as the terminal shows them."""
    console = Console(record=True, width=100, file=io.StringIO(), highlight=False)
    console.print(legend(), "", sep="\n")
    for text, start in (("recall:pairs=6,vocab=64", 0), ("treecall", 8)):
        (record,) = sample(build_task(text), 1, start=start)
        console.print(f"[bold]{text}[/] ", end="")
        console.print(document(record, 100), "")
    svg = console.export_svg(title="mecheval sample", unique_id="sample")
    return re.sub(
        r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL
    )  # fonts would come from the network


if __name__ == "__main__":
    for name, text in {**pages(), "sample.svg": picture()}.items():
        (HERE / name).write_text(text, encoding="utf-8")
        print(f"wrote {name}")
