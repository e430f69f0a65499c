"""A subject that gets no card is refused with one line and exit code 2; nothing is written."""

import pytest
from support import card_refusals as refusals
from support.card_runs import THIRD_PARTY, alone

from mecheval.cli import main


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with alone() as started:
        yield
    assert started == []


def refused(capsys, *arguments):
    assert main(["card", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if line.startswith("error: ")]
    return [line.removeprefix("error: ") for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("case", refusals.BROKEN, ids=lambda case: repr(case)[-40:])
@pytest.mark.parametrize("form", [[], ["--json"], ["--dry-run"]], ids="".join)
def test_a_bad_file_is_refused_in_a_line_with_the_place(case, form, capsys, tmp_path):
    content, subject, named = case
    (tmp_path / "my.py").write_text(content)
    (line,) = refused(capsys, subject, *form)
    assert [word for word in named if word not in line] == []
    assert {path.name for path in tmp_path.iterdir()} <= {"my.py", "__pycache__"}


@pytest.mark.parametrize(("arguments", "named"), refusals.NAMES, ids=lambda value: " ".join(value))
def test_a_bad_name_or_option_is_refused_in_a_line(arguments, named, capsys, tmp_path):
    (line,) = refused(capsys, *arguments[1:])
    assert [word for word in named if word not in line] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "reason"), refusals.BAD.items())
def test_a_mixer_that_fails_a_check_gets_the_reason_and_no_card(name, reason, capsys, tmp_path):
    lines = refused(capsys, f"{THIRD_PARTY / 'bad.py'}:{name}")
    assert all(line.startswith(f"{name}: ") for line in lines)
    assert any(reason in line for line in lines)
    assert list(tmp_path.iterdir()) == []
