"""`mecheval list`: names that can be used on the command line, with their options."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mecheval.cli.app import Json, Plugins, app, load, print_json, warn_renamed, whole
from mecheval.core.errors import InvalidInput

if TYPE_CHECKING:
    from mecheval.core.registry import Registry

KINDS = (
    *("tasks", "architectures", "mixers", "models", "corruptions"),
    *("metrics", "loggers", "recipes", "figures", "claims"),
)
_Kind = Annotated[str, typer.Argument(metavar="KIND", help=f"one of {', '.join(KINDS)}")]


@app.command("list", epilog="Example: mecheval list tasks --json")
def list_(
    kind: _Kind,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", hidden=True)] = None,
    layers: Annotated[int | None, typer.Option(parser=whole, hidden=True)] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List everything of a kind, with its summary and its options.

    'mecheval show sites MODEL' lists the sites of a model.
    """
    from mecheval.core.options import did_you_mean

    if kind == "sites" and model is not None:
        from mecheval.cli.show import show_sites

        warn_renamed("list sites", "show sites")
        show_sites(model, layers, plugin=plugin, as_json=as_json)
        return
    if kind not in KINDS:
        raise InvalidInput(f"nothing to list by the name {kind!r}{did_you_mean(kind, KINDS)}")
    if model is not None:
        raise InvalidInput(f"unexpected argument {model!r}; 'mecheval list {kind}' takes no MODEL")
    load(plugin)
    if kind in _RECORDS:
        _list_records(_RECORDS[kind](), as_json)
    else:
        _list_entries(kind, as_json)


def _list_entries(kind: str, as_json: bool) -> None:
    from mecheval.models.registries import architectures, mixers, models
    from mecheval.tasks import tasks
    from mecheval.tasks.corruption import corruptions
    from mecheval.terminal import tables as terminal

    registries = {"tasks": [tasks], "mixers": [mixers], "models": [models]}
    registries["corruptions"] = [corruptions]
    registries["architectures"] = [architectures, models]  # a whole model goes where one goes
    entries = []
    for registry in registries[kind]:
        entries += [registry.describe(name) for name in registry.names()]
    if as_json:
        print_json([entry.to_dict() for entry in entries])
    else:
        terminal.console().print(terminal.entry_list(kind, entries))


def _list_records(records: list[dict[str, Any]], as_json: bool) -> None:
    """Print names and summaries of what has no options."""
    from mecheval.terminal import tables as terminal

    if as_json:
        print_json(records)
        return
    for record in records:
        terminal.console().print(terminal.title(record["name"], record["summary"]))


def _recipes() -> list[dict[str, Any]]:
    from mecheval.core.registry import summary_of
    from mecheval.sweeps.recipe import recipe_names, recipes

    records: list[dict[str, Any]] = []
    for name in recipe_names():
        number = name.removeprefix("figure") if name.startswith("figure") else None
        records.append({"name": name, "figure": number, "summary": summary_of(recipes.get(name))})
    return records


def _named(registry: "Registry") -> list[dict[str, Any]]:
    from mecheval.core.registry import summary_of

    return [{"name": name, "summary": summary_of(registry.get(name))} for name in registry.names()]


def _metrics() -> list[dict[str, Any]]:
    from mecheval.metrics.registry import BUILT_IN, metrics

    return [{"name": name, "summary": text} for name, text in BUILT_IN.items()] + _named(metrics)


def _loggers() -> list[dict[str, Any]]:
    from mecheval.runs.loggers import loggers

    return _named(loggers)


def _figures() -> list[dict[str, Any]]:
    from mecheval.report.drawing import figures

    return _named(figures)


def _claims() -> list[dict[str, Any]]:
    from mecheval.report.claims import all_claims

    return [
        {"name": claim.name, "recipe": claim.recipe, "where": claim.where, "summary": claim.says}
        for claim in all_claims()
    ]


_RECORDS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "recipes": _recipes,
    "metrics": _metrics,
    "loggers": _loggers,
    "figures": _figures,
    "claims": _claims,
}
