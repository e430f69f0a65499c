import textwrap

import pytest

from mecheval.cli import main
from mecheval.core.errors import InvalidInput
from mecheval.core.plugin_files import checksums, isolated_plugins
from mecheval.models.registries import mixers
from mecheval.plugins import build_task, load_plugin, register_from_text
from mecheval.tasks import tasks
from mecheval.tasks.check import check_task

REPEAT = '''
"""A third-party task: repeat at the end the token after a marker."""
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

import mecheval
from mecheval import Recall


@mecheval.register_task("{name}")
@dataclass(frozen=True, kw_only=True)
class Repeat:
    """Repeat what was marked."""

    symbols: Annotated[int, Field(ge=2, le=100, description="how many symbols")] = 10

    @property
    def inner(self):
        return Recall(pairs=1, vocab=2 * self.symbols)

    vocab_size = property(lambda self: self.inner.vocab_size)
    max_len = property(lambda self: self.inner.max_len)

    def documents(self, seed, split, start, stop):
        return self.inner.documents(seed, split, start, stop)

    def corrupt(self, docs, role, seed, kind="resample"):
        return self.inner.corrupt(docs, role, seed, kind)

    def word(self, token):
        return self.inner.word(token)


@mecheval.register_mixer("{name}_mixer")
class Mean:
    """The mean of what came before."""

    def __init__(self, d_model: int, max_len: int, *, window: Annotated[int, Field(ge=1)] = 4):
        self.window = window
'''


@pytest.fixture
def plugin(tmp_path, own_names):
    """A file that registers a task and a mixer."""
    file = tmp_path / "repeat.py"
    file.write_text(REPEAT.replace("{name}", "repeat"))
    return file


def test_a_third_party_task_is_named_built_and_checked_like_a_built_in(plugin):
    load_plugin(plugin)
    assert "repeat" in tasks.names()
    task = build_task("repeat:symbols=5")
    assert task.symbols == 5
    check_task(task, documents=32)
    with pytest.raises(InvalidInput, match="repeat: symbols=1 must be an integer from 2 to 100"):
        build_task("repeat:symbols=1")


def test_a_third_party_mixer_shows_its_options_but_not_d_model_and_max_len(plugin):
    load_plugin(plugin)
    entry = mixers.describe("repeat_mixer")
    assert entry.summary == "The mean of what came before."
    assert [option.name for option in entry.options] == ["window"]
    assert mixers.build("repeat_mixer:window=2", d_model=8, max_len=16).window == 2
    with pytest.raises(InvalidInput, match="no option 'd_model'"):
        mixers.build("repeat_mixer:d_model=8", max_len=16)


def test_a_class_in_a_file_needs_no_name(plugin):
    assert build_task(f"{plugin}:Repeat:symbols=7").symbols == 7
    with pytest.raises(InvalidInput, match="has no class 'Repaet'"):
        build_task(f"{plugin}:Repaet")


def test_a_plugin_is_run_once(plugin):
    assert load_plugin(plugin) is load_plugin(plugin)


def test_the_command_line_takes_plugins(plugin, capsys):
    assert main(["sample", "repeat", "--plugin", str(plugin), "-n", "1", "--json"]) == 0
    assert main(["list", "mixers", "--plugin", str(plugin)]) == 0
    assert "repeat_mixer" in capsys.readouterr().out
    assert main(["check", f"{plugin}:Repeat"]) == 0
    assert main(["describe", "repeat", "--plugin", str(plugin), "--train", "100"]) == 0


def test_a_plugin_that_was_changed_is_run_again_and_takes_its_own_place(plugin):
    first = load_plugin(plugin)
    plugin.write_text(plugin.read_text().replace("le=100", "le=7"))
    second = load_plugin(plugin)
    assert second is not first
    assert tasks.get("repeat") is second.Repeat
    with pytest.raises(InvalidInput, match="from 2 to 7"):
        build_task("repeat:symbols=8")


def test_a_plugin_that_no_longer_runs_leaves_the_one_before(plugin):
    first = load_plugin(plugin)
    good = plugin.read_text()
    plugin.write_text(good + "\n1 / 0\n")
    with pytest.raises(InvalidInput, match="ZeroDivisionError"):
        load_plugin(plugin)
    plugin.write_text(good)
    assert load_plugin(plugin) is first


def test_a_class_of_a_file_is_registered_by_its_own_name(plugin):
    load_plugin(f"{plugin}:Mean")
    load_plugin(f"{plugin}:Repeat")
    assert mixers.get("Mean") is load_plugin(plugin).Mean
    assert tasks.get("Repeat") is load_plugin(plugin).Repeat
    with pytest.raises(InvalidInput, match="must be a mixer; it is a task"):
        register_from_text(mixers, f"{plugin}:Repeat")


def test_isolated_plugins_are_those_loaded_within_the_block(plugin):
    load_plugin(plugin)
    before = checksums()
    with isolated_plugins({"Mine": "abc"}):
        assert checksums() == {"Mine": "abc"}
        load_plugin(plugin)
        assert checksums() == {"Mine": "abc", **before}
    assert checksums() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 / 0", "broken.py:1: ZeroDivisionError: division by zero"),
        ("x = 1\n\nx.y", "broken.py:3: AttributeError"),
        ("def f():\n    1 / 0\nf()", "broken.py:2: ZeroDivisionError"),
        ("x = 1\ndef broken(:", "broken.py:2: SyntaxError"),
        (
            "import mecheval\n@mecheval.register_task('recall')\nclass Mine: pass",
            "broken.py:2: name='recall' is taken",
        ),
        ("import no_such_module", "ModuleNotFoundError"),
        ("raise SystemExit(0)", "SystemExit: 0"),
    ],
)
def test_a_broken_plugin_is_one_line(tmp_path, capsys, content, message):
    file = tmp_path / "broken.py"
    file.write_text(textwrap.dedent(content))
    assert main(["list", "tasks", "--plugin", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1


def test_a_missing_file_is_said_to_be_missing(capsys):
    with pytest.raises(InvalidInput, match=r"^no such file: nowhere\.py$"):
        load_plugin("nowhere.py")
    assert main(["check", "nowhere.py:A"]) == 2
    assert capsys.readouterr().err == "error: no such file: nowhere.py\n"


@pytest.mark.parametrize("path", ["notes.txt", "."])
def test_a_path_that_is_not_a_python_file_is_refused(path):
    with pytest.raises(InvalidInput, match="must be a Python file"):
        load_plugin(path)
