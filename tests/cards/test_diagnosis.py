"""The diagnosis of trained mixers names the reason why they have not learned."""

import pytest
from support.unsolved_mixers import Near, SmallState

from mecheval.cards.advice import with_advice
from mecheval.cards.diagnosis import diagnose
from mecheval.models.registries import mixers
from mecheval.runs.experiment import Experiment
from mecheval.runs.run import run

pytestmark = pytest.mark.slow

FIELDS = {
    "task": "recall:pairs=4,vocab=16",
    "model.d_model": 32,
    "model.layers": 2,
    "model.max_len": 32,
    "model.init.linear": 3.0,
    "model.init.embedding": 5.0,
    "train.batch": 64,
    "train.lr": 3e-3,
    "eval.every": 50,
    "eval.documents": 256,
    "eval.grid": "none",
}


@pytest.fixture
def diagnosed(tmp_path, monkeypatch):
    """Return a function that trains an experiment and returns its diagnosis with advice."""
    own = {"Near": Near, "SmallState": SmallState}
    monkeypatch.setattr(mixers, "_targets", {**mixers._targets, **own})
    monkeypatch.setattr("mecheval.runs.run.check_third_party", lambda experiment: None)

    def train(architecture, **fields):
        more = {name.replace("__", "."): value for name, value in fields.items()}
        finished = run(
            Experiment.of({**FIELDS, "model.architecture": architecture, **more}), tmp_path
        )
        return with_advice([diagnose(finished, finished.load_model())], [])[0]

    return train


def test_a_window_of_three_tokens_cannot_reach(diagnosed):
    row = diagnosed("Near", train__steps=300)
    assert [(one["layer"], one["tokens"], one["possible"]) for one in row["reach"]] == [
        (None, 4, 4),
        (0, 2, 2),
        (1, 2, 2),
    ]
    by_distance = {group["first"]: group["value"] for group in row["by_distance"]}
    assert by_distance[3] > 0.3
    assert by_distance[9] < 0.1
    assert row["farther"]["value"] == pytest.approx(0.75, abs=0.05)
    assert row["next"][0]["try"] == "Widen the window, or add layers."
    assert len(row["next"]) == 1


def test_training_that_ended_while_the_loss_fell_was_too_short(diagnosed):
    short = {"train__steps": 130, "eval__every": 5, "train__schedule": "constant"}
    row = diagnosed("SmallState:d_key=8", train__lr=2e-3, **short)
    assert row["improving"]
    assert row["curve"]["value"] < -0.1
    assert row["test"]["value"] < 0.9
    assert row["next"][0]["try"] == "Train longer."


def test_few_documents_are_memorised(diagnosed):
    few = {"train__documents": 64, "task": "recall:pairs=4,vocab=64", "train__steps": 300}
    row = diagnosed("attention", **few)
    assert row["train"]["value"] == 1.0
    assert row["train"]["n"] == 64
    assert row["test"]["value"] < 0.3
    assert row["next"][0]["try"] == "Train on more documents."


def test_a_state_that_is_too_small_holds_fewer_pairs(diagnosed):
    size = {"task": "recall:pairs=4,vocab=32", "model__layers": 1, "train__steps": 700}
    row = diagnosed("SmallState:d_key=2", **size)
    shares = [one["value"] for one in row["by_pairs"]]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] - shares[-1] > 0.3
    assert "Give it a larger state, or more heads." in [step["try"] for step in row["next"]]
