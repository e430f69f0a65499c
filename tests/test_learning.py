"""Two trained models learn, and recall as the paper says (§4.2, §4.4)."""

import time
from pathlib import Path

import pytest

from mecheval.core.errors import StoreError
from mecheval.interventions.emergence import crossings
from mecheval.interventions.interchange import interchange
from mecheval.interventions.restoration import shares
from mecheval.interventions.verdict import verdict
from mecheval.runs.experiment import Experiment
from mecheval.runs.run import run

pytestmark = pytest.mark.slow

COMMON = {
    "task": "recall:pairs=4,vocab=64",
    "train.batch": 128,
    "train.stop": 0.95,
    "eval.documents": 512,
}
# the paper's start, 0.02, would stay at chance for thousands of steps
ATTENTION = {
    "model.architecture": "attention",
    "model.init.linear": 3.0,
    "model.init.embedding": 5.0,
}
ATTENTION |= {
    "train.lr": 1e-3,
    "train.schedule": "constant",
    "train.warmup": 0.05,
    "train.steps": 600,
    "eval.every": 50,
    "eval.grid_every": 1,
}
# six of six seeds reached 95 % within 4,000 steps, this one first; at batch 32 or 64 not all did
MAMBA = {
    "model.architecture": "mamba",
    "train.lr": 1e-2,
    "train.steps": 4000,
    "eval.every": 100,
    "seed": 5,
}


@pytest.fixture(scope="session")
def runs(tmp_path_factory, worker_id):
    """A folder that all workers share: what one trains, the others find."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "runs"


def finished(fields, folder: Path):
    for _ in range(600):
        try:
            return run(Experiment.of(COMMON | fields), folder)
        except StoreError:  # the other worker trains it
            time.sleep(1)
    raise AssertionError("ten minutes were not enough")


@pytest.fixture(scope="session")
def attention(runs):
    return finished(ATTENTION, runs)


@pytest.fixture(scope="session")
def mamba(runs):
    return finished(MAMBA, runs)


def grid(found, sites):
    model, experiment = found.load_model(), found.experiment
    return interchange(model, experiment.task, sites, seed=experiment.seed)


@pytest.mark.xdist_group("attention")
def test_attention_learns_to_recall_within_600_steps(attention):
    scores = attention.summary()["metrics"]
    assert attention.outcome["steps"] < 600
    assert scores["dev"]["accuracy"]["value"] >= 0.95
    assert scores["accuracy"]["low"] >= 0.9
    assert scores["likelihood"]["value"] > 0.8


@pytest.mark.xdist_group("mamba")
def test_mamba_learns_to_recall_within_4000_steps(mamba):
    scores = mamba.summary()["metrics"]
    assert mamba.outcome["steps"] < 4000
    assert scores["dev"]["accuracy"]["value"] >= 0.95
    assert scores["accuracy"]["low"] >= 0.9


@pytest.mark.xdist_group("attention")
def test_attention_recalls_by_induction(attention):
    found = grid(attention, ["blocks.1.block_in", "blocks.1.mixer_out"])
    assert shares(found)["restored", "blocks.1.block_in", "value"][0] >= 0.9
    answer = verdict(found, layers=2)
    assert (answer.mechanism, answer.layer, answer.role) == ("induction", 1, "value")
    assert answer.confidence > 0.99


@pytest.mark.xdist_group("attention")
def test_the_mechanism_of_attention_emerges_as_the_task_is_learned(attention):
    steps = crossings(attention.row_records)["blocks.1.block_in"]
    assert set(steps) == {"value"}, "at no other token, at no time"
    before = [row for row in attention.curve if row["step"] < steps["value"]]
    assert before, "it was not there from the start"
    assert all(row["accuracy"] < 0.6 for row in before)


@pytest.mark.xdist_group("mamba")
def test_mamba_recalls_by_direct_retrieval(mamba):
    found = grid(mamba, ["blocks.1.block_in", "blocks.1.mixer_out", "blocks.0.mixer.conv_out"])
    here = {
        role: share
        for (_, site, role), (share, _) in shares(found).items()
        if site == "blocks.1.block_in"
    }
    assert here["value"] <= 0.1
    assert here["query"] + here["key"] >= 0.5
    answer = verdict(found, layers=2)
    assert answer.mechanism == "direct retrieval"
    # four taps spread the key over four tokens: the output at one of them restores little
    inner = {
        role: share
        for (_, site, role), (share, _) in shares(found).items()
        if site.endswith("conv_out")
    }
    assert all(-0.1 < inner[role] < 0.5 for role in ("value", "next_key"))
    assert answer.convolution is None
