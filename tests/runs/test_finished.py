"""A finished run is read as it was written, or refused with the name of the file that is not."""

import json
import shutil

import pytest
import torch
from support.fault_injection import flip, small, spread, truncate

from mecheval.cli import main
from mecheval.core.errors import StoreError
from mecheval.results.table import Results
from mecheval.runs.files import sha256, write_json
from mecheval.runs.finished import Run
from mecheval.runs.run import run

pytestmark = pytest.mark.filterwarnings("ignore::mecheval.core.errors.DamagedRunWarning")

EXPERIMENT = small(train_steps=4, eval_every=2)
WORDS = [
    f"{name}={value}"
    for name, value in EXPERIMENT.fields().items()
    if name not in ("task", "model.architecture")
]
COMMAND = ["run", EXPERIMENT.task_spec, EXPERIMENT.model.architecture, *WORDS, "--json"]
FILES = [
    "checksums.json",
    "curve.jsonl",
    "experiment.json",
    "optimiser.safetensors",
    "provenance.json",
    "rows.jsonl",
    "status.json",
    "verdict.json",
    "weights.safetensors",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(EXPERIMENT, tmp_path_factory.mktemp("runs")).folder


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    return run(small(train_lr=1e9, train_warmup=0.0), tmp_path_factory.mktemp("runs"))


@pytest.fixture
def copied(finished, tmp_path):
    return Run(shutil.copytree(finished, tmp_path / finished.name))


def blamed(folder):
    try:
        Run(folder).verify()
    except StoreError as error:
        return str(error)
    return ""


def forge(folder, name, content):
    """Another file, with a checksum that agrees."""
    (folder / name).write_bytes(content)
    sums = {
        file: sha256((folder / file).read_bytes()) for file in FILES if file != "checksums.json"
    }
    write_json(folder / "checksums.json", sums)
    return Run(folder)


def test_a_folder_has_what_the_docstring_says_and_nothing_else(finished):
    assert sorted(path.name for path in finished.iterdir()) == FILES
    assert [path.name for path in finished.parent.iterdir()] == [EXPERIMENT.name]


def test_everything_can_be_read(copied):
    copied.verify()
    assert copied.status == "done"
    assert copied.key == copied.record["key"] == EXPERIMENT.key
    assert copied.experiment == EXPERIMENT
    assert copied.outcome["steps"] == 4
    assert [row["step"] for row in copied.curve] == [2, 4]
    assert {(row.split, row.metric) for row in copied.rows} >= {
        ("test", "loss"),
        ("dev", "accuracy"),
    }


def test_the_weights_are_those_of_the_measured_model(copied):
    model = copied.load_model()
    from mecheval.metrics.behaviour import behaviour

    docs = EXPERIMENT.task.documents(EXPERIMENT.seed, "test", 0, EXPERIMENT.eval.documents)
    with torch.no_grad():
        found = behaviour(model, docs).means()
    rows = [row for row in copied.rows if row.split == "test" and row.corrupted is None]
    assert found == {row.metric: row.value for row in rows}


def test_an_opened_run_intervenes_as_the_run_did(copied):
    assert copied.verdict.to_dict() == copied.verdict_record
    grid = copied.intervene(documents=EXPERIMENT.eval.grid_documents)
    again = [row for row in grid.rows(4) if row.n]
    assert again == [row for row in copied.rows if row.corrupted]
    assert grid.verdict() == copied.verdict


def test_a_run_that_was_just_made_has_the_rows_of_its_file(tmp_path):
    made = run(EXPERIMENT, tmp_path)
    assert made.rows == Run(made.folder).rows


def test_the_summary_has_every_metric_with_n_and_interval_and_is_json(copied):
    summary = json.loads(json.dumps(copied.summary()))
    assert list(summary)[:5] == ["key", "status", "folder", "steps", "metrics"]
    for metrics in (summary["metrics"], summary["metrics"]["unseen"], summary["metrics"]["dev"]):
        for metric in ("loss", "accuracy", "likelihood"):
            found = metrics[metric]
            assert found["low"] <= found["value"] <= found["high"]
            assert 1 <= found["n"] <= EXPERIMENT.eval.documents
    assert summary["metrics"]["accuracy"]["n"] == EXPERIMENT.eval.documents


def test_a_diverged_run_has_no_weights_and_says_so(diverged):
    assert diverged.status == "diverged"
    with pytest.raises(StoreError, match="has no weights: the run is diverged"):
        diverged.load_model()
    assert diverged.summary()["metrics"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [flip, truncate])
def test_damage_anywhere_in_any_file_is_seen_and_the_file_is_named(name, damage, copied):
    path = copied.folder / name
    content = path.read_bytes()
    unseen = []
    for place in spread(content, 200):
        path.write_bytes(damage(content, place))
        if name not in blamed(copied.folder):
            unseen.append(place)
    # the end of the last line of the checksums means nothing; all else has a checksum
    assert unseen == ([len(content) - 1] if name == "checksums.json" and damage is truncate else [])


@pytest.mark.parametrize("name", FILES)
def test_the_command_refuses_a_finished_run_that_is_damaged(name, copied, capsys):
    path = copied.folder / name
    for content in (flip(path.read_bytes(), 50), path.read_bytes()[:50], None):
        path.unlink() if content is None else path.write_bytes(content)
        before = {file.name: file.read_bytes() for file in copied.folder.iterdir()}
        assert main([*COMMAND, "--out", str(copied.folder.parent)]) == 3
        captured = capsys.readouterr()
        assert captured.out == ""
        (line,) = captured.err.splitlines()
        assert line.startswith("error: ")
        assert name in line
        assert {file.name: file.read_bytes() for file in copied.folder.iterdir()} == before
    assert [path.name for path in copied.folder.parent.iterdir()] == [EXPERIMENT.name]


def test_the_command_shows_a_finished_run_that_is_whole_and_leaves_it_alone(copied, capsys):
    before = {
        file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in copied.folder.iterdir()
    }
    assert main([*COMMAND, "--out", str(copied.folder.parent)]) == 0
    assert json.loads(capsys.readouterr().out) == copied.summary()
    assert {
        file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in copied.folder.iterdir()
    } == before


@pytest.mark.parametrize(
    "name", ["checksums.json", "curve.jsonl", "experiment.json", "rows.jsonl", "status.json"]
)
@pytest.mark.parametrize("content", [b"{}", None])
def test_a_run_whose_rows_cannot_be_read_is_listed_as_damaged_and_hides_no_other(
    name, content, copied, finished
):
    shutil.copytree(finished, copied.folder.parent / "whole")
    (copied.folder / name).unlink() if content is None else (copied.folder / name).write_bytes(
        content
    )
    results = Results(copied.folder.parent)
    damaged, whole = results.runs()
    assert (damaged["status"], whole["status"]) == ("damaged", "done")
    assert name in damaged["reason"]
    assert results.rows() == Results(finished.parent).rows()
    assert results.curves() == Results(finished.parent).curves()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("status.json", b"{}"),
        ("status.json", b"[" * 100_000),
        ("status.json", b'{"content": {"status": NaN}}'),
        ("status.json", b'{"content": []}'),
        ("status.json", b"\xff"),
        ("provenance.json", b"null"),
        ("experiment.json", b'{"content": {}}'),
        ("rows.jsonl", b"[" * 100_000 + b"\n"),
        ("rows.jsonl", b"{}\n"),
        ("rows.jsonl", b"1\n"),
        (
            "rows.jsonl",
            b'{"split": "test", "metric": "loss", "value": NaN, "n": 1, "low": 0, "high": 1}\n',
        ),
        ("curve.jsonl", b"\xff\n"),
        ("curve.jsonl", b"{}{}\n"),
        ("verdict.json", b"{}"),
    ],
    ids=range(14),
)
def test_a_checksum_that_agrees_does_not_make_nonsense_readable(name, content, copied):
    found = forge(copied.folder, name, content)
    found.verify()
    with pytest.raises(StoreError, match=f"is damaged: {name}"):
        _ = found.outcome, found.record, found.provenance, found.rows, found.curve, found.verdict
    assert isinstance(Results(copied.folder.parent).runs(), list)


