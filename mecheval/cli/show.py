"""Commands that inspect without training: `show task|model|sites`, `sample` and `check`."""

from difflib import get_close_matches
from functools import partial
from inspect import signature
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from mecheval.cli.app import (
    Json,
    Plugins,
    Seed,
    all_of,
    app,
    drawing,
    load,
    print_json,
    takes_options_of,
    warn_renamed,
    whole,
)
from mecheval.core.errors import InvalidInput
from mecheval.core.spec import is_hub_name

VOCAB = 8195  # symbols of the models that are shown: those of the recall task
WIDTH = 16  # channels of a model whose sites are listed; their names do not depend on it


def _integer(description: str, *names: str) -> Any:
    return typer.Option(*names, parser=whole, metavar="INTEGER", help=description)


def _name(metavar: str, kinds: str) -> Any:
    return typer.Argument(metavar=metavar, help=f"{kinds} with options, or file.py:Class")


_IN = "write it in the words of a model: hf:FOLDER, hf:FILE.gguf or hf:NAME"
Task = Annotated[str, _name("SPEC", "a task or a preset")]
Model = Annotated[str, _name("SPEC", "an architecture, mixer or model")]
Train = Annotated[int, _integer("documents in the training set")]
Evaluation = Annotated[int, _integer("documents in dev and in test")]
Width = Annotated[int, _integer("width of the model")]
Layers = Annotated[
    int | None, _integer("number of blocks; by default 2, or those of a pattern with more")
]

Dtype = Annotated[str, typer.Option(help="of the weights of hf:…: float32, float64, bfloat16, …")]
Device = Annotated[str, typer.Option(help="of hf:…: cpu, cuda or mps")]
Download = Annotated[
    bool, typer.Option("--download", help="fetch hf:NAME from the hub if it is not in the cache")
]


class ShowGroup(TyperGroup):
    """Says what to type if the word after `show` is not a sub-command; shows an hf: model."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if is_hub_name(args[0]):
            args = ["model", *args]
        if not get_close_matches(args[0], self.commands) and not args[0].startswith("-"):
            raise InvalidInput(_how_to_show(args[0]))
        return super().resolve_command(ctx, args)


def _how_to_show(name: str) -> str:
    from mecheval.cli.named import is_model, unknown_name
    from mecheval.tasks import tasks

    kind = "model" if is_model(name) else "task"
    if kind == "task" and name.partition(":")[0] not in tasks.names():
        return unknown_name(name)
    return f"{name!r} is a {kind}; use 'mecheval show {kind} {name}'"


show = typer.Typer(cls=ShowGroup, epilog="Example: mecheval show model mamba:d_conv=2")
app.add_typer(show, name="show")


@show.command("task", epilog="Example: mecheval show task atr_split")
def show_task(
    spec: Task,
    *,
    seed: Seed = 0,
    train: Train = 100_032,
    evaluation: Evaluation = 1024,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Show what the data of a task is really like.

    Prints lengths, key-value distances, documents that dev and test share with training, and
    corruptions that leave the answer unchanged.
    """
    from mecheval.tasks import dataset_stats
    from mecheval.terminal import tables as terminal

    load(plugin)
    options = {"seed": seed, "train": train, "evaluation": evaluation}
    task, options = _validate(spec, dataset_stats.describe, options)
    with drawing():
        facts = dataset_stats.describe(task, **options)
    if as_json:
        print_json({"task": spec, "seed": seed, **facts.to_dict()})
    else:
        heading = terminal.title(spec, f"seed {seed}")
        terminal.console().print(heading, terminal.dataset_table(facts), "", sep="\n")


