"""`mecheval` in a terminal: parse, one call, print."""

from mecheval.cli import look, run
from mecheval.cli.app import app, main, script

__all__ = ["app", "look", "main", "run", "script"]
