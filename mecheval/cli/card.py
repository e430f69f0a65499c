"""`mecheval card`: the mechanism card of a mixer, or of a model of transformers."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from mecheval.cli.app import Json, Plugins, app, load, print_json, whole
from mecheval.cli.hub import Template, examine_hub, refuse_options
from mecheval.cli.show import Download, Dtype, Where
from mecheval.cli.sweep import Device, Workers, validated_device
from mecheval.cli.sweep_actions import print_estimate
from mecheval.core.errors import RunFailed
from mecheval.core.spec import is_hub_name

if TYPE_CHECKING:
    from mecheval.cards.card import Card
    from mecheval.cards.experiments import CardRuns
    from mecheval.terminal.sweep_view import Lines, LiveTable

_SUBJECT = "file.py:Class, the name of a mixer or an architecture, with options, or hf:PATH"
_WORDS = "of hf:…: a list of words to ask in; repeat it for several  [default: nouns, names]"
_DOCUMENTS = "of hf:…: documents of the interventions"
_TASK = "of hf:…: what is asked  [default: recall:pairs=4,passes=2]"


@app.command(epilog="Example: mecheval card mamba:d_conv=2")
def card(
    subject: Annotated[str, Argument(metavar="SUBJECT", help=_SUBJECT)],
    scale: Annotated[str, Option(help="quick, small, laptop or paper")] = "quick",
    out: Annotated[Path, Option("--out", metavar="DIR", help="parent of the runs")] = Path("runs"),
    workers: Workers = None,
    device: Device = "cpu",
    dry_run: Annotated[bool, Option("--dry-run", help="print the cost, write nothing")] = False,
    task: Annotated[str | None, Option(help=_TASK)] = None,
    words: Annotated[list[str] | None, Option(help=_WORDS)] = None,
    template: Template = "rows",
    documents: Annotated[int, Option(parser=whole, metavar="INTEGER", help=_DOCUMENTS)] = 320,
    dtype: Dtype = "float32",
    download: Download = False,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Write a mechanism card: one page on how a mixer recalls, beside attention and Mamba.

    A first answer is there in minutes: AR, one seed, a short search for the rate. The card is then
    refined (every rate, seeds, baselines, ATR) and written again after each stage. Stop it at any
    time; rerun the same command to resume. A finished card opens at once.

    A model of transformers is not trained: it is asked to recall in its own words.
    """
    if is_hub_name(subject):
        of_mixers = {"scale": scale, "workers": workers, "dry_run": dry_run}
        refuse_options(card, of_mixers, "mixers", subject)
        load(plugin)
        where = Where(dtype, validated_device(device), download)
        lists = words or ["nouns", "names"]
        examine_hub(subject, task, lists, template, documents, out, where, as_json)
        return
    of_hub = {"task": task, "words": words, "template": template, "documents": documents}
    of_hub |= {"dtype": dtype, "download": download}
    refuse_options(card, of_hub, "models of transformers", subject)
    from mecheval.sweeps.options import SweepOptions

    given: dict[str, Any] = {"device": validated_device(device)}
    given |= {} if workers is None else {"workers": workers}
    options = SweepOptions(**given)
    files = [str(path) for path in plugin or []]
    from mecheval.cards.card import card as make_card
    from mecheval.cards.card import prepare
    from mecheval.terminal import tables as terminal
    from mecheval.terminal.sweep_view import sweep_progress

    if dry_run:
        plan = prepare(subject, scale, out, options, files)
        _print_estimate(plan, options.workers, as_json)
        return
    with sweep_progress(options.workers) as watch:
        on_stage = partial(_say_stage, watch)
        how: dict[str, Any] = {"watch": watch, "on_stage": on_stage, "device": device}
        result = make_card(subject, scale, out, options.workers, files, **how)
    if as_json:
        print_json(result.to_dict())
    else:
        console = terminal.console()
        heading = terminal.title(result.facts["shown"], f"scale {result.facts['scale']}")
        console.print(heading, _verdict_table(result), "", sep="\n")
        for name in ("card.html", "card.md"):
            console.print(result.folder / name, soft_wrap=True)
    if result.failures:
        raise RunFailed("\n".join(result.failures))


def _say_stage(watch: "LiveTable | Lines", result: "Card", seconds: float) -> None:
    """Say where the card is, and what is still to come."""
    from mecheval.terminal.tables import clock

    stage = result.facts["stage"]
    if stage["last"]:
        return
    name = "first answer" if stage["number"] == 1 else stage["name"]
    coming = "; ".join(stage["coming"])
    page = result.folder / "card.html"
    watch.say(f"{name} after {clock(seconds)}; refining: {coming}; open {page}")


def _verdict_table(result: "Card") -> Any:
    from rich.text import Text

    from mecheval.report import labels
    from mecheval.terminal.tables import verdict_table, whole_percent

    rows = []
    for line in result.facts["lines"]:
        accuracy = whole_percent(line["accuracy"]) if line["accuracy"] else line["state"]
        seeds = f" ({labels.seed_count(line['agree'], line['judged'])})" if line["judged"] else ""
        mechanism = Text.assemble((line["mechanism"] or "–", "bold"), seeds)
        rows.append((labels.task(line["task"]), line["shown"], accuracy, mechanism))
    return verdict_table(["task", "architecture"], rows)


def _print_estimate(runs: "CardRuns", workers: int, as_json: bool) -> None:
    names = {"subject": runs.subject.architecture, "scale": runs.scale.name}
    names["folder"] = str(runs.folder)
    first = partial(runs.estimate_first, workers)
    print_estimate(names, runs.count, runs.ahead(), workers, as_json, first)
