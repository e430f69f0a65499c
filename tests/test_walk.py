"""`mecheval run` goes from the command line to its rows by the functions in docs/architecture.md.

A function on the way is a main one if it calls at least three functions of other files.
"""

import re
import sys
from pathlib import Path

import pytest

import mecheval
from mecheval.cli import main

PACKAGE = Path(mecheval.__file__).parent
PREFIX = f"{PACKAGE}/"
PAGE = PACKAGE.parent / "docs" / "architecture.md"
ROOMS = ("cli", "runs", "training", "metrics", "interventions", "terminal")
FILES = ("plugins", "models/config", "models/build")  # inside of a model the walk is its forward
MOST_HOPS = 40
COMMAND = "run recall:pairs=3,vocab=26 mamba model.d_model=8 train.steps=2 train.documents=64"
EVALUATION = "eval.documents=16 eval.grid_documents=16 eval.every=2"


class Walk:
    """The functions of the package in the order in which they were first entered."""

    def __init__(self) -> None:
        self.callees: dict[str, set[str]] = {}

    def __call__(self, frame, event, argument):
        if event != "call" or (name := function_name(frame)) is None:
            return
        self.callees.setdefault(name, set())
        caller = frame.f_back
        while caller and function_name(caller) is None:
            caller = caller.f_back
        if caller:
            self.callees.setdefault(function_name(caller), set()).add(name)

    def main_functions(self) -> set[str]:
        return {name for name in self.callees if is_on_the_way(name) and self.leads_on(name)}

    def leads_on(self, name: str) -> bool:
        return sum(file_of(other) != file_of(name) for other in self.callees[name]) >= 3


def function_name(frame) -> str | None:
    """Return `room/file:function`; a function inside another one is part of it."""
    file, function = frame.f_code.co_filename, frame.f_code.co_qualname
    if not file.startswith(PREFIX) or function == "<module>":
        return None
    path = file.removeprefix(PREFIX).removesuffix(".py")
    return f"{path}:{function.partition('.<locals>')[0]}"


def file_of(name: str) -> str:
    return name.partition(":")[0]


def is_on_the_way(name: str) -> bool:
    file, _, function = name.partition(":")
    if file.partition("/")[0] not in ROOMS and file not in FILES:
        return False
    owner, _, method = function.rpartition(".")
    parts = vars(sys.modules[f"mecheval.{file.replace('/', '.')}"])
    return owner not in parts or not isinstance(vars(parts[owner])[method], property)


def documented_hops() -> list[str]:
    block = PAGE.read_text().partition("<!-- walk -->")[2].partition("```text\n")[2]
    hops = []
    for step in re.split(r"\s*→\s*", block.partition("```")[0].strip()):
        file, _, functions = step.partition(":")
        hops += [f"{file}:{function}" for function in functions.split(", ")]
    return hops


@pytest.mark.slow
def test_a_run_takes_at_most_forty_hops_and_the_page_lists_them(tmp_path, capsys):
    walk = Walk()
    sys.setprofile(walk)
    try:
        code = main([*COMMAND.split(), *EVALUATION.split(), "--out", str(tmp_path)])
    finally:
        sys.setprofile(None)
    assert code == 0
    hops = documented_hops()
    assert hops == [name for name in walk.callees if name in hops]  # entered in this order
    assert walk.main_functions() <= {*hops}
    assert 20 < len(hops) <= MOST_HOPS
