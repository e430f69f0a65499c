"""A third-party metric, from the function to the rows."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest
import torch

from mecheval.core import registry
from mecheval.core.errors import CheckFailed, InvalidInput
from mecheval.interventions.interchange import interchange
from mecheval.metrics.behaviour import behaviour
from mecheval.metrics.readout import Reader, register_metric
from mecheval.metrics.registry import metrics
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.tasks.recall import Recall

pytestmark = pytest.mark.usefixtures("own_names")


def rank(logits, answers):
    """Count the tokens that are at least as likely as the right one."""
    return (logits >= logits.gather(1, answers[:, None])).sum(dim=1)


def drawn(queries=1):
    task = Recall(pairs=4, vocab=12, queries=queries)
    config = ModelConfig("attention", d_model=8, max_len=32, init_linear=5.0, init_embedding=20.0)
    return LanguageModel(config, task.vocab_size, seed=7), task


def test_it_is_the_mean_over_a_documents_queries():
    register_metric("rank")(rank)
    model, task = drawn(queries=3)
    docs = task.documents(0, "test", 0, 20)
    with torch.no_grad():
        tokens, queries = (torch.from_numpy(a).long() for a in (docs.tokens, docs.queries))
        logits = model(tokens, queries).numpy()
    right = np.take_along_axis(logits, docs.answers[..., None], axis=2)
    expected = (logits >= right).sum(axis=2).mean(axis=1)
    found = behaviour(model, docs)
    np.testing.assert_array_equal(found.others["rank"], expected)
    (row,) = [row for row in found.rows("test", 5) if row.metric == "rank"]
    assert (row.value, row.n, row.step) == (pytest.approx(expected.mean()), 20, 5)
    assert row.low < row.value < row.high


def test_it_is_no_part_of_the_training_curve():
    model, task = drawn()
    docs = task.documents(0, "dev", 0, 20)
    alone = behaviour(model, docs).means()
    register_metric("rank")(rank)
    assert behaviour(model, docs).means() == alone


def test_every_cell_of_a_grid_has_it():
    @register_metric("likelihood_again")
    def likelihood(logits, answers):
        return logits.softmax(1).gather(1, answers[:, None])[:, 0]

    model, task = drawn()
    grid = interchange(model, task, ["blocks.1.block_in"], ["key", "query"], documents=20)
    found = {(row.metric, row.condition, row.role): row.value for row in grid.rows()}
    conditions = [("clean", None), ("corrupt", None), ("restored", "key"), ("restored", "query")]
    for condition, role in conditions:
        assert found["likelihood_again", condition, role] == pytest.approx(
            found["likelihood", condition, role], rel=1e-5
        )


@pytest.mark.parametrize("name", ["likelihood", "loss", "share", "rank"])
def test_a_name_that_is_taken_is_refused(name):
    register_metric("rank")(rank)
    with pytest.raises(InvalidInput, match=f"name='{name}' is taken"):
        register_metric(name)(drawn)


@pytest.mark.parametrize(
    ("metric", "problem"),
    [
        (lambda logits, answers: logits.mean(), "a number for each answer"),
        (lambda logits, answers: [0.0] * len(answers), "a number for each answer"),
        (lambda logits, answers: logits[:, 0] / 0, "finite numbers"),
    ],
)
def test_a_metric_that_does_not_return_numbers_is_refused(metric, problem):
    register_metric("mine")(metric)
    model, task = drawn()
    with pytest.raises(CheckFailed, match=f"metric 'mine': must return .*{problem}"):
        behaviour(model, task.documents(0, "test", 0, 20))
    with pytest.raises(CheckFailed, match=f"metric 'mine': must return .*{problem}"):
        interchange(model, task, ["blocks.1.block_in"], documents=20)


def test_a_broken_model_is_not_the_metrics_fault():
    register_metric("logit_of_padding")(lambda logits, answers: logits[:, 0])
    model, task = drawn()
    torch.nn.init.constant_(model.embedding.weight, torch.nan)
    loss = behaviour(model, task.documents(0, "test", 0, 20)).loss
    assert np.isnan(loss).all(), "the run reports that it diverged"


def test_a_metric_comes_by_entry_point(monkeypatch):
    point = EntryPoint(name="peak", value="torch:amax", group="mecheval.metrics")
    points = {"mecheval.metrics": [point]}
    monkeypatch.setattr(registry, "entry_points", lambda group: points.get(group, []))
    monkeypatch.setattr(metrics, "_entry_points_read", False)
    assert metrics.names() == ["peak"]
    assert metrics.get("peak") is torch.amax


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_read_as_the_same_numbers_in_float32(dtype):
    logits = torch.randn(2, 6, 50, generator=torch.Generator().manual_seed(0)).to(dtype)
    answers = np.arange(6, dtype=np.int32)
    clean, other = logits
    found = Reader.of(clean, answers).read(other)
    exact = Reader.of(clean.float(), answers).read(other.float())
    assert all(np.array_equal(found[name], exact[name]) for name in exact)
