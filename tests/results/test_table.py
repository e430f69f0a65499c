"""Many runs as one table: none is left out, whatever became of it."""

import csv
import io
import json
import os
import shutil
import signal
from dataclasses import fields
from pathlib import Path

import pytest
from support.fault_injection import flip
from torch import nn

from mecheval.cli import main
from mecheval.core.errors import Interrupted, InvalidInput, RunFailed
from mecheval.metrics.measurement import Measurement
from mecheval.models.registries import mixers
from mecheval.results.columns import MEANINGS, plain_name
from mecheval.results.table import MEASURED, TABLES, Results
from mecheval.runs.experiment import Experiment, fields_of
from mecheval.runs.run import run

TINY = [
    "recall:pairs=2,vocab=8",
    "attention",
    "model.d_model=4",
    "train.documents=64",
    "train.steps=3",
    "eval.documents=8",
]
pytestmark = pytest.mark.filterwarnings("ignore::mecheval.core.errors.DamagedRunWarning")

STATUSES = ["done", "done", "diverged", "stopped", "error", "damaged"]
SMALL = {
    "task": "recall:pairs=2,vocab=8",
    "model.d_model": 4,
    "train.documents": 32,
    "train.steps": 3,
    "eval.every": 2,
    "eval.documents": 8,
}


class Breaks(nn.Module):
    """Fine until it has been asked often enough; then it is no number, or it raises."""

    def __init__(self, d_model, max_len, calls=1, how="nan"):
        super().__init__()
        self.calls, self.how = calls, how

    def forward(self, x):
        self.calls -= 1
        if self.calls >= 0:
            return x
        if self.how == "nan":
            return x * float("nan")
        raise RuntimeError("out of order")


