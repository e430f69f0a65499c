"""An archive says the same as its runs, and is complete or refused."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal
from support.made_runs import behaviour, experiment, finished, grid, planned, verdict

from mecheval.cli import main
from mecheval.core.errors import InvalidInput, StoreError
from mecheval.report.drawing import draw
from mecheval.report.page import page
from mecheval.report.study import Study
from mecheval.report.verdicts import verdicts
from mecheval.results.archive import NEXT
from mecheval.results.keep import keep
from mecheval.results.plan import Plan
from mecheval.results.table import Results

CURVE = [
    {
        "step": 50,
        "loss": 1.25,
        "accuracy": 0.5,
        "train_loss": 1.0,
        "gradient_norm": 0.3,
        "learning_rate": 1e-3,
    }
]


@pytest.fixture
def runs(tmp_path):
    """Two runs are done, one diverged, one is missing; one field is missing in some."""
    done = [experiment(seed=0), experiment("mamba", seed=1, train__stop=0.99)]
    lost, missing = experiment("hyena"), experiment("based")
    planned(tmp_path / "runs", "figure3", [*done, lost, missing], "small")
    for one in done:
        rows = behaviour(0.9, 1 / 3) + grid(0.8, 0.1, {"key": 0.0, "value": 1.0, "query": 0.0})
        finished(tmp_path / "runs", one, rows, said=verdict(), curve=CURVE)
    finished(tmp_path / "runs", lost, [], "diverged", "step 7: loss is nan")
    return tmp_path / "runs"


@pytest.fixture
def kept(runs, tmp_path):
    keep([runs], tmp_path / "kept")
    return tmp_path / "kept"


def test_a_study_of_what_is_kept_is_that_of_the_runs(runs, kept):
    before, after = Study.read(runs), Study.read(kept)
    assert (after.recipe, after.scale, after.counts) == ("figure3", "small", before.counts)
    for name in ("runs", "rows", "curves"):
        ours, theirs = (
            getattr(study, name).drop(columns="folder", errors="ignore")
            for study in (before, after)
        )
        assert_frame_equal(ours, theirs[list(ours.columns)], check_dtype=False, rtol=1e-6)
    assert dict(before.facts) == dict(after.facts)


@pytest.mark.slow
def test_figures_and_verdicts_of_what_is_kept_are_those_of_the_runs(runs, kept):
    before, after = Study.read(runs), Study.read(kept)
    for found in (lambda study: draw(study, "3").table(), verdicts):
        assert_frame_equal(found(before), found(after), check_dtype=False, rtol=1e-5)
    assert "4 planned runs" in page(after)


def test_whole_numbers_stay_whole_and_fields_exact(runs, kept):
    before, after = (
        {run["key"]: run for run in Plan.read(folder).experiments} for folder in (runs, kept)
    )
    assert after == before
    assert {type(run["train.steps"]) for run in after.values()} == {int}
    assert {run["train.lr"] for run in after.values()} == {1e-3}


def test_questions_in_sql_are_answered(kept):
    answer = Results(kept).sql(
        "select count(*) as n from rows where metric = 'accuracy' and split = 'test'"
    )
    assert answer["n"].tolist() == [2]


@pytest.mark.parametrize("name", ["runs.parquet", "rows.parquet", "curves.parquet", "study.json"])
def test_a_changed_byte_is_refused(kept, name):
    content = bytearray((kept / name).read_bytes())
    content[len(content) // 2] ^= 1
    (kept / name).write_bytes(bytes(content))
    with pytest.raises(StoreError, match="is damaged"):
        Study.read(kept)


def test_a_table_that_is_gone_is_refused(kept):
    (kept / "rows.parquet").unlink()
    with pytest.raises(StoreError, match=r"rows\.parquet cannot be read"):
        Study.read(kept)


@pytest.mark.parametrize("moves", range(5))
def test_a_process_killed_between_two_tables_leaves_the_new_ones(runs, kept, monkeypatch, moves):
    """After any number of moves; the next process that keeps finishes the work."""
    finished(runs, experiment("based"), behaviour(0.7, 1 / 3), said=verdict(), curve=CURVE)
    replace, left = Path.replace, iter(range(moves))

    def killed(path, target):
        if path.parent.name == NEXT and next(left, None) is None:
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", killed)
    with suppress(KeyboardInterrupt):
        keep([runs], kept)
    monkeypatch.undo()
    assert Study.read(kept).counts["done"] == 3
    keep([kept], kept)
    assert Study.read(kept).counts["done"] == 3
    assert len(list(kept.iterdir())) == 4


def test_what_was_kept_stays_until_all_that_is_new_is_whole(runs, kept, monkeypatch):
    monkeypatch.setattr("mecheval.results.archive.sha256", lambda content: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        keep([runs], kept)
    monkeypatch.undo()
    assert Study.read(kept).counts["done"] == 2
    assert len(list(kept.iterdir())) == 4


def test_runs_of_two_machines_become_one_study(runs, kept, tmp_path):
    """The run that is missing here is done there; what both have counts once, with its numbers."""
    there = tmp_path / "there"
    mine, based = experiment(seed=0), experiment("based")
    planned(there, "figure3", [mine, based], "small")
    finished(there, mine, behaviour(0.4, 0.5), said=verdict(), curve=CURVE)
    finished(there, based, behaviour(0.7, 1 / 3), said=verdict(), curve=CURVE)
    keep([kept, there], kept)
    before, after = Study.read(runs), Study.read(kept)
    assert after.counts == {"done": 3, "diverged": 1, "failed": 0, "missing": 0}
    assert after.runs["key"].tolist() == before.runs["key"].tolist()
    accuracy = after.rows[(after.rows["metric"] == "accuracy") & (after.rows["split"] == "test")]
    assert dict(zip(accuracy["key"], accuracy["value"].round(6), strict=True))[mine.key] == 0.333333
    assert set(accuracy["key"]) == {
        run["key"] for run in Results(kept).runs() if run["status"] == "done"
    }
    assert len(after.curves) == 3
    twice = keep([kept, kept, there], tmp_path / "twice")
    assert (len(twice.runs), len(twice.rows), len(twice.curves)) == (4, len(after.rows), 3)


def test_runs_made_one_by_one_come_to_the_study_that_plans_them_and_to_no_other(
    runs, kept, tmp_path
):
    finished(
        tmp_path / "alone", experiment("based"), behaviour(0.7, 1 / 3), said=verdict(), curve=CURVE
    )
    keep([kept, tmp_path / "alone"], kept)
    study = Study.read(kept)
    assert (study.recipe, study.counts["done"], study.counts["missing"]) == ("figure3", 3, 0)
    finished(tmp_path / "alone", experiment("based", seed=7), behaviour(0.7, 1 / 3))
    with pytest.raises(
        InvalidInput,
        match=r"without a sweep, and must not be mixed with runs of figure3 at scale small",
    ):
        keep([kept, tmp_path / "alone"], kept)
    assert Study.read(kept).counts["done"] == 3


def test_studies_of_different_sweeps_are_not_mixed(runs, tmp_path):
    planned(tmp_path / "other", "figure3", [experiment("based")], "quick")
    finished(tmp_path / "other", experiment("based"), behaviour(0.7, 1 / 3))
    with pytest.raises(
        InvalidInput, match=r"figure3 at scale quick, and must not be mixed with .* scale small"
    ):
        keep([runs, tmp_path / "other"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_it_may_be_kept_again_but_not_over_something_else(runs, kept, tmp_path):
    keep([runs], kept)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    for out in (tmp_path / "mine", tmp_path / "mine" / "thesis.tex", runs):
        with pytest.raises(InvalidInput, match="must be a new folder"):
            keep([runs], out)
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_runs_are_not_made_where_a_study_is_kept(kept, capsys):
    assert main(["sweep", "run", "figure3", "--scale", "quick", "--out", str(kept)]) == 2
    assert "is a kept study" in capsys.readouterr().err
    assert sorted(file.name for file in kept.iterdir()) == [
        "curves.parquet",
        "rows.parquet",
        "runs.parquet",
        "study.json",
    ]


def test_the_command_says_what_it_kept(runs, tmp_path, capsys):
    assert main(["keep", str(runs), "--out", str(tmp_path / "out"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["runs"], said["rows"]) == (4, len(Results(runs).rows()))
    shutil.rmtree(runs)  # nothing of it is needed any more
    assert main(["figure", "3", "--runs", str(tmp_path / "out"), "--json"]) == 0
    assert main(["keep", str(tmp_path), "--out", str(tmp_path / "none")]) == 2
    assert "has no runs" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("how", ["deleted", "a link to itself"])
def test_a_kept_study_without_its_record_is_damaged_and_not_an_empty_folder(tmp_path, how):
    one = experiment()
    finished(tmp_path / "runs", one, behaviour(0.9, 0.8))
    keep([tmp_path / "runs"], tmp_path / "kept")
    (tmp_path / "kept" / "study.json").unlink()
    if how != "deleted":
        (tmp_path / "kept" / "study.json").symlink_to("study.json")
    with pytest.raises(StoreError, match=r"kept.*study\.json"):
        Results(tmp_path / "kept").runs()
