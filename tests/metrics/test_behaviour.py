import numpy as np
import pytest
import torch

from mecheval.metrics import behaviour as module
from mecheval.metrics.behaviour import Behaviour, behaviour
from mecheval.metrics.statistics import interval
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.tasks import tasks

SETTINGS = [
    ("recall:pairs=3,vocab=12", "attention"),
    ("recall:pairs=4,vocab=12,queries=3,min_pairs=3", "attention"),
    ("recall:pairs=4,vocab=12,queries=2", "mamba:d_state=2"),
    ("treecall:terminals=8,nonterminals=3,max_len=24", "attention"),
    ("treecall:terminals=8,nonterminals=3,max_len=24", "based"),
]


def drawn(task, architecture="attention", n=37):
    """A model that prefers some answers to others, and documents."""
    config = ModelConfig(
        architecture=architecture, d_model=8, max_len=32, init_linear=5.0, init_embedding=20.0
    )
    built = tasks.build(task)
    return LanguageModel(config, built.vocab_size, seed=7).double(), built.documents(0, "dev", 0, n)


def scores_by_hand(model, docs):
    """Document by document, without padding, from the logits of all positions."""
    scores = {"loss": [], "accuracy": [], "likelihood": []}
    for row in range(len(docs)):
        with torch.no_grad():
            logits = model(
                torch.from_numpy(docs.tokens[row : row + 1, : docs.lengths[row]]).long()
            )[0].numpy()
        asked, answers = logits[docs.queries[row]], docs.answers[row]
        shares = np.exp(asked) / np.exp(asked).sum(axis=1, keepdims=True)
        likelihood = shares[np.arange(len(answers)), answers]
        scores["loss"].append(np.mean(-np.log(likelihood)))
        scores["likelihood"].append(np.mean(likelihood))
        scores["accuracy"].append(np.mean(asked.argmax(axis=1) == answers))
    return {name: np.array(values) for name, values in scores.items()}


@pytest.mark.parametrize(("task", "architecture"), SETTINGS)
def test_scores_are_those_of_each_document_by_itself(task, architecture):
    model, docs = drawn(task, architecture)
    expected, found = scores_by_hand(model, docs), behaviour(model, docs)
    assert 0 < expected["accuracy"].mean() < 1, "some are right and some are wrong"
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(found, name), values, rtol=1e-10, atol=1e-13)
        assert found.means()[name] == pytest.approx(values.mean(), rel=1e-10)


@pytest.mark.parametrize(("task", "architecture"), SETTINGS)
def test_it_does_not_matter_where_blocks_end(task, architecture, monkeypatch):
    model, docs = drawn(task, architecture)
    whole = behaviour(model, docs)
    for size in (1, 7, 36, 37):
        monkeypatch.setattr(module, "BLOCK", size)
        found = behaviour(model, docs)
        for name in ("loss", "accuracy", "likelihood"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(whole, name), rtol=1e-12, atol=1e-15
            )


def test_more_documents_than_a_block_are_all_scored():
    model, docs = drawn("recall:pairs=3,vocab=12", n=300)
    found = behaviour(model, docs)
    assert len(found.loss) == 300
    np.testing.assert_allclose(found.loss, scores_by_hand(model, docs)["loss"], rtol=1e-10)


def test_scores_are_double_whatever_the_model_is():
    """The likelihood of what a model is almost sure of differs from 1."""
    model, docs = drawn("recall:pairs=3,vocab=12")
    found = behaviour(model.float(), docs)
    assert found.loss.dtype == np.float64
    np.testing.assert_allclose(found.likelihood, np.exp(-found.loss), rtol=1e-15)


def test_scoring_leaves_no_gradient():
    model, docs = drawn("recall:pairs=3,vocab=12")
    behaviour(model, docs)
    assert all(weight.grad is None for weight in model.parameters())


def test_a_row_has_mean_interval_and_number_of_its_documents():
    rng = np.random.default_rng(0)
    found = Behaviour(rng.random(50), (rng.random(50) < 0.4).astype(float), rng.random(50))
    which = np.arange(50) % 3 == 0
    for chosen, n in ((None, 50), (which, 17)):
        rows = {row.metric: row for row in found.rows("test", 9, chosen)}
        assert list(rows) == ["loss", "accuracy", "likelihood"]
        for name, row in rows.items():
            values = getattr(found, name) if chosen is None else getattr(found, name)[chosen]
            assert (row.n, row.split, row.step, row.condition) == (n, "test", 9, "clean")
            assert row.value == pytest.approx(values.mean(), rel=1e-14)
            assert (row.low, row.high) == interval(values)
            assert row.to_dict()["metric"] == name


def test_there_is_no_row_for_no_documents():
    found = Behaviour(np.ones(4), np.ones(4), np.ones(4))
    assert found.rows("test_unseen", 1, np.zeros(4, bool)) == []
