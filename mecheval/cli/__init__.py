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
