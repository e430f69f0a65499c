"""`mecheval figure` and `mecheval report`: what they write, print and refuse."""

import json

import pytest
from support.made_runs import behaviour, experiment, finished, grid, planned

from mecheval.cli import main


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = experiment()
    planned(tmp_path / "runs", "figure3", [one])
    rows = behaviour(0.9, 0.8) + grid(0.8, 0.1, {"key": 0.0, "value": 1.0, "query": 0.0})
    finished(tmp_path / "runs", one, rows)
    return tmp_path / "runs"


def test_a_figure_is_written_as_png_and_pdf_and_named(sweep, capsys, tmp_path):
    assert main(["figure", "3", "--runs", str(sweep)]) == 0
    assert capsys.readouterr().out.split() == ["figure3-quick.png", "figure3-quick.pdf"]
    assert (tmp_path / "figure3-quick.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figure3-quick.pdf").read_bytes().startswith(b"%PDF")


def test_json_is_the_table(sweep, capsys):
    assert main(["figure", "figure3", "--runs", str(sweep), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert {line["panel"]: line["value"] for line in table}["Restored @ Value"] == pytest.approx(
        0.8
    )


@pytest.mark.slow
def test_a_report_is_written_into_the_folder_or_where_it_is_asked_for(sweep, capsys, tmp_path):
    assert main(["report", str(sweep)]) == 0
    assert main(["report", str(sweep), "--out", "here.html", "--json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == str(sweep / "report.html")
    assert json.loads(printed[1])["done"] == 1
    assert (sweep / "report.html").read_bytes() == (tmp_path / "here.html").read_bytes()


@pytest.mark.slow
def test_several_folders_are_one_report_here_with_the_counts_of_all(sweep, capsys, tmp_path):
    every = [experiment(), experiment("mamba")]
    planned(tmp_path / "more", "demo", every)
    finished(tmp_path / "more", every[0], behaviour(0.9, 0.8))
    assert main(["report", str(sweep), "more", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "report": "report.html",
        "partial": True,
        "done": 2,
        "diverged": 0,
        "failed": 0,
        "missing": 1,
    }
    assert "2 studies" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not (sweep / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["figure", "emergance", "--runs", "runs"], "did you mean 'emergence'"),
        (["figure", "7", "--runs", "runs"], "is a sweep of figure3"),
        (["figure", "3", "--runs", "nowhere"], "must be a folder"),
        (["figure", "3", "--runs", "."], "has no runs"),
        (["figure", "3", "--runs", "runs", "--out", "a.gif"], "must end in .png"),
        (["report", "nowhere"], "must be a folder"),
        (["report", "runs", "nowhere"], "must be a folder"),
        (["report", "runs", "."], "DIR='.' has no runs"),
        (["report", "runs", "runs/"], "DIR='runs' and DIR='runs' are both 'figure3 · quick'"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_2(sweep, capsys, arguments, said, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before