NUMBERS = {"metric": "likelihood", "value": 0.5, "n": 1, "low": 0.0, "high": 1.0}
RESTORED = {
    **NUMBERS,
    "split": "test",
    "step": 4,
    "corrupted": "key",
    "layer": None,
    "condition": "restored",
    "site": "embed_out",
    "role": "key",
}


@pytest.mark.parametrize(
    "row",
    [
        {**NUMBERS, "split": "tset"},
        {**NUMBERS, "split": ["test"]},
        {**NUMBERS, "split": "test", "metric": []},
        *(
            {name: value for name, value in RESTORED.items() if name != gone}
            for gone in ("condition", "site", "role")
        ),
        {**RESTORED, "site": {}},
        {**RESTORED, "role": []},
    ],
    ids=range(8),
)
def test_a_row_that_we_did_not_write_is_refused_in_a_summary(row, copied, capsys):
    """The command shows a summary."""
    content = (copied.folder / "rows.jsonl").read_bytes()
    found = forge(copied.folder, "rows.jsonl", content + json.dumps(row).encode() + b"\n")
    with pytest.raises(StoreError, match=r"is damaged: rows\.jsonl"):
        found.summary()
    assert main([*COMMAND, "--out", str(copied.folder.parent)]) == 3
    assert capsys.readouterr().out == ""


def test_a_row_that_could_be_ours_is_in_the_summary(copied):
    content = (copied.folder / "rows.jsonl").read_bytes()
    found = forge(
        copied.folder, "rows.jsonl", content + json.dumps(RESTORED).encode() + b"\n"
    ).summary()
    assert found["restored"]["embed_out"]["key"]["likelihood"]["value"] == 0.5


@pytest.mark.parametrize("missing", ["status.json", "rows.jsonl", "experiment.json"])
def test_checksums_that_leave_a_file_out_do_not_make_a_whole_run(missing, copied):
    sums = {
        file: sha256((copied.folder / file).read_bytes())
        for file in FILES
        if file not in (missing, FILES[0])
    }
    write_json(copied.folder / "checksums.json", sums)
    with pytest.raises(StoreError, match=f"{missing} does not belong to it"):
        Run(copied.folder).verify()


def test_weights_that_are_none_are_refused_however_their_checksum_agrees(copied):
    found = forge(copied.folder, "weights.safetensors", b"\x80\x04N.")
    with pytest.raises(StoreError, match="not a safetensors file"):
        found.load_model()


@pytest.mark.parametrize("kind", ["nothing", "file", "link", "empty"])
def test_what_is_no_folder_of_a_run_is_refused(kind, tmp_path, finished):
    path = tmp_path / "run"
    if kind == "file":
        path.write_bytes(b"")
    elif kind == "link":
        path.symlink_to(finished)
    elif kind == "empty":
        path.mkdir()
    with pytest.raises(StoreError, match="is not a complete run"):
        Run(path).verify()
