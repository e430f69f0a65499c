"""What a notebook shows: one line of progress that updates, and small escaped tables."""

import sys
from types import SimpleNamespace

import pytest

from mecheval.core import notebook
from mecheval.core.notebook import bar, html_table, short, status_line


class Shown:
    """A stand-in for IPython in a kernel: keeps what each output of a cell shows."""

    def __init__(self):
        self.outputs = []
        self.display_module = SimpleNamespace(HTML=str, display=self.display)

    def get_ipython(self):
        return SimpleNamespace(kernel=object())

    def display(self, content, display_id):
        self.outputs.append([content])
        return SimpleNamespace(update=self.outputs[-1].append)


@pytest.fixture
def kernel(monkeypatch):
    shown = Shown()
    monkeypatch.setitem(sys.modules, "IPython", shown)
    monkeypatch.setattr(notebook, "import_module", lambda name: shown.display_module)
    return shown


def test_a_notebook_shows_one_line_that_updates(kernel):
    show = status_line(None)
    for text in ("a < b", "second"):
        show(text)
    (output,) = kernel.outputs
    assert ["a &lt; b" in output[0], "second" in output[1]] == [True, True]
    assert status_line(False) is None


def test_outside_a_notebook_and_a_terminal_nothing_is_shown(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert status_line(None) is None
    assert status_line(True) is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert status_line(None) is None
    status_line(True)("half")
    assert capsys.readouterr().err.endswith("half")


def test_every_text_of_a_table_is_escaped():
    evil = "<script>alert(1)</script>"
    page = html_table(evil, [evil], [[evil, (evil, "color: #111")]], evil)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 5


def test_a_repr_is_one_short_line():
    assert short("a\n b") == "a b"
    assert len(short("x" * 1000)) == 200


@pytest.mark.parametrize(("done", "filled"), [(0, 0), (5, 12), (10, 24), (20, 24)])
def test_a_bar_is_filled_in_proportion(done, filled):
    assert bar(done, 10) == "█" * filled + "░" * (24 - filled)
