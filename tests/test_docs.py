"""The examples in the documentation work.

The blocks of a page run in order, in one folder: ```python by itself or, if its first line is
`# name.py`, as a file that a command names; the lines of ```sh; ```toml as a file that a command
names. ```text is output. A sweep that would take minutes is written by hand beforehand.
"""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from support import made_runs as made

from mecheval.cli import app, main
from mecheval.models.registries import mixers
from mecheval.runs.provenance import made_by
from mecheval.sweeps.newer import DEEP_HYBRIDS, HYBRIDS
from mecheval.sweeps.recipe import ARCHITECTURES, NEWER, get_experiments, get_scale
from mecheval.tasks import tasks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
GENERATED = runpy.run_path(str(DOCS / "generate.py"))
LANGUAGES = ("python", "sh", "toml", "text")
BLOCK = re.compile(r"^ *```(.*)\n((?:.*\n)*?) *```$", flags=re.MULTILINE)
FILE = re.compile(r"# (\w+\.(?:py|toml))\n")
MAKE = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
SWEPT = "runs/figure3-quick"
SAYS = {  # by page, what its blocks print among other things
    "README.md": ["induction (100 % of resamples): each key is stored with its", "induction 58"],
    "index.md": ["induction 1.0 {"],
    "tasks.md": ["of the corruptions took the answer away"],
    "models.md": ["blocks.1.mixer.conv_out"],
    "training.md": ["done {'value'"],
    "interventions.md": ["\nunsolved\n", "64 torch.Size([64, 19, 1, 32, 32])"],
    "verdict.md": ["unsolved (100 % of resamples of 3 seeds): "],
    "add-a-mixer.md": [
        "Forgetful: all checks passed",
        "Peeking: must not see the future: changing token 1",
    ],
    "add-a-metric.md": ["margin restored blocks.1.block_in query"],
    "compare.md": ["10 − 60 steps: -0.92, p = 0.031, differ"],
    "resume.md": ["diverged", "threads was 1 and is 2", "did you mean 'attention'?"],
}


