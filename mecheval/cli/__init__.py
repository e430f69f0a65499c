"""`mecheval` in a terminal: parse, one call, print."""

from mecheval.cli import intervene, look, run
from mecheval.cli.app import app, main, script

__all__ = ["app", "intervene", "look", "main", "run", "script"]
