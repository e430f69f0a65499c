"""`mecheval` in a terminal: parse, one call, print."""

from typer.models import CommandInfo

from mecheval.cli import card, claims, compare, demo, intervene, look, report, run, sweep
from mecheval.cli.app import app, main, script

__all__ = [
    "app",
    "card",
    "claims",
    "compare",
    "demo",
    "intervene",
    "look",
    "main",
    "report",
    "run",
    "script",
    "sweep",
]

# as a newcomer meets them, each in a line that fits a terminal
_COMMANDS = {
    "demo": "seven architectures, trained, judged, reported in minutes",
    "card": "how a mixer recalls, beside attention and Mamba, on one page",
    "run": "one experiment: trains, measures, keeps; goes on after a kill",
    "intervene": "puts clean activations into corrupt documents of a run",
    "runs": "what is done, running, killed, diverged or damaged",
    "results": "every measurement of every run, or the answer to SQL",
    "compare": "whether groups of runs differ by more than their seeds do",
    "figure": "a figure of the paper, or one beyond it, from runs",
    "report": "one page about folders of runs, which needs no network",
    "claims": "which of the paper's claims hold for these runs",
    "keep": "what runs measured, without their weights",
    "list": "what can be named, with every option",
    "sample": "documents with roles, corrupted twins and trees",
    "describe": "what a data set is really like, or what a model costs",
    "check": "whether a task, a mixer or a model keeps its promises",
}


def _named(command: CommandInfo) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


app.registered_commands.sort(key=lambda command: [*_COMMANDS].index(_named(command)))
for _command in app.registered_commands:
    _command.short_help = _COMMANDS[_named(_command)]
