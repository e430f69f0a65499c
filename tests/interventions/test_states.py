"""The pairs held by memories with known weights, and by models that learned nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.task_facts import relative_error
from torch import nn

from mecheval.core.errors import InterventionError, InvalidInput
from mecheval.interventions import states as module
from mecheval.interventions.states import held_pairs, states
from mecheval.models.config import ModelConfig
from mecheval.models.language_model import LanguageModel
from mecheval.models.site import record, sites
from mecheval.tasks import tasks
from mecheval.tasks.documents import FIRST_SYMBOL
from mecheval.tasks.recall import Recall

TASKS = [
    "recall:pairs=4,vocab=32",
    "recall:pairs=6,vocab=32,min_pairs=2",
    "recall:pairs=4,vocab=32,queries=3",
    "recall:pairs=4,vocab=32,query=value",
]


def memory(task: Recall, places: int | None = None) -> LanguageModel:
    """Return a delta rule that writes each complete pair at a place of the shown token.

    With fewer places than symbols, symbols share them: what was there is replaced.
    """
    size = task.vocab
    config = ModelConfig(architecture="delta_net:d_conv=2", d_model=size, layers=1, max_len=64)
    model = LanguageModel(config, task.vocab_size).double()
    block, mixer = model.blocks[0], model.blocks[0].mixer
    block.norm1 = nn.Identity()
    shown, recalled, half = (torch.zeros(size, size), torch.zeros(size, size), size // 2)
    for i in range(half):
        symbols = [task.symbols(role)[i] - FIRST_SYMBOL for role in ("key", "value")]
        shown[i % (places or half), symbols[0]] = recalled[i, symbols[1]] = 20
    present, before = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])
    first, second = (
        (present, before) if task.query == "value" else (before, present)
    )  # a value stands behind its key
    with torch.no_grad():
        model.embedding.weight.copy_(torch.cat([torch.zeros(FIRST_SYMBOL, size), torch.eye(size)]))
        for name, matrix, tap in (
            ("q", shown, present),
            ("k", shown, first),
            ("v", recalled, second),
        ):
            getattr(mixer, f"{name}_proj").weight.copy_(matrix)
            getattr(mixer, f"{name}_conv").weight.copy_(tap.expand(size, 1, 2))
        mixer.b_proj.weight.fill_(40)
        mixer.o_proj.weight.copy_(torch.eye(size))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("text", TASKS)
def test_a_memory_with_a_place_for_every_key_holds_every_pair_from_its_end_to_the_query(text):
    task = tasks.build(text)
    held = held_pairs(memory(task), task, 0, documents=400)
    assert (held.accuracy == 1).all()
    assert held.age.tolist() == list(range(2 * task.pairs))
    assert_near(held.control, held)


@pytest.mark.slow
@pytest.mark.parametrize("text", TASKS[:3])
def test_a_memory_with_one_place_holds_the_last_pair_alone(text):
    task = tasks.build(text)
    held = held_pairs(memory(task, places=1), task, 0, documents=400)
    assert (held.accuracy[:2] == 1).all(), "until the next one is complete"
    assert (held.accuracy[2:] == 0).all()


def test_what_is_held_counts_the_pairs_whose_keys_have_not_come_to_the_same_place():
    task = tasks.build("recall:pairs=6,vocab=32")
    held = held_pairs(memory(task, places=4), task, 0, documents=800)
    docs, kept = task.documents(0, "test", 0, 800)[400:], {}
    for i in range(400):
        keys = docs.tokens[i, 1 : docs.roles["divider"][i] : 2]
        mine = (docs.roles["key"][i] - 1) // 2
        for later in range(mine, 6):
            places = (keys[mine + 1 : later + 1] - FIRST_SYMBOL) % 4
            if later:
                kept.setdefault(2 * (later - mine), []).append(
                    (keys[mine] - FIRST_SYMBOL) % 4 not in places
                )
    for age, expected in kept.items():
        assert held.accuracy[age] == pytest.approx(np.mean(expected))
        assert held.n[age] == held.n[age + 1] == len(expected)
    assert 0.1 < held.accuracy[-1] < 0.5


class Telling(Recall):
    """Recall that shows the answer in the place of the query."""

    def documents(self, *which):
        docs = super().documents(*which)
        tokens = docs.tokens.copy()
        tokens[np.arange(len(docs)), docs.roles["query"]] = docs.answer
        return docs.with_tokens(tokens)


def test_what_the_query_knows_by_itself_is_in_the_control():
    task = Telling(pairs=4, vocab=8)  # every document has every value
    model = memory(task)
    mixer = model.blocks[0].mixer
    with (
        torch.no_grad()
    ):  # values are places of their own: a state says which values it has seen, and no pairs
        for name in "qk":
            getattr(mixer, f"{name}_proj").weight.copy_(mixer.v_proj.weight)
            getattr(mixer, f"{name}_conv").weight.copy_(mixer.v_conv.weight)
    held = held_pairs(model, task, 0, documents=400)
    assert (held.accuracy == 1).all()
    assert (held.control[6:] == 1).all(), "the other document has seen all values, too"
    assert (held.control[:2] < 1).all()


def test_what_passes_the_state_by_is_not_held():
    task = Telling(pairs=4, vocab=32)
    model = LanguageModel(
        ModelConfig(architecture="mamba", d_model=32, layers=1, max_len=32), task.vocab_size
    )
    mixer = model.blocks[0].mixer
    with torch.no_grad():  # B = 0: nothing is ever written, and D brings the answer to the output
        mixer.x_proj.weight[mixer.dt_rank : mixer.dt_rank + mixer.d_state] = 0
    held = held_pairs(model, task, 0, documents=200)
    assert held.accuracy == pytest.approx(held.chance)
    assert held.control == pytest.approx(held.chance)


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture", ["delta_net:d_conv=0", "delta_net", "mamba", "mamba:d_conv=0"]
)
def test_a_model_that_learned_nothing_holds_nothing(architecture):
    task = tasks.build("recall:pairs=6,vocab=512")
    model = LanguageModel(
        ModelConfig(architecture=architecture, d_model=16, max_len=32), task.vocab_size
    )
    for layer in (0, 1):
        held = held_pairs(model, task, layer, documents=800)
        assert_near(held.accuracy, held)
        assert_near(held.control, held)


def assert_near(found, held):
    """Assert chance level, within the spread of so many documents."""
    spread = np.sqrt(held.chance * (1 - held.chance) / held.n)
    assert (np.abs(found - held.chance) <= 4 * spread).all(), (found, held)


class Misled(Recall):
    """Recall that takes any pair for the one that the query asks for."""

    def documents(self, *which):
        docs = super().documents(*which)
        key = 1 + 2 * np.random.default_rng(0).integers(self.pairs, size=len(docs), dtype=np.int32)
        answers = np.take_along_axis(docs.tokens, key[:, None] + 1, axis=1)
        return replace(docs, answers=answers, roles={**docs.roles, "key": key, "value": key + 1})


def test_a_memory_says_nothing_of_pairs_that_the_query_does_not_ask_for():
    task = Misled(pairs=4, vocab=32)
    held = held_pairs(memory(task), task, 0, documents=800)
    assert_near(held.accuracy, held)


@pytest.mark.parametrize("text", TASKS)
def test_ages_and_chance_are_those_of_the_documents(text):
    task = tasks.build(text)
    held = held_pairs(memory(task), task, 0, documents=101)
    docs, chances = task.documents(0, "test", 0, 101)[50:], {}
    for i in range(len(docs)):
        complete = max(docs.roles["key"][i], docs.roles["value"][i])
        recalled = (
            range(1, docs.roles["divider"][i], 2)
            if task.query == "value"
            else range(2, docs.roles["divider"][i], 2)
        )
        for step in range(complete, docs.roles["query"][i]):
            values = sum(at <= step for at in recalled)
            if values > 1:
                chances.setdefault(step - complete, []).append(1 / values)
    assert held.age.tolist() == sorted(chances)
    assert held.n.tolist() == [len(chances[age]) for age in held.age]
    assert held.chance == pytest.approx([np.mean(chances[age]) for age in held.age])


MODELS = [
    "delta_net:heads=2",
    "delta_net:d_conv=0",
    "delta_net:d_conv=16",
    "mamba:d_state=3",
    "mamba:d_state=3,d_conv=0",
]


FEW = 100_000  # bytes: two or three documents at a time


def drawn(architecture, task):
    config = ModelConfig(
        architecture=architecture, d_model=8, max_len=32, init_linear=5.0, init_embedding=20.0
    )
    return LanguageModel(config, task.vocab_size, seed=2).double()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", MODELS)
def test_it_does_not_matter_where_blocks_end_nor_how_few_tokens_are_read_again(
    architecture, monkeypatch
):
    task = tasks.build("recall:pairs=6,vocab=16,min_pairs=2")
    model = drawn(architecture, task)
    whole, again = (held_pairs(model, task, 1, documents=17) for _ in range(2))
    small = held_pairs(model, task, 1, documents=17, memory=FEW)
    monkeypatch.setattr(module, "WIDTHS", ())
    slow = held_pairs(model, task, 1, documents=17)
    for other in (again, small, slow):
        for name in ("age", "accuracy", "control", "chance", "n"):
            np.testing.assert_allclose(getattr(other, name), getattr(whole, name), rtol=1e-12)
    assert not any(site.used for site in sites(model).values())


@pytest.mark.parametrize(
    ("architecture", "tokens"),
    [("mamba:d_conv=0", 1), ("mamba:d_conv=2", 2), ("mamba", 4), ("delta_net:d_conv=16", 16)],
)
def test_as_many_tokens_are_read_again_as_the_convolution_sees(architecture, tokens, monkeypatch):
    task, lengths, added = tasks.build("recall:pairs=12,vocab=32"), [], module._output
    monkeypatch.setattr(
        module, "_output", lambda *inputs: lengths.append(inputs[1].shape[1]) or added(*inputs)
    )
    held_pairs(drawn(architecture, task), task, 0, documents=4)
    assert lengths[-1] == tokens


@pytest.mark.slow
@pytest.mark.parametrize("architecture", MODELS)
def test_states_are_those_of_each_document_by_itself_after_each_of_its_tokens(architecture):
    task = tasks.build("recall:pairs=6,vocab=16,min_pairs=2")
    model, docs = drawn(architecture, task), task.documents(0, "dev", 0, 9)
    name = "blocks.1.mixer.state"
    for budget, sizes in ((2**28, {9}), (FEW, {1, 2, 3}), (1, {1})):
        found = list(states(model, docs, 1, memory=budget))
        assert {len(block) for block, _ in found} <= sizes
        rows = [(block, S, i) for block, S in found for i in range(len(block))]
        assert [int(block.index[i]) for block, _, i in rows] == docs.index.tolist()
        for block, S, i in rows:
            for length in (1, int(block.lengths[i]) // 2, int(block.lengths[i])):
                with record(model, [name]) as seen, torch.no_grad():
                    model(torch.from_numpy(block.tokens[i : i + 1, :length]).long())
                assert relative_error(S[i, :length], seen[name][0]) <= 1e-10
    assert list(states(model, docs[:0], 1)) == []


@pytest.mark.parametrize(
    ("architecture", "task", "options", "line"),
    [
        ("mamba", "treecall", {"layer": 0}, "task=Treecall must have documents of several pairs"),
        (
            "mamba",
            "recall:pairs=1",
            {"layer": 0},
            "task=Recall must have documents of several pairs",
        ),
        (
            "mamba",
            "recall",
            {"layer": 2},
            "layer=2 of mamba has no recurrent state; choose one of 0, 1",
        ),
        (
            "attention",
            "recall",
            {"layer": 0},
            "layer=0 of attention has no recurrent state; no layer has one",
        ),
        ("mamba", "recall", {"layer": 0, "documents": 3}, "documents=3 must be at least 4"),
    ],
)
def test_what_cannot_be_meant_is_refused(architecture, task, options, line):
    task = tasks.build(task)
    with pytest.raises(InvalidInput) as error:
        held_pairs(drawn(architecture, task), task, **options)
    assert str(error.value).startswith(line)


def test_a_model_that_is_not_finite_holds_nothing():
    task = tasks.build("recall:pairs=4,vocab=16")
    model = drawn("mamba", task)
    with torch.no_grad():
        model.blocks[0].mixer.D.fill_(torch.nan)
    with pytest.raises(InterventionError, match="states of layer 1 are not finite"):
        held_pairs(model, task, 1, documents=4)
