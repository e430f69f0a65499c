"""What can be looked at without training: documents, tasks, models, sites."""

from typing import Annotated, Any

import typer

from mecheval.cli.app import Json, Plugins, Seed, all_of, app, build_task, drawing, load, print_json, whole
from mecheval.core.errors import InvalidInput

TaskText = Annotated[str, typer.Argument(metavar="TASK", help="a task with options, a preset, or file.py:Class")]
NameText = Annotated[
    str, typer.Argument(metavar="NAME", help="a task, an architecture, a mixer or a model, with options")
]


@app.command(epilog="Example: mecheval sample atr -n 3 --seed 0 --split test")
def sample(
    task: TaskText,
    n: Annotated[int, typer.Option("-n", parser=whole, metavar="INTEGER", help="how many documents")] = 3,
    seed: Seed = 0,
    split: Annotated[str, typer.Option(help="train, dev or test")] = "test",
    start: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="number of the first document")] = 0,
    role: Annotated[str, typer.Option(help="what is corrupted: key, value or query")] = "key",
    kind: Annotated[str, typer.Option(help="how: resample or swap")] = "resample",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Shows documents with their roles, their corrupted twins and their trees."""
    from mecheval.core.options import validate
    from mecheval.tasks import sample as records

    wanted = {"n": n, "seed": seed, "split": split, "start": start, "role": role, "kind": kind}
    load(plugin)
    built, settings = all_of(lambda: build_task(task), lambda: validate(records.sample, wanted, given=("task",)))
    with drawing():
        found = records.sample(built, **settings)
    if as_json:
        print_json([record.to_dict() for record in found])
        return
    from mecheval.terminal import tables as terminal

    console = terminal.console()
    console.print(terminal.title(task, split, f"seed {seed}", f"{role} corrupted by {kind}"))
    console.print(terminal.legend(), "", sep="\n")
    for record in found:
        console.print(f"document {record.index} ", end="")
        console.print(terminal.document(record, console.width), "")


@app.command(epilog="Example: mecheval describe atr_split")
def describe(
    name: NameText,
    seed: Seed = 0,
    train: Annotated[
        int, typer.Option(parser=whole, metavar="INTEGER", help="task: documents in the training set")
    ] = 100_032,
    evaluation: Annotated[
        int, typer.Option(parser=whole, metavar="INTEGER", help="task: documents in dev and in test")
    ] = 1024,
    d_model: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="model: width")] = 64,
    layers: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="model: blocks")] = 2,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Says what a data set is really like, or what a model costs."""
    from mecheval.core.options import validate
    from mecheval.plugins import is_model
    from mecheval.tasks import dataset_stats as honesty
    from mecheval.terminal import tables as terminal

    load(plugin)
    if is_model(_named(name)):
        model = _model(name, d_model, layers)
        from mecheval.models.cost import describe_model

        costs = describe_model(model)
        if as_json:
            print_json({"model": name, "d_model": d_model, "layers": layers, **costs.to_dict()})
        else:
            title = terminal.title(name, f"d_model {d_model}", f"{layers} layers")
            terminal.console().print(title, terminal.costs(costs), "", sep="\n")
        return
    wanted = {"seed": seed, "train": train, "evaluation": evaluation}
    built, settings = all_of(lambda: build_task(name), lambda: validate(honesty.describe, wanted, given=("task",)))
    with drawing():
        facts = honesty.describe(built, **settings)
    if as_json:
        print_json({"task": name, "seed": seed, **facts.to_dict()})
        return
    terminal.console().print(terminal.title(name, f"seed {seed}"), terminal.honesty(facts), "", sep="\n")


@app.command("list", epilog="Example: mecheval list tasks --json")
def list_(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="tasks, architectures, mixers, recipes, or sites MODEL")],
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="whose sites, as in: list sites mamba")] = None,
    layers: Annotated[int, typer.Option(parser=whole, metavar="INTEGER", help="sites: blocks")] = 2,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Lists what can be named: with every option, or with every site of a model."""
    from mecheval.core.options import did_you_mean
    from mecheval.models.registries import architectures, mixers, models
    from mecheval.tasks import tasks
    from mecheval.terminal import tables as terminal

    registries = {"tasks": (tasks,), "architectures": (architectures, models), "mixers": (mixers,)}
    if what not in (*registries, "recipes", "sites"):
        raise InvalidInput(
            f"nothing to list by the name {what!r}{did_you_mean(what, [*registries, 'recipes', 'sites'])}"
        )
    if (what == "sites") != (model is not None):
        raise InvalidInput("'list sites' must name a MODEL, as in 'mecheval list sites mamba', and nothing else may")
    load(plugin)
    if model is not None:
        built = _model(model, 16, layers)
        from mecheval.models.site import sites

        found = [{"name": name, "shape": list(site.axes), "summary": site.about} for name, site in sites(built).items()]
        if as_json:
            print_json(found)
        else:
            terminal.console().print(terminal.site_table(found))
        return
    if what == "recipes":
        _print_recipes(as_json)
        return
    entries = [registry.describe(name) for registry in registries[what] for name in registry.names()]
    if as_json:
        print_json([entry.to_dict() for entry in entries])
    else:
        terminal.console().print(terminal.entries(what, entries))


def _print_recipes(as_json: bool) -> None:
    from mecheval.core.registry import summary_of
    from mecheval.sweeps.recipe import recipe_names, recipes
    from mecheval.terminal import tables as terminal

    lines = []
    for name in recipe_names():
        number = name.removeprefix("figure") if name.startswith("figure") else None
        lines.append({"name": name, "figure": number, "summary": summary_of(recipes.get(name))})
    if as_json:
        print_json(lines)
        return
    for line in lines:
        terminal.console().print(terminal.title(str(line["name"]), str(line["summary"])))


@app.command(epilog="Example: mecheval check mamba:d_conv=2")
def check(name: NameText, plugin: Plugins = None, as_json: Json = False) -> None:
    """Examines a task, a mixer or a model, built in or of your own (file.py:Class): whether it keeps every promise."""
    from mecheval.plugins import check_named

    load(plugin)
    with drawing():
        check_named(name)
    if as_json:
        print_json({"name": name, "failures": []})
    else:
        print(f"{name}: keeps every promise")


def _named(text: str) -> str:
    """A class of a file by its own name, which it has from then on."""
    from mecheval.plugins import load_plugin

    if ".py:" in text:
        load_plugin(text)
    return text.rpartition(".py:")[2]


def _model(text: str, d_model: int, layers: int) -> Any:
    from mecheval.models.config import ModelConfig

    # refused here, torch is not loaded
    config = ModelConfig(architecture=_named(text), d_model=d_model, layers=layers)
    from mecheval.models.build import build_model

    return build_model(config, vocab_size=8195)
