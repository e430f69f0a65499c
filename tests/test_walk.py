"""`mecheval run` enters the functions that docs/architecture.md lists, in their order."""

import re
import sys
from pathlib import Path

import pytest

import mecheval
from mecheval.cli import main

PACKAGE = Path(mecheval.__file__).parent
PREFIX = f"{PACKAGE}/"
PAGE = PACKAGE.parent / "docs" / "architecture.md"
MOST_HOPS = 40
COMMAND = "run recall:pairs=3,vocab=26 mamba model.d_model=8 train.steps=2 train.documents=64"
EVALUATION = "eval.documents=16 eval.grid_documents=16 eval.every=2"


class Walk:
    """The functions of the package in the order in which they were first entered."""

    def __init__(self) -> None:
        self.entered: dict[str, None] = {}

    def __call__(self, frame, event, argument):
        if event == "call" and (name := function_name(frame)):
            self.entered.setdefault(name)


def function_name(frame) -> str | None:
    """Return `room/file:function`; a function inside another one is part of it."""
    file, function = frame.f_code.co_filename, frame.f_code.co_qualname
    if not file.startswith(PREFIX) or function == "<module>":
        return None
    path = file.removeprefix(PREFIX).removesuffix(".py")
    return f"{path}:{function.partition('.<locals>')[0]}"


def documented_hops() -> list[str]:
    block = PAGE.read_text().partition("<!-- walk -->")[2].partition("```text\n")[2]
    hops = []
    for step in re.split(r"\s*→\s*", block.partition("```")[0].strip()):
        file, _, functions = step.partition(":")
        hops += [f"{file}:{function}" for function in functions.split(", ")]
    return hops


@pytest.mark.slow
def test_a_run_enters_the_forty_functions_of_the_page_in_their_order(tmp_path, capsys):
    walk = Walk()
    sys.setprofile(walk)
    try:
        code = main([*COMMAND.split(), *EVALUATION.split(), "--out", str(tmp_path)])
    finally:
        sys.setprofile(None)
    assert code == 0
    hops = documented_hops()
    assert hops == [name for name in walk.entered if name in hops]  # entered in this order
    assert 20 < len(hops) <= MOST_HOPS
