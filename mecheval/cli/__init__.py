"""`mecheval` in a terminal: parse, one call, print."""

from mecheval.cli import bench, card, claims, compare, demo, intervene, look, report, run, sweep
from mecheval.cli.app import app, main, script

__all__ = [
    "app",
    "bench",
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

# as a newcomer meets them
_ORDER = (
    *("demo", "card"),
    *("run", "intervene", "runs", "results", "compare"),
    *("sweep", "figure", "report", "claims", "keep"),
    *("list", "sample", "describe", "check", "bench"),
)
app.registered_commands.sort(
    key=lambda command: _ORDER.index(command.name or getattr(command.callback, "__name__", ""))
)
