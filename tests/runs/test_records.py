"""One table of fields for all records: a wrong field is named, and costs one run."""

import json
from pathlib import Path

import pytest
from support.made_runs import behaviour, experiment, finished, planned, verdict

from mecheval.cli import main
from mecheval.core.errors import StoreError
from mecheval.results.archive import Archive
from mecheval.results.keep import keep
from mecheval.results.parquet import read_parquet
from mecheval.results.plan import PLAN, Plan
from mecheval.results.table import Results
from mecheval.runs.files import Damaged, read_json, sha256, write_json
from mecheval.runs.records import LIST, NEEDED, OPTIONAL, REAL, check_records

pytestmark = pytest.mark.filterwarnings("ignore::mecheval.core.errors.DamagedRunWarning")
CURVE = [{"step": 50, "loss": 1.25, "accuracy": 0.5, "train_loss": 1.0}]
FILES = {"experiment": "json", "status": "json", "provenance": "json", "verdict": "json"}
FILES |= {"rows": "jsonl", "curve": "jsonl"}
CASES = [(kind, field, "missing") for kind in FILES for field in NEEDED[kind]]
for kind in FILES:
    for field in (*NEEDED[kind], *OPTIONAL.get(kind, {})):
        known = {**NEEDED[kind], **OPTIONAL.get(kind, {})}
        CASES += [(kind, field, "=x" if known[field] == LIST else [])]
        CASES += [(kind, field, 2**70)] * (known[field] <= REAL)
CASES += [("experiment", "task", "=x"), ("rows", "n", "=x"), ("curve", "step", 1.5)]


@pytest.fixture
def runs(tmp_path):
    for seed in (0, 1):
        rows = behaviour(0.9, 0.8)
        finished(tmp_path / "runs", experiment(seed=seed), rows, said=verdict(), curve=CURVE)
    return tmp_path / "runs"


def forge(folder, kind, field, value):
    """Change a field of a record, and mend the checksums."""
    path = folder / f"{kind}.{FILES[kind]}"
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    for record in records:
        fields = record.get("content", record)
        fields.pop(field, None)
        if value != "missing":
            fields[field] = value
    if FILES[kind] == "json":
        write_json(path, records[0]["content"])
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    names = [file.name for file in folder.iterdir() if file.name != "checksums.json"]
    sums = {name: sha256((folder / name).read_bytes()) for name in names}
    write_json(folder / "checksums.json", sums)


@pytest.mark.parametrize(("kind", "field", "value"), CASES)
def test_a_wrong_field_is_named_and_costs_one_run(kind, field, value, runs):
    folder = min(runs.iterdir())
    forge(folder, kind, field, value)
    results = Results(runs)
    bad, whole = sorted(results.runs(), key=lambda run: run["status"] != "damaged")
    assert (bad["status"], whole["status"]) == ("damaged", "done")
    assert bad["reason"].startswith(f"{folder} is damaged: {kind}.{FILES[kind]}")
    assert field in bad["reason"] or (kind, field) == ("experiment", "task")
    assert {row["key"] for row in results.rows()} == {whole["key"]}


@pytest.mark.parametrize(("field", "value"), [("seed", 7), ("train.lr", 0.5), ("key", "ab")])
def test_fields_that_are_not_those_of_the_key_are_damage(field, value, runs):
    """A changed seed would give two runs of one seed, of which a mean takes one."""
    folder = min(runs.iterdir())
    forge(folder, "experiment", field, value)
    (reason,) = Results(runs).damaged()
    assert reason.startswith(f"{folder} is damaged: ")
    assert "key" in reason


@pytest.mark.parametrize(
    ("field", "value"),
    [("model.layers", -1), ("model.architecture", "<b>"), ("status", "x"), ("seed", -1)],
)
def test_an_experiment_that_cannot_be_is_named(field, value, runs, capsys):
    folder = min(runs.iterdir())
    forge(folder, "experiment", field, value)
    assert main(["runs", str(runs), "--json"]) == 0
    reason = {r["status"]: r["reason"] for r in json.loads(capsys.readouterr().out)}["damaged"]
    assert reason.startswith(f"{folder} is damaged: experiment.json")


def test_a_status_that_no_finished_run_has_is_refused(runs):
    forge(min(runs.iterdir()), "status", "status", "killed")
    assert "status='killed'" in Results(runs).damaged()[0]


def test_records_of_two_runs_do_not_mix(runs):
    forge(min(runs.iterdir()), "status", "key", "other")
    assert "differ in key" in Results(runs).damaged()[0]