def name_of(page: Path) -> str:
    """Below docs/, or in the root."""
    return str(page.relative_to(DOCS if DOCS in page.parents else ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


@pytest.fixture
def folder(tmp_path, monkeypatch, own_names):
    """Provide an empty folder and a fake sbatch; names that a page registers are removed."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho 17\n")
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def sweep_by_hand(folder: Path) -> None:
    """Every run of figure 3 done, by these versions."""
    experiments = get_experiments("figure3", get_scale("quick"))
    made.planned(folder, "figure3", experiments)
    provenance = {**made.PROVENANCE, "made_by": made_by("cpu", 1, {})}
    rows = made.behaviour(0.9, 0.8) + made.grid(
        0.8, 0.1, {"key": 0.0, "value": 1.0, "next_key": 0.0, "query": 0.0}
    )
    for experiment in experiments:
        made.finished(folder, experiment, rows, said=made.verdict(), provenance=provenance)


def carry_out(line: str, monkeypatch, capsys) -> None:
    """One line of a shell. `# exit code 2` behind it says what it returns."""
    words = shlex.split(line, comments=True)
    while re.fullmatch("[A-Z_]+=.*", words[0]):
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    program, *arguments = words
    if program == "mecheval" and "--ray" in arguments:  # which stays in the process that started it
        pytest.importorskip("ray")
        subprocess.run([sys.executable, "-m", "mecheval", *arguments], check=True)
    elif program == "mecheval":
        expected = re.search("# exit code ([0-9]+)", line)
        assert main(arguments) == int(expected[1] if expected else 0), (
            f"{line}\n{capsys.readouterr().err}"
        )
    elif program == "make":
        assert set(arguments) <= set(MAKE)
    elif program == "pip":
        assert all(
            (ROOT / arguments[i + 1]).exists() for i, word in enumerate(arguments) if word == "-c"
        )
        assert all(
            extra in EXTRAS
            for found in re.findall(r"mecheval\[(.*?)\]", line)
            for extra in found.split(",")
        )
    else:
        assert program == ".venv/bin/pre-commit", f"nobody tries {line!r}"


def check_entry_points(text: str) -> None:
    groups = tomllib.loads(text)["project"]["entry-points"]
    assert set(groups) <= {f"mecheval.{registry.kind}s" for registry in (tasks, mixers)}


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_every_block_of_a_page_runs(page, folder, monkeypatch, capsys):
    if SWEPT in page.read_text():
        sweep_by_hand(folder / SWEPT)
    names, unused, said = {"__name__": "__main__"}, set(), ""
    for language, text in blocks(page):
        file = FILE.match(text)
        if file and file[1] == "pyproject.toml":
            check_entry_points(text)
        elif file:
            (folder / file[1]).write_text(text)
            unused.add(file[1])
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                carry_out(line, monkeypatch, capsys)
                unused -= {name for name in unused if name in line}
        else:
            assert language == "text", f"nobody tries a block of {language!r} that is no file"
        printed = capsys.readouterr()
        said += printed.out + printed.err
    assert not unused, "no command names this file, so nobody tries it"
    for expected in SAYS.get(name_of(page), []):
        assert expected in said


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_escapes(page):
    found = blocks(page)
    assert {language for language, _ in found} <= set(LANGUAGES)
    assert len(re.findall("^ *```", page.read_text(), flags=re.MULTILINE)) == 2 * len(found)
    assert not re.search("^ *~~~", page.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_within_a_sentence_exist(page):
    commands = typer.main.get_command(app).commands
    for text in re.findall(r"`mecheval (\w[^`\n]*)`", BLOCK.sub("", page.read_text())):
        name, *words = text.split()
        assert name in commands, text
        command = commands[name]
        if words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words[0]]
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word for word in words if word.startswith("-")} <= options, text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_that_are_named_exist(page):
    for target in re.findall(r"(?:^|`)make (\w+)", page.read_text(), flags=re.MULTILINE):
        assert target in MAKE


@pytest.mark.parametrize("name", ["reference.md", "sites.md", "api.md"])
def test_generated_pages_are_what_the_code_says(name):
    assert (DOCS / name).read_text(encoding="utf-8") == GENERATED["pages"]()[name], (
        "run `make docs`"
    )


def test_the_page_of_architectures_is_what_the_kept_runs_say():
    made = runpy.run_path(str(DOCS / "architectures.py"))["page"]()
    assert (DOCS / "architectures.md").read_text(encoding="utf-8") == made, "run `make docs`"


def test_every_architecture_has_its_equation_and_its_source():
    """A new one needs a table in docs/architectures.toml."""
    about = tomllib.loads((DOCS / "architectures.toml").read_text(encoding="utf-8"))
    assert set(about) == {*ARCHITECTURES, *NEWER, *HYBRIDS, *DEEP_HYBRIDS}
    for name, said in about.items():
        assert {"family", "equation", "source"} == set(said), name


def test_every_page_is_in_the_contents():
    assert set(pages_in(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])) == {
        str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")
    }


def pages_in(contents) -> list[str]:
    if isinstance(contents, str):
        return [contents]
    parts = contents.values() if isinstance(contents, dict) else contents
    return [name for part in parts for name in pages_in(part)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for builder in ("zensical", "mkdocstrings_handlers.python"):
        pytest.importorskip(builder)
    room = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, room / "docs")
    shutil.copy(ROOT / "zensical.toml", room)
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict"]
    done = subprocess.run(command, cwd=room, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return room / "site"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site):
    assert {page.stem for page in DOCS.glob("*.md")} <= {page.stem for page in site.glob("*.html")}
    assert "Everything that determines a run" in (site / "api.html").read_text(), (
        "docstrings are in it"
    )


def test_no_page_loads_anything_from_elsewhere(site):
    loads = re.compile(
        r"""<(?!a\b)\w+\b[^>]*\s(?:src|href|data|srcset)\s*=\s*["']?(?:https?:)?//|url\(["']?(?:https?:)?//|@import""",
        flags=re.IGNORECASE,
    )
    assert loads.search('<script async src="https://elsewhere.org/x.js">')
    assert not loads.search('<a href="https://elsewhere.org">')
    for file in site.rglob("*"):
        if file.suffix in (".html", ".css", ".svg"):
            assert not loads.search(file.read_text(encoding="utf-8")), file
