"""The newest two checkpoints are kept; one that is damaged anywhere is seen, said and not used."""

import logging
import shutil

import pytest
import torch
from support.fault_injection import Reaper, Stopped, flip, result, small, spread, truncate

from mecheval.runs.checkpoint import Checkpoint, load_checkpoint, newest_step, save_checkpoint
from mecheval.runs.experiment import Settings
from mecheval.runs.files import write_json
from mecheval.runs.run import run

STEPS = 8
EXPERIMENT = small(train_steps=STEPS)
STOPPED = 6  # the checkpoints of steps 5 and 6 are there


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    return result(run(EXPERIMENT, tmp_path_factory.mktemp("alone")).folder)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    out = tmp_path_factory.mktemp("stopped")
    with pytest.raises(Stopped):
        run(EXPERIMENT, out, Settings(save_every=0.0), [Reaper(STOPPED + 1)])
    return out / f"{EXPERIMENT.name}.partial"


@pytest.fixture
def folder(stopped, tmp_path):
    """A copy of the stopped run's checkpoints."""
    return shutil.copytree(stopped / "checkpoints", tmp_path / "checkpoints")


def checkpoint(step):
    return Checkpoint(
        {"a": torch.full((4,), float(step))}, {"step": step, "losses": [0.1 + 0.2], "curve": []}
    )


def steps(folder):
    return sorted(int(path.stem) for path in folder.glob("*.json"))


def test_it_comes_back_to_the_bit(tmp_path):
    save_checkpoint(tmp_path, checkpoint(3))
    found, problems = load_checkpoint(tmp_path)
    assert (found.numbers, problems) == (checkpoint(3).numbers, [])
    assert found.tensors["a"].equal(torch.full((4,), 3.0))


def test_the_newest_two_are_kept_and_nothing_else(tmp_path):
    (tmp_path / "0000000002.json.tmp").write_bytes(b"left by a kill")
    for step in (1, 2, 5, 11):
        save_checkpoint(tmp_path, checkpoint(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{step:010d}.{kind}" for step in (5, 11) for kind in ("json", "safetensors")
    ]
    assert newest_step(tmp_path) == 11


def test_where_there_is_none_there_is_no_problem(tmp_path):
    assert load_checkpoint(tmp_path / "checkpoints") == (None, [])
    assert newest_step(tmp_path / "checkpoints") == 0


def test_files_of_other_names_are_no_checkpoints(tmp_path):
    save_checkpoint(tmp_path, checkpoint(3))
    for name in ("²²²²²²²²²²", "٣٣٣٣٣٣٣٣٣٣", "x", "-000000009", "9", ""):
        write_json(tmp_path / f"{name}.json", {"numbers": {}, "tensors_sha256": ""})
    assert load_checkpoint(tmp_path)[0].numbers["step"] == newest_step(tmp_path) == 3


@pytest.mark.parametrize("note", [{}, {"numbers": {}}, {"numbers": None}, {"tensors_sha256": None}])
def test_a_note_that_lacks_something_is_damage(note, tmp_path):
    save_checkpoint(tmp_path, checkpoint(3))
    save_checkpoint(tmp_path, checkpoint(4))
    write_json(tmp_path / "0000000004.json", note)
    found, (problem,) = load_checkpoint(tmp_path)
    assert found.numbers["step"] == 3
    assert problem.startswith("checkpoint 4: 0000000004.")


@pytest.mark.parametrize("damaged", [(9,), (6, 9)])
def test_damaged_ones_do_not_push_out_the_whole_ones_that_are_made_after_them(damaged, tmp_path):
    for step in (6, 9):
        save_checkpoint(tmp_path, checkpoint(step))
    for step in damaged:
        (tmp_path / f"{step:010d}.safetensors").write_bytes(b"damaged")
    for step in (7, 8):
        save_checkpoint(tmp_path, checkpoint(step))
        found, problems = load_checkpoint(tmp_path)
        assert (found.numbers["step"], problems) == (step, [])
    assert steps(tmp_path) == [7, 8]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, truncate])
@pytest.mark.parametrize(("kind", "most"), [("json", 10_000), ("safetensors", 400)])
def test_wherever_it_is_damaged_the_previous_one_is_used(damage, kind, most, folder):
    path = folder / f"{STOPPED:010d}.{kind}"
    content, (whole, _) = path.read_bytes(), load_checkpoint(folder)
    assert whole.numbers["step"] == STOPPED
    missed = []
    for place in spread(content, most):
        path.write_bytes(damage(content, place))
        found, problems = load_checkpoint(folder)
        if not problems:  # 1e-5 and 1E-5 are the same number, and so is a last line without its end
            assert found.numbers == whole.numbers
            missed.append(place)
        else:
            assert found.numbers["step"] == STOPPED - 1
            assert problems[0].startswith(f"checkpoint {STOPPED}: {STOPPED:010d}.")
    assert len(missed) <= (0 if kind == "safetensors" else 20)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, truncate])
@pytest.mark.parametrize("kind", ["json", "safetensors"])
def test_a_run_goes_on_from_the_previous_one_says_so_and_ends_in_the_same_bytes(
    damage, kind, stopped, wanted, tmp_path, caplog
):
    name = f"{STOPPED:010d}.{kind}"
    content = (stopped / "checkpoints" / name).read_bytes()
    places = [place for place in spread(content, 12) if place < len(content) - 1]
    for place in places:
        out = tmp_path / str(place)
        copy = shutil.copytree(stopped, out / stopped.name)
        (copy / "checkpoints" / name).write_bytes(damage(content, place))
        caplog.clear()
        watcher = Reaper()
        with caplog.at_level(logging.WARNING, "mecheval"):
            assert result(run(EXPERIMENT, out, watchers=[watcher]).folder) == wanted
        assert watcher.began == STOPPED - 1
        (line,) = caplog.messages
        assert f"checkpoint {STOPPED}: {STOPPED:010d}." in line
        assert "an earlier one is used" in line
    assert len(places) >= 11


@pytest.mark.parametrize("kind", ["json", "safetensors"])
def test_with_no_whole_one_left_a_run_starts_again_and_ends_in_the_same_bytes(
    kind, stopped, wanted, tmp_path, caplog
):
    copy = shutil.copytree(stopped, tmp_path / stopped.name)
    for path in (copy / "checkpoints").glob(f"*.{kind}"):
        path.write_bytes(flip(path.read_bytes(), 100))
    watcher = Reaper()
    assert result(run(EXPERIMENT, tmp_path, watchers=[watcher]).folder) == wanted
    assert watcher.began == 0
    assert [
        f"checkpoint {step}: " in line for step, line in zip((6, 5), caplog.messages, strict=True)
    ] == [True] * 2


@pytest.mark.parametrize("kind", ["json", "safetensors"])
def test_half_a_checkpoint_does_not_count(kind, stopped, wanted, tmp_path):
    copy = shutil.copytree(stopped, tmp_path / stopped.name)
    (copy / "checkpoints" / f"{STOPPED:010d}.{kind}").unlink()
    watcher = Reaper()
    assert result(run(EXPERIMENT, tmp_path, watchers=[watcher]).folder) == wanted
    assert watcher.began == STOPPED - 1


def test_a_whole_one_is_gone_on_from_without_a_word(stopped, wanted, tmp_path, caplog):
    shutil.copytree(stopped, tmp_path / stopped.name)
    watcher = Reaper()
    assert result(run(EXPERIMENT, tmp_path, watchers=[watcher]).folder) == wanted
    assert watcher.began == STOPPED
    assert caplog.messages == []