class Stops:
    def start(self, experiment, step):
        pass

    def log(self, step, loss, row):
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    def finish(self, status):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One run of every kind, by name, and their folder."""
    out = tmp_path_factory.mktemp("runs")
    made = {
        "done": {"model.architecture": "attention"},
        "other": {"model.architecture": "attention", "seed": 1, "train.stop": 1.0},
        "diverged": {"model.architecture": "breaks:calls=3"},
        "stopped": {"model.architecture": "attention", "seed": 2},
        "error": {"model.architecture": "breaks:calls=2,how=raise"},
        "damaged": {"model.architecture": "attention", "seed": 3},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixers, "_targets", {**mixers._targets, "breaks": Breaks})
        patch.setattr("mecheval.runs.run.check_third_party", lambda experiment: None)
        experiments = {name: Experiment.of(SMALL | fields) for name, fields in made.items()}
        for name in ("done", "other", "diverged", "damaged"):
            run(experiments[name], out)
        with pytest.raises(Interrupted):
            run(experiments["stopped"], out, watchers=[Stops()])
        with pytest.raises(RunFailed, match="out of order"):
            run(experiments["error"], out)
    rows = out / experiments["damaged"].name / "rows.jsonl"
    rows.write_bytes(rows.read_bytes().replace(b"accuracy", b"Accuracy", 1))
    (out / "notes.txt").write_text("not a run")
    (out / "figures").mkdir()
    return out, experiments


@pytest.fixture
def results(folder):
    return Results(folder[0])


def test_no_run_is_left_out_and_each_has_its_status(folder, results):
    runs = {row["key"]: row for row in results.runs()}
    assert sorted(row["status"] for row in results.runs()) == sorted(STATUSES)
    for name, experiment in folder[1].items():
        if name != "damaged":
            found = runs[experiment.key]
            assert found["status"] == ("done" if name == "other" else name)
            assert {field: found[field] for field in experiment.fields()} == experiment.fields()


def test_a_row_says_how_far_it_came_and_why_it_ended(folder, results):
    out, experiments = folder
    runs = {row["status"]: row for row in results.runs()}
    assert [runs[status]["steps"] for status in ("done", "stopped", "diverged")] == [3, 2, 2]
    assert runs["diverged"]["reason"] == "step 2: loss is nan"
    assert "RuntimeError: out of order" in runs["error"]["reason"]
    assert "rows.jsonl does not match its checksum" in runs["damaged"]["reason"]
    assert runs["damaged"]["key"] is None
    assert runs["stopped"]["folder"] == str(out / f"{experiments['stopped'].name}.partial")
    assert runs["done"]["reason"] is None


def test_only_finished_runs_are_measured(folder, results):
    keys = {folder[1][name].key for name in ("done", "other")}
    assert {row["key"] for row in results.rows()} == keys
    for row in results.rows():
        assert row["status"] == "done"
        assert {
            "metric",
            "value",
            "n",
            "low",
            "high",
            "split",
            "task",
            "model.d_model",
            "seed",
        } <= row.keys()
    tests = [
        row
        for row in results.rows()
        if row["split"] == "test" and row["metric"] == "accuracy" and not row["corrupted"]
    ]
    assert [row["n"] for row in tests] == [8, 8]


def test_curves_have_the_steps_of_every_finished_run(folder, results):
    steps = {}
    for row in results.curves():
        steps.setdefault(row["key"], []).append(row["step"])
    assert steps == {
        folder[1]["done"].key: [2, 3],
        folder[1]["other"].key: [2, 3],
        folder[1]["diverged"].key: [2],
    }
    diverged = [row for row in results.curves() if row["status"] == "diverged"]
    assert not any({"accuracy", "likelihood"} & row.keys() for row in diverged)


def test_tables_are_frames(results):
    assert len(results.df("runs")) == len(STATUSES)
    assert len(results.df()) == len(results.rows())
    assert len(results.df("curves")) == 5
    assert {"architecture", "lr", "seed", "train_steps"} <= set(results.df("runs").columns)
    assert "train.lr" in results.df("runs", dotted=True).columns
    with pytest.raises(InvalidInput, match="table='rnus' must be one of runs, rows, curves"):
        results.df("rnus")


def test_questions_in_sql(results):
    counts = results.sql("select status, count(*) as n from runs group by status order by status")
    assert dict(zip(counts["status"], counts["n"], strict=True)) == {
        name: STATUSES.count(name) for name in STATUSES
    }
    found = results.sql(
        "select seed, value from rows where metric = 'loss' and split = 'test' order by seed"
    )
    assert list(found["seed"]) == [0, 1]
    expected = {
        row["seed"]: row["value"]
        for row in results.rows()
        if (row["metric"], row["split"]) == ("loss", "test")
    }
    assert list(found["value"]) == [expected[0], expected[1]]
    joined = results.sql(
        'select max(c.step) as last from curves c join runs r using (key) where r."seed" = 1'
    )
    assert list(joined["last"]) == [3]


def test_fields_have_plain_columns_in_sql_and_dotted_ones_still_work(results):
    plain = results.sql("select architecture, lr, seed from runs where lr is not null")
    dotted = results.sql('select "model.architecture", "train.lr", seed from runs where lr > 0')
    assert len(plain) == len(dotted) > 1
    assert plain.to_numpy().tolist() == dotted.to_numpy().tolist()
    assert not [name for name in results.sql("from rows").columns if "." in name]


@pytest.mark.parametrize("table", TABLES)
def test_plain_names_are_unique_and_lose_nothing(table, results):
    plain, dotted = results.df(table), results.df(table, dotted=True)
    assert plain.columns.is_unique
    names = [plain_name(name) for name in fields_of()]
    assert len({*names, *MEANINGS[table]}) == len(names) + len(MEANINGS[table])
    assert plain.shape == dotted.shape


def test_every_column_is_listed_with_its_meaning(results, folder, capsys):
    lines = results.columns()
    for table in TABLES:
        named = [line["column"] for line in lines if line["table"] == table]
        assert named == list(results.df(table).columns)
    assert [line for line in lines if not line["meaning"]] == []
    assert main(["results", str(folder[0]), "--columns"]) == 0
    out = capsys.readouterr().out
    assert "architecture" in out
    assert "highest learning rate" in out
    assert main(["results", str(folder[0]), "--columns", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == lines


def test_the_hints_of_the_database_are_passed_on(results):
    with pytest.raises(InvalidInput, match=r'Candidate bindings: .*"architecture"') as refused:
        results.sql("select architectur from rows")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        "select * from read_text('/etc/passwd')",
        "select * from glob('/*')",
        "copy (select 1) to 'stolen.csv'",
        "copy runs to 'stolen.parquet'",
        "export database 'stolen'",
        "attach 'stolen.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set log_query_path = 'stolen.log'",
    ],
)
def test_sql_reads_and_writes_no_file(query, results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="is refused"):
        results.sql(query)
    assert list(tmp_path.iterdir()) == []


def test_sql_sees_no_variable_of_this_process(results):
    secret = results.df("runs")
    assert len(secret)
    for name in ("secret", "frame"):
        with pytest.raises(InvalidInput, match="is refused"):
            results.sql(f"from {name}")


def test_sql_changes_no_run(folder):
    Results(folder[0]).sql("create or replace table more as select 1")
    assert len(Results(folder[0]).runs()) == len(STATUSES)


@pytest.mark.parametrize("query", ["selct 1", "select * from nowhere", "select colour from runs"])
def test_a_question_that_cannot_be_meant_is_refused(query, results):
    with pytest.raises(InvalidInput, match="is refused"):
        results.sql(query)


def test_a_folder_without_runs_has_none(tmp_path):
    found = Results(tmp_path)
    assert (found.runs(), found.rows(), found.curves()) == ([], [], [])


def test_what_is_no_folder_is_refused(tmp_path):
    for path in (tmp_path / "nowhere", Path(__file__)):
        with pytest.raises(InvalidInput, match="must be a folder with runs"):
            Results(path)


def printed(capsys, *arguments):
    words = [str(argument) for argument in arguments]
    assert main([*words, "--allow-damaged"] if words[0] == "results" else words) == 0
    return capsys.readouterr().out


def test_runs_are_printed_for_programs_and_for_people(folder, results, capsys, monkeypatch):
    assert json.loads(printed(capsys, "runs", folder[0], "--json")) == results.runs()
    monkeypatch.setenv("COLUMNS", "500")
    lines = printed(capsys, "runs", folder[0]).splitlines()
    assert sorted(line.split()[0] for line in lines[1:] if line.split()) == sorted(STATUSES)
    assert "step 2: loss is nan" in next(line for line in lines if line.startswith("diverged"))


def test_results_are_printed_as_csv(folder, results, capsys):
    found = list(csv.DictReader(io.StringIO(printed(capsys, "results", folder[0], "--csv"))))
    assert len(found) == len(results.rows())
    for line, row in zip(found, results.rows(), strict=True):
        assert float(line["value"]) == row["value"]
        assert (line["key"], line["metric"], line["task"]) == (
            row["key"],
            row["metric"],
            row["task"],
        )
        assert (line["site"], line["stop"]) == (
            row["site"] or "",
            "1.0" if row["seed"] == 1 else "",
        )


def test_results_are_printed_as_json(folder, results, capsys):
    found = json.loads(printed(capsys, "results", folder[0], "--json"))
    rows = [{plain_name(name): value for name, value in row.items()} for row in results.rows()]
    wanted = {name for row in rows for name in row}
    assert found == [{name: row.get(name) for name in found[0]} for row in rows]
    assert set(found[0]) == wanted
    counts = json.loads(
        printed(capsys, "results", folder[0], "--json", "--sql", "select count(*) as n from runs")
    )
    assert counts == [{"n": len(STATUSES)}]


def test_results_are_written_as_parquet(folder, results, tmp_path):
    import duckdb

    file = tmp_path / "rows.parquet"
    assert main(["results", str(folder[0]), "--parquet", str(file), "--allow-damaged"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
    found = duckdb.sql(f"select key, metric, split, value from '{file}'").fetchall()
    assert found == [
        (row["key"], row["metric"], row["split"], row["value"]) for row in results.rows()
    ]


def test_results_are_a_table_for_people(folder, capsys):
    out = printed(
        capsys,
        "results",
        folder[0],
        "--sql",
        "select status, steps from runs where status = 'stopped'",
    )
    assert [line.split() for line in out.splitlines()] == [["status", "steps"], ["stopped", "2"]]


@pytest.mark.parametrize("name", ["weights.safetensors", "optimiser.safetensors"])
def test_a_run_with_broken_tensors_is_damaged(name, folder, tmp_path, capsys):
    """Nothing but `verify` would notice before the tensors are used."""
    for kind in ("done", "other"):
        shutil.copytree(folder[0] / folder[1][kind].name, tmp_path / folder[1][kind].name)
    file = tmp_path / folder[1]["done"].name / name
    file.write_bytes(flip(file.read_bytes(), 1000))
    assert main(["runs", str(tmp_path), "--json"]) == 0
    by_status = {run["status"]: run for run in json.loads(capsys.readouterr().out)}
    assert (
        by_status["damaged"]["reason"]
        == f"{file.parent} is damaged: {name} does not match its checksum"
    )
    assert by_status["done"]["key"] == folder[1]["other"].key


@pytest.mark.parametrize(
    "name", ["checksums.json", "status.json", "experiment.json", "rows.jsonl", "curve.jsonl"]
)
@pytest.mark.parametrize("how", ["missing", "changed"])
def test_a_damaged_run_is_named_and_hides_no_other(name, how, folder, tmp_path):
    for kind in ("done", "other"):
        shutil.copytree(folder[0] / folder[1][kind].name, tmp_path / folder[1][kind].name)
    file = tmp_path / folder[1]["done"].name / name
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes().replace(b"0", b"1", 1))
    found = {row["status"]: row for row in Results(tmp_path).runs()}
    assert found["damaged"]["folder"] == str(file.parent)
    assert name in found["damaged"]["reason"]
    assert found["done"]["key"] == folder[1]["other"].key
    assert set(Results(tmp_path).sql("from rows")["key"]) == {folder[1]["other"].key}


def test_a_folder_without_measurements_has_an_empty_table(tmp_path, capsys):
    assert main(["results", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_parquet_that_cannot_be_written_is_one_line(tmp_path, capsys):
    assert main(["run", *TINY, "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert (
        main(["results", str(tmp_path), "--parquet", str(tmp_path / "nowhere" / "x.parquet")]) == 3
    )
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_measurement_is_whole_in_the_table():
    assert sorted(MEASURED) == sorted(field.name for field in fields(Measurement))
