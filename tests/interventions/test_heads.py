"""Heads that match prefixes are found where they were put, and their ablation takes the answer."""

import pytest
import torch
from support import known_models
from support.hub_models import with_words

from mecheval.core.errors import InvalidInput
from mecheval.interventions.head_ablation import ablate, head_means
from mecheval.interventions.head_scores import attention_weights, score_repeated
from mecheval.interventions.heads import heads
from mecheval.metrics.behaviour import BLOCK
from mecheval.models.build import build_model
from mecheval.models.config import ModelConfig
from mecheval.models.hf.lexicon import in_words
from mecheval.models.inputs import Batch
from mecheval.models.site import record
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
    assert "right answers are 100%" in str(found)
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


def test_beside_another_mixer_the_heads_of_attention_are_ablated():
    config = ModelConfig("hf-config:falcon_h1,heads=2", d_model=32)
    model = build_model(config, vocab_size=TASK.vocab_size)
    docs = TASK.documents(0, "test", 0, 8)
    batch, means = Batch.of(docs), head_means(model, docs, [0])
    name = "blocks.0.mixer.attention.head_out"
    ends = ["blocks.0.mixer.mamba2_out", "blocks.0.mixer.attention_out"]
    with torch.no_grad(), record(model, [name, *ends]) as seen:
        model(batch.tokens, batch.at)
    assert torch.allclose(means[0], seen[name].double().mean(dim=0))
    with record(model, ends) as after:
        ablate(model, docs, "top", 0, ((0, 1),), means)
    assert [torch.equal(after[end], seen[end]) for end in ends] == [True, False]


def test_a_mean_is_that_of_all_documents_and_of_none_behind_its_end():
    model, task = known_models.random("attention"), Recall(pairs=4, min_pairs=2, vocab=16)
    docs = task.documents(0, "test", 0, BLOCK + 40)
    name, batch = "blocks.0.mixer.head_out", Batch.of(docs)
    with torch.no_grad(), record(model, [name]) as seen:
        model(batch.tokens, batch.at)
    mean = head_means(model, docs, [0])[0]
    for place in (3, docs.tokens.shape[1] - 1):
        there = seen[name][torch.from_numpy(docs.lengths > place), place].double()
        assert len(there) < len(docs) or place == 3
        assert torch.allclose(mean[place], there.mean(dim=0), atol=1e-6)


def test_what_has_nothing_to_score_is_refused():
    docs = TASK.documents(0, "test", 0, 2)
    with pytest.raises(InvalidInput, match="2 are needed"):
        score_repeated(known_models.induction(), TASK, docs, 1, 0)
    without = build_model(ModelConfig("hf-config:mamba"), vocab_size=TASK.vocab_size)
    with pytest.raises(InvalidInput, match="no attention whose weights can be read"):
        heads(without, TASK, documents=2)
