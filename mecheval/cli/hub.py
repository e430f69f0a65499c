"""Models of transformers that are asked in words: what `intervene`, `card` and `sample` share."""

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mecheval.cli.app import drawing, print_json, whole, without_nan
from mecheval.cli.show import Where
from mecheval.core.errors import InvalidInput
from mecheval.core.spec import HUB, canonical_json, digest

if TYPE_CHECKING:
    from mecheval.interventions.grid import GridOptions

DEFAULT_TASK = "recall:pairs=4,passes=2"
_TASK = f"what a model of transformers is asked  [default: {DEFAULT_TASK}]"
_WORDS = "of hf:…: names, nouns, numbers, random, or ids for token ids"
_TEMPLATE = "of hf:…: bare, rows, lines, sentence, plain or a text with {key} and {value}"
_SHOTS = "of hf:…: pairs that are asked and answered before the query"
_KEEP = "of hf:…: keep what is measured here; the same command resumes"
TaskInWords = Annotated[str | None, typer.Argument(metavar="[TASK]", help=_TASK)]
WordList = Annotated[str, typer.Option(help=_WORDS)]
Template = Annotated[str, typer.Option(metavar="TEXT", help=_TEMPLATE)]
Shots = Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help=_SHOTS)]
Keep = Annotated[Path | None, typer.Option(metavar="DIR", help=_KEEP)]


def ask(
    text: str, task: str | None, words: str, template: str, shots: int, where: Where
) -> tuple[Any, Any]:
    """Load a model, and return it with the task in its words."""
    from mecheval.plugins import build_task

    built = build_task(task or DEFAULT_TASK)  # refused before a model is loaded
    model = _load(text, where)
    from mecheval.models.hf.lexicon import in_words

    with drawing():
        return model, in_words(built, model, words, template, shots)


def _load(text: str, where: Where) -> Any:
    """Load a model whose grids are measured, which is done on the processor."""
    if where.device != "cpu":
        problem = f"--device {where.device} cannot be used for interventions on {text}"
        raise InvalidInput(f"{problem}; leave it out")
    from mecheval.models.hf.load import load_hf
    from mecheval.terminal.tables import working

    with working(f"loading {text}"):
        return load_hf(text, **where._asdict())


def refuse_options(
    command: Callable[..., Any], values: Mapping[str, object], kind: str, subject: str
) -> None:
    """Refuse options that have another value than usual, and are for subjects of another kind."""
    usual = signature(command).parameters
    for name, value in values.items():
        if value != usual[name].default:
            option = "--" + name.replace("_", "-")
            raise InvalidInput(f"{option} is for {kind}; leave it out for {subject}")


def is_deep(options: "GridOptions", task: Any) -> bool:
    """Tell if a grid is asked for as a verdict needs it: at the input of every layer."""
    from mecheval.interventions.verdict import MEANS
    from mecheval.tasks.variables import variables_of

    roles = task.documents(0, "test", 0, 1).roles
    if "key" not in variables_of(task) or not roles.keys() >= {*MEANS}:
        return False
    plain = options.corrupt == "key" and options.condition == "restored"
    return plain and options.site is None and options.role is None and options.document is None


def intervene_deep(
    text: str,
    model: Any,
    task: Any,
    options: "GridOptions",
    words: str,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Restore the input of every layer, and print the grid, the verdict and the layers."""
    from mecheval.interventions.depth import depth_grid
    from mecheval.interventions.layer_map import layer_map
    from mecheval.terminal import grid_view, tables

    title = [text, words, f"n={options.documents}"]
    with grid_view.progress(" · ".join(title)) as progress:
        sizes: dict[str, Any] = {"documents": options.documents, "memory": options.memory * 2**20}
        grid = depth_grid(model, task, kind=options.kind, folder=keep, progress=progress, **sizes)
    if options.metric not in {*grid.clean, "share"}:
        problem = f"kind={options.kind} leaves documents without an answer"
        raise InvalidInput(f"metric={options.metric} needs an answer of each; {problem}")
    found, verdict = layer_map(grid), grid.verdict().to_dict()
    rows = [row.to_dict() for row in grid.rows()]
    if as_json:
        layers = [without_nan(row.to_dict()) for row in found.rows]
        parts = {"rows": [without_nan(row) for row in rows], "layers": layers, "said": str(found)}
        print_json({"model": text, "words": words, **parts, "verdict": verdict})
        return
    console = tables.console()
    console.print(tables.title(*title))
    console.print(grid_view.grid(rows, options.metric), "")
    console.print(tables.verdict(verdict))
    console.print(f"layers: {found}", markup=False)


def examine_hub(
    text: str,
    task: str | None,
    words: list[str],
    template: str,
    documents: int,
    out: Path,
    where: Where,
    as_json: bool,
) -> None:
    """Write the card of a model, and print what it says."""
    from mecheval.plugins import build_task

    built = build_task(task or DEFAULT_TASK)
    from mecheval.cards.examine import examine
    from mecheval.terminal import grid_view, tables

    model = _load(text, where)
    name = Path(text.removeprefix(HUB)).name.removesuffix(".gguf")
    asked = digest(canonical_json([text, task or DEFAULT_TASK, words, template, where.dtype]))
    folder = out / f"card-{name}-{asked[:8]}"
    with grid_view.stages(text) as progress:
        sizes: dict[str, Any] = {"documents": documents, "out": folder, "progress": progress}
        found = examine(model, built, words, template, **sizes)
    if as_json:
        print_json(found.to_dict())
        return
    console = tables.console()
    for part in found.parts:
        console.print(tables.title(text, part.words))
        for name, line in part.sentences.items():
            console.print(f"{name}: {line}", "", sep="\n", markup=False)
    console.print(found.folder / "card.html", soft_wrap=True)
