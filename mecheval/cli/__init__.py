"""The command line: each command parses its arguments, makes one call and prints the result."""

from mecheval.cli import card, claims, compare, demo, intervene, listing, report, run, show, sweep
from mecheval.cli.app import app, command_names, main, script

__all__ = ["app", "card", "claims", "command_names", "compare", "demo", "intervene", "listing"]
__all__ += ["main", "report", "run", "script", "show", "sweep"]