@show.command("model", epilog="Example: mecheval show model mamba:d_conv=2 --d-model 64")
def show_model(
    spec: Model,
    *,
    d_model: Width = 64,
    layers: Layers = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    download: Download = False,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Show what a model costs: parameters, state and operations.

    A model of transformers is hf:FOLDER, hf:FILE.gguf or hf:NAME, a small one hf-config:FAMILY.
    """
    load(plugin)
    model, depth = _build_model(spec, d_model, layers, Where(dtype, device, download))
    from mecheval.models.cost import LENGTHS, describe_model
    from mecheval.terminal import tables as terminal

    loaded = is_hub_name(spec)  # operations of a real model would take long to count
    facts = describe_model(model, () if loaded else LENGTHS)
    about, size = getattr(model, "about", {}), f"d_model {d_model}"
    if about:
        size = f"{about['family']}, d_model {about['d_model']}"
    if as_json:
        kinds = {"kinds": list(model.kinds)} if model.kinds else {}
        sizes = {"model": spec, "d_model": d_model, "layers": depth, **kinds}
        print_json({**sizes, **facts.to_dict(), **about})
    else:
        heading = terminal.title(spec, size, f"{depth} layers")
        table = terminal.cost_table(facts, model.kinds, about)
        terminal.console().print(heading, table, "", sep="\n")


@show.command("sites", epilog="Example: mecheval show sites mamba")
def show_sites(
    model: Annotated[str, _name("MODEL", "an architecture, mixer or model")],
    layers: Layers = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    download: Download = False,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Show every site of a model: its name, its shape and what it is."""
    load(plugin)
    built, _ = _build_model(model, None, layers, Where(dtype, device, download))
    from mecheval.models.site import sites
    from mecheval.terminal import tables as terminal

    records = []
    for name, site in sites(built).items():
        records.append({"name": name, "shape": list(site.axes), "summary": site.about})
    if as_json:
        print_json(records)
    else:
        console = terminal.console()
        if built.kinds:
            console.print(
                f"layers: {terminal.layer_kinds(built.kinds)}", "", sep="\n", markup=False
            )
        console.print(terminal.site_table(records))


@app.command(hidden=True)
@takes_options_of(show_task, show_model)
def describe(name: str, **options: Any) -> None:
    """Run 'show task' or 'show model': the old name of both."""
    from mecheval.cli.named import is_model

    load(options["plugin"])
    kind, show_it = ("model", show_model) if is_model(_register(name)) else ("task", show_task)
    warn_renamed("describe", f"show {kind}")
    known = signature(show_it).parameters
    show_it(name, **{option: value for option, value in options.items() if option in known})


@app.command(epilog="Example: mecheval sample atr -n 3 --seed 0 --split test")
def sample(
    task: Annotated[str, _name("TASK", "a task or a preset")],
    n: Annotated[int, _integer("number of documents", "-n")] = 3,
    seed: Seed = 0,
    split: Annotated[str, typer.Option(help="train, dev or test")] = "test",
    start: Annotated[int, _integer("number of the first document")] = 0,
    role: Annotated[str | None, typer.Option(help="variable to corrupt: key, …")] = None,
    kind: Annotated[str, typer.Option(help="corruption: resample, swap or yours")] = "resample",
    model: Annotated[str | None, typer.Option("--in", metavar="MODEL", help=_IN)] = None,
    words: Annotated[
        str, typer.Option(help="with --in: names, nouns, numbers or random")
    ] = "nouns",
    template: Annotated[str, typer.Option(help="with --in: rows, bare, lines, …")] = "rows",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Print documents of a task with their roles, their corrupted twins and their trees."""
    from mecheval.tasks.sample import sample as draw
    from mecheval.tasks.variables import variables_of
    from mecheval.terminal import documents
    from mecheval.terminal import tables as terminal

    load(plugin)
    options = {"n": n, "seed": seed, "split": split, "start": start, "role": role, "kind": kind}
    built, options = _validate(task, draw, options)
    if model:
        from mecheval.cli.hub import ask

        _, built = ask(model, task, words, template, 0, Where("float32", "cpu", False))
    with drawing():
        records = draw(built, **options)
    role = role or variables_of(built)[0]
    if as_json:
        print_json([record.to_dict() for record in records])
        return
    console = terminal.console()
    console.print(terminal.title(task, split, f"seed {seed}", f"{role} corrupted by {kind}"))
    console.print(documents.legend(records[0].roles), "", sep="\n")
    for record in records:
        console.print(f"document {record.index} ", end="")
        console.print(documents.document(record, console.width), "")


@app.command(epilog="Example: mecheval check mamba:d_conv=2")
def check(
    name: Annotated[str, _name("NAME", "a task, architecture, mixer or model")],
    d_model: Annotated[int, _integer("width of a mixer or model")] = 64,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Validate a task, mixer or model, built-in or third-party, or the mixers of an architecture.

    A model must be causal and deterministic, treat the rows of a batch independently, and have
    finite gradients and live sites. A task must have sound documents, roles and corruptions.
    """
    from mecheval.cli.named import check_named

    load(plugin)
    with drawing():
        check_named(name, d_model)
    if as_json:
        print_json({"name": name, "failures": []})
    else:
        print(f"{name}: all checks passed")


def _validate(spec: str, function: Any, options: dict[str, Any]) -> list[Any]:
    """Return the task and the options of a function on it, or raise the problems of both."""
    from mecheval.core.options import validate
    from mecheval.plugins import build_task

    validated = partial(validate, function, options, given=("task",))
    return all_of(partial(build_task, spec), validated)


def _register(text: str) -> str:
    """Register the class of `file.py:Class:option=1` and return its spec, `Class:option=1`."""
    from mecheval.plugins import load_plugin

    if ".py:" in text:
        load_plugin(text)
    return text.rpartition(".py:")[2]


class Where(NamedTuple):
    """How a model of transformers is loaded."""

    dtype: str
    device: str
    download: bool


def _build_model(
    text: str, d_model: int | None, layers: int | None, where: Where
) -> tuple[Any, int]:
    """Return the model and its number of layers; without `d_model` it has its own, or is narrow."""
    if is_hub_name(text):
        if layers is not None:
            raise InvalidInput(f"--layers={layers} cannot change {text}; leave it out")
        from mecheval.models.hf.load import load_hf

        loaded = load_hf(text, **where._asdict())
        return loaded, loaded.depth
    from mecheval.core.spec import Spec
    from mecheval.models.config import ModelConfig, layers_for, split_sizes

    # a bad configuration is refused before torch is imported
    spec = _register(text)
    layers = layers_for(spec) if layers is None else layers
    if d_model is None:
        own = "d_model" in split_sizes(Spec.parse(spec))[1]
        d_model = ModelConfig.d_model if own else WIDTH
    config = ModelConfig(architecture=spec, d_model=d_model, layers=layers)
    from mecheval.models.build import build_model

    return build_model(config, vocab_size=VOCAB), config.layers
