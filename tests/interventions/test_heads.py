"""Heads that match prefixes are found where they were put, and their ablation takes the answer."""

import pytest
import torch
from support import known_models
from support.hub_models import with_words

from mecheval.core.errors import InvalidInput
from mecheval.interventions.heads import attention_weights, heads
from mecheval.models.hf.lexicon import in_words
from mecheval.tasks.recall import Recall

TASK = known_models.TASK


def test_the_head_that_finds_is_the_one_that_matches_prefixes():
    found = heads(known_models.induction(), TASK, documents=32, top=1, draws=2)
    by = {(row.layer, row.head): row for row in found.rows}
    assert by[1, 0].document > 0.99
    assert by[0, 0].document < 0.3
    assert by[1, 0].repeated > 0.9 > by[0, 0].repeated
    assert found.top == ((1, 0),)
    clean, top = found.ablations[:2]
    assert (clean.accuracy, clean.n) == (1.0, 32)
    assert top.accuracy < 0.5
    assert top.high < clean.low
    assert "fall from 100%" in str(found)
    assert found.plot().axes
    assert found.ablation_frame()["ablated"].tolist() == ["none", "top", "random", "random"]


def test_weights_of_a_model_of_transformers_are_those_it_attends_with():
    model = with_words()
    tokens = in_words(Recall(pairs=3), model).documents(0, "test", 0, 4).tokens
    tokens = torch.from_numpy(tokens).long()
    before = model(tokens)
    weights = dict(attention_weights(model, tokens))
    assert [*weights] == [0, 1]
    for table in weights.values():
        assert torch.allclose(table.sum(dim=-1), torch.ones(()))
        assert not table.triu(1).any()
    assert torch.equal(model(tokens), before)  # it goes on as it did


def test_random_heads_are_others_of_the_same_layers():
    model = with_words()
    task = in_words(Recall(pairs=3), model)
    found = heads(model, task, documents=8, top=2, draws=4)
    top, others = found.top, [row.heads for row in found.ablations if row.ablated == "random"]
    assert len(others) == 4
    for drawn in others:
        assert not {*drawn} & {*top}
        assert sorted(layer for layer, _ in drawn) == sorted(layer for layer, _ in top)


def test_too_few_documents_are_refused():
    with pytest.raises(InvalidInput, match="are too few"):
        heads(known_models.induction(), TASK, documents=1)
