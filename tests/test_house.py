"""Rooms import only earlier rooms, nothing happens at import, and everything is documented."""

import ast
import os
import re
import resource
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_origin

import pytest
import torch
from jaxtyping import TypeCheckError

from mecheval.cli import command_names
from mecheval.models.registries import architectures, mixers, models
from mecheval.tasks import tasks

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mecheval"
# a room imports from itself and from those before it
ROOMS = [
    "core",
    "tasks",
    "models",
    "training",
    "metrics",
    "interventions",
    "runs",
    "results",
    "sweeps",
    "report",
]
ROOMS += ["cards", "paper", "terminal", "cli"]
FILES = {
    "plugins": "models",
    "__main__": "cli",
}  # what a file of the root may import: as much as this room
COMMANDS = command_names()
ENTRIES = [
    registry.describe(name)
    for registry in (tasks, architectures, mixers, models)
    for name in registry.names()
]


def modules() -> dict[str, Path]:
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in PACKAGE.rglob("*.py")
    }


def imported(source: str) -> set[str]:
    """The modules of the package that a source imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name the package in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "mecheval"}


def room_of(module: str) -> str:
    name = [*module.split("."), "core"][1]
    return FILES.get(name, name)


def backward_arrows(name: str, source: str) -> list[str]:
    here = ROOMS.index(room_of(name))
    rooms = {module: room_of(module) for module in imported(source)}
    return [module for module, room in rooms.items() if room in ROOMS and ROOMS.index(room) > here]


def test_imports_point_one_way():
    for name, file in modules().items():
        if name != "mecheval":
            assert room_of(name) in ROOMS, f"{name}: a new room has a place in the order"
            assert backward_arrows(name, file.read_text()) == [], name


def test_an_arrow_that_points_back_is_seen():
    assert (
        backward_arrows(
            "mecheval.tasks.recall", "def f():\n    from mecheval.models.registries import mixers"
        )
        != []
    )
    assert backward_arrows("mecheval.tasks.recall", "import mecheval.plugins") != []
    assert backward_arrows("mecheval.plugins", "from mecheval.tasks import tasks") == []


# modules that compute, and so import torch at once
LIGHT = ("architecture", "options", "config", "patterns", "registries", "short_convs")
COMPUTE = {
    "training": ("adamw", "train"),
    "metrics": ("behaviour", "readout"),
    "interventions": (
        *("reach", "interchange", "trace", "token_mixing", "states", "grid_eval"),
        *("depth", "heads"),
    ),
    "runs": ("fit", "run", "session"),
}
WITH_TORCH = [f"mecheval.{room}.{name}" for room, names in COMPUTE.items() for name in names]
for name in modules():
    if name.startswith("mecheval.models.") and not name.endswith(LIGHT):
        WITH_TORCH.append(name)


def test_torch_is_imported_only_to_compute_and_kernels_only_when_needed():
    for name, file in modules().items():
        tops = {
            node
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        for node in tops:
            names = (
                [node.module]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            allowed = {"numba"} if "kernels" in name else {"torch"} if name in WITH_TORCH else set()
            heavy = {"torch", "numba"} - allowed
            assert not heavy & {top.split(".")[0] for top in names}, name


def test_nothing_happens_at_import(tmp_path):
    names = [
        name
        for name in modules()
        if name not in WITH_TORCH and not re.search("kernels|__main__", name)
    ]
    code = f"""
import os, random, sys, threading
import numpy, rich.style  # which draws a number for itself
state, legacy = random.getstate(), numpy.random.get_state()[1].tolist()
environment = dict(os.environ)
import importlib
for name in {names}:
    importlib.import_module(name)