@pytest.mark.parametrize("name", ["rows.jsonl", "curve.jsonl"])
def test_a_record_that_is_there_twice_is_damage(name, runs):
    folder = min(runs.iterdir())
    kind, field = ("curve", "step") if name == "curve.jsonl" else ("rows", "metric")
    path = folder / name
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1])
    forge(folder, kind, "unknown_field", 1)  # which mends the checksums
    (reason,) = Results(runs).damaged()
    assert reason.startswith(f"{folder} is damaged: {name} has two records with {field}=")


def mend(folder):
    """Make study.json agree with the tables, as somebody who changes them would."""
    about = read_json(folder / "study.json")
    for name in about["sha256"]:
        about["sha256"][name] = sha256((folder / f"{name}.parquet").read_bytes())
    write_json(folder / "study.json", about)


QUERIES = {
    "runs": ["* exclude(key)", "* exclude(status)", "* exclude(folder)", "* exclude(task)"],
    "rows": ["* exclude(metric)", "* replace('x' as value)", "* replace('other' as key)"],
    "curves": ["* exclude(step)", "* exclude(key)", "* replace('x' as loss)"],
}
QUERIES["runs"] += [
    "* replace(1 as key)",
    "* replace('{' as verdict)",
    "* replace('[]' as verdict)",
]
QUERIES["runs"] += ["* replace('{}' as provenance)", "* replace(3 as status)"]


@pytest.mark.parametrize("table", ["runs", "rows", "curves"])
def test_a_table_with_a_line_twice_is_refused_by_every_command(table, runs, tmp_path):
    import duckdb

    kept, file = tmp_path / "kept", tmp_path / "kept" / f"{table}.parquet"
    keep([runs], kept)
    changed = tmp_path / "changed.parquet"
    lines = f"select * from '{file}'"
    duckdb.sql(f"copy ({lines} union all {lines}) to '{changed}' (format parquet)")
    changed.replace(file)
    mend(kept)
    with pytest.raises(StoreError, match=rf"{table}\.parquet has two records with"):
        Archive.read(kept)
    for command in ("runs", "results", "report", "claims"):
        assert main([command, str(kept)]) == 3


@pytest.mark.parametrize(
    ("table", "query"), [(table, query) for table in QUERIES for query in QUERIES[table]]
)
def test_a_changed_archive_is_refused_with_the_table_and_the_field(table, query, runs, tmp_path):
    import duckdb

    kept, file = tmp_path / "kept", tmp_path / "kept" / f"{table}.parquet"
    keep([runs], kept)
    changed = tmp_path / "changed.parquet"
    duckdb.sql(f"copy (select {query} from '{file}') to '{changed}' (format parquet)")
    changed.replace(file)
    mend(kept)
    field = query.removesuffix(")").removeprefix("* exclude(").split()[-1]
    with pytest.raises(StoreError, match=rf"kept is damaged: {table}\.parquet.*{field}"):
        Archive.read(kept)
    assert main(["runs", str(kept)]) == 3


@pytest.mark.parametrize("field", ["recipe", "scale", "sha256"])
def test_an_archive_without_a_field_is_refused(field, runs, tmp_path):
    keep([runs], tmp_path / "kept")
    about = read_json(tmp_path / "kept" / "study.json")
    write_json(tmp_path / "kept" / "study.json", {n: v for n, v in about.items() if n != field})
    with pytest.raises(StoreError, match=f"study.json has no field '{field}'"):
        Archive.read(tmp_path / "kept")


@pytest.mark.parametrize(
    ("field", "value"),
    [("recipe", 1), ("folders", [1]), ("folders", []), ("experiments", [1]), ("experiments", [{}])],
)
def test_a_plan_with_a_wrong_field_is_refused(field, value, tmp_path):
    planned(tmp_path, "demo", [experiment()])
    write_json(tmp_path / PLAN, {**read_json(tmp_path / PLAN), field: value})
    with pytest.raises(StoreError, match=f"{PLAN} is damaged: {PLAN}.*{field}"):
        Plan.read(tmp_path)


def test_every_kept_study_fits():
    """Old archives still open."""
    studies = [f.parent for f in Path(__file__).parents[2].glob("docs/results/*/study.json")]
    assert studies
    smallest = min(studies, key=lambda folder: (folder / "rows.parquet").stat().st_size)
    assert read_parquet(smallest / "runs.parquet")
    assert Archive.read(smallest)


def test_a_problem_in_the_last_of_many_records_is_seen():
    rows = [*behaviour(0.9, 0.8), {**behaviour(0.9, 0.8)[0], "n": 3.5}]
    with pytest.raises(Damaged, match=r"rows\.jsonl has n=3\.5; it must be an integer"):
        check_records("rows", rows, "rows.jsonl")
