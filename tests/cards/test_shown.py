"""The example on the documentation's card page works; `test_docs` runs the commands beside it."""

import re
import runpy
from pathlib import Path

import pytest
from support.card_runs import alone
from support.tiny_scale import as_quick

from mecheval.cards.page import TEMPLATES
from mecheval.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "card.md").read_text()
(CODE,) = re.findall(r"^```python\n# my.py\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_example_has_a_card_on_the_command_line_and_as_a_script(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    as_quick(monkeypatch)
    Path("my.py").write_text(CODE)
    with alone() as started:
        assert main(["card", "my.py:MyMixer"]) == 0
        assert len(started) == 18
        runpy.run_path("my.py", run_name="__main__")
        assert len(started) == 18, "the script finds the card of the command"
    assert "MyMixer" in capsys.readouterr().out
    names = [re.sub("-[0-9a-f]{8}-", "-*-", path.name) for path in Path("runs").iterdir()]
    assert sorted(names) == ["card-MyMixer-*-micro", "card-baselines-micro"]


def test_every_part_that_the_page_speaks_of_is_on_a_card():
    parts = re.findall(r"^\| ([A-Z][a-z, ]+) \| (?!read)", PAGE, flags=re.MULTILINE)
    assert len(parts) == 8
    template = (TEMPLATES / "card.html").read_text()
    missing = [part for part in parts if part not in template]
    assert missing == ["When the mechanism emerges"], "which is the title of a figure"