assert random.getstate() == state
assert numpy.random.get_state()[1].tolist() == legacy
assert dict(os.environ) == environment
assert threading.active_count() == 1
assert os.listdir() == []
print(sorted({{"torch", "numba", "scipy"}} & sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def cpu_seconds(*arguments: str) -> float:
    """The least of three, in CPU time, so that a busy machine does not matter."""
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


@pytest.mark.slow
def test_help_list_and_refusals_take_a_fraction_of_importing_torch():
    torch = cpu_seconds("-c", "import torch")
    for arguments in (
        ["--help"],
        ["sample", "--help"],
        ["list", "tasks"],
        ["list", "mixers"],
        ["sample", "recal"],
        ["sample", "recall:pairs=0"],
    ):
        assert cpu_seconds("-m", "mecheval", *arguments) < 0.5 * torch, arguments


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["list", "tasks"],
        ["list", "architectures"],
        ["list", "mixers", "--json"],
        ["list", "metrics"],
        ["list", "claims"],
        ["sample", "recall:pairs=0"],
    ],
)
def test_torch_and_numba_are_not_imported_to_answer(arguments):
    code = f"import sys, mecheval.cli\nmecheval.cli.main({arguments})\n"
    code += "print({'torch', 'numba'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_the_reference_is_what_the_code_says():
    generate = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    assert (ROOT / "docs" / "reference.md").read_text(encoding="utf-8") == generate[
        "reference"
    ](), "run `make docs`"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_reference(command):
    assert f"### mecheval {command}" in (ROOT / "docs" / "reference.md").read_text()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_everything_that_can_be_named_is_documented(entry):
    reference = (ROOT / "docs" / "reference.md").read_text()
    assert entry.summary
    assert f"`{entry.name}`" in reference or f"### {entry.name}" in reference
    for option in entry.options:
        assert option.summary, option.name
        assert f"| `{option.name}` |" in reference


@pytest.mark.parametrize("name", mixers.names())
def test_a_mixer_inherits_the_options_that_are_declared_for_it(name):
    assert mixers.get(name).__init__ is mixers.options(name).__init__


def test_every_public_name_is_importable_and_documented():
    import mecheval

    for name in mecheval.__all__:
        value = getattr(mecheval, name)
        assert value.__doc__ or get_origin(value) is Literal, name


def test_the_tree_of_the_architecture_page_has_every_room_and_is_short():
    page = (ROOT / "docs" / "architecture.md").read_text()
    (tree,) = re.findall(r"```text\n(mecheval/\n.*?)```", page, re.DOTALL)
    assert len(tree.splitlines()) <= 60
    assert [room for room in ROOMS if f"── {room}/" not in tree] == []
    named = set(re.findall(r"\b\w+\.py\b", page)) - {"__init__.py"}
    assert named <= {file.name for file in (*PACKAGE.rglob("*.py"), *(ROOT / "tests").glob("*.py"))}


def test_the_root_has_at_most_four_files():
    files = {file.stem for file in PACKAGE.iterdir() if file.suffix in (".py", ".pyi")}
    assert files <= {"__init__", "__main__", "plugins"}


def test_only_the_paper_knows_a_number_of_a_figure():
    outside = [file for file in PACKAGE.rglob("*.py") if "paper" not in file.parts]
    assert [file for file in outside if re.search("figure[0-9]", file.read_text())] == []
    assert any(re.search("figure[0-9]", file.read_text()) for file in PACKAGE.rglob("paper/*.py"))


# what readers stumbled over
DIALECT = "stranger|goes on after|is no number|must be there|who has|somebody"
FRAGMENT = "Of|On|At|By|From|With|Without|Where|Whether|What|Who|As|In|For|To|Which|If|When|While"


def test_no_text_is_in_a_private_language():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for file in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("templates/*.html"), *pages):
        assert re.findall(DIALECT, file.read_text(encoding="utf-8")) == [], file


def test_docstrings_are_sentences():
    for name, file in modules().items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or "A text"
                assert not re.match(rf"({FRAGMENT})\b", text), f"{name}: {text}"


def test_annotations_are_checked_in_the_test_run():
    from mecheval.models.ops.cross_entropy import cross_entropy

    with pytest.raises(TypeCheckError, match=r"parameters of .*cross_entropy"):
        cross_entropy(torch.zeros(3), torch.zeros(3, dtype=torch.long))


def test_the_version_is_in_the_changelog():
    import mecheval

    assert f"## {mecheval.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_nothing_is_pickled():
    for file in PACKAGE.rglob("*.py"):
        assert not re.search(
            r"\b(pickle|joblib|dill|cloudpickle|torch\.load)\b", file.read_text()
        ), file
