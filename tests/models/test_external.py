"""A stranger's whole model is trained, intervened on and judged as ours are."""

import copy
import logging

import pytest
import torch
from support import known_models as hand_set
from support.fault_injection import Reaper, Stopped, result, small
from torch import nn

from mecheval.core.errors import InterventionError, InvalidInput
from mecheval.interventions.grid import layer_of, layers_of
from mecheval.interventions.grid_eval import judgement, lacking
from mecheval.interventions.interchange import interchange, stream_sites
from mecheval.interventions.states import held_pairs, states
from mecheval.interventions.token_mixing import looks
from mecheval.interventions.verdict import judged, verdict
from mecheval.models.build import build_model
from mecheval.models.config import ModelConfig
from mecheval.models.cost import describe_model
from mecheval.models.external import Foreign
from mecheval.models.registries import models
from mecheval.models.site import Site, patch, record, sites
from mecheval.runs.experiment import Settings
from mecheval.runs.run import fit, run
from mecheval.runs.trained import trained
from mecheval.tasks.recall import Recall

TASK = Recall(pairs=4, vocab=16)
D, VOCAB = 8, TASK.vocab_size


class Small(nn.Module):
    """Two layers, a head tied to the embedding, and nothing that is ours."""

    sites = {  # noqa: RUF012
        "blocks.0.block_in": "output of embedding",
        "blocks.0.mixer_out": "output of gru",
        "blocks.1.block_in": "output of stream",
        "blocks.1.mixer_out": "output of attention",
    }

    def __init__(self, vocab_size: int, d_model: int, layers: int, max_len: int, *, heads: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.gru = nn.GRU(d_model, d_model, batch_first=True)
        self.stream, self.norm = nn.Identity(), nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, heads, batch_first=True)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = self.stream(x + self.gru(x)[0])
        y = self.norm(x)
        future = torch.ones(2 * tokens.shape[1:], dtype=torch.bool).triu(1)
        return self.head(x + self.attention(query=y, key=y, value=y, attn_mask=future, need_weights=False)[0])


@pytest.fixture
def named(monkeypatch):
    """`small` is the name of a model, until the test ends."""
    models.names()
    monkeypatch.setattr(models, "_targets", {**models._targets, "small": Small})


@pytest.fixture
def module():
    torch.manual_seed(0)
    return Small(VOCAB, D, 2, TASK.max_len)


class Plain(nn.Module):
    """Our backbone, of which a stranger knows its submodules alone."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, tokens):
        return self.inner(tokens)


def mapped(model):
    """Our stream's sites, by our submodules."""
    places = {"block_in": "input of {}", "mixer_in": "input of {}.mixer", "mixer_out": "output of {}.mixer"}
    places |= {"mlp_in": "input of {}.mlp", "mlp_out": "output of {}.mlp", "block_out": "output of {}"}
    names = (name.rpartition(".") for name in stream_sites(model))
    found = {f"{block}.{point}": places[point].format(f"inner.{block}") for block, _, point in names}
    return Foreign(Plain(model), {**found, "final_in": "input of inner.norm"})


@pytest.mark.parametrize("architecture", ["attention", "based", "mamba"])
@pytest.mark.parametrize("condition", ["restored", "ablated", "control"])
def test_ours_as_a_strangers_gives_the_same_grid(architecture, condition):
    ours = hand_set.random(architecture, TASK, dtype=torch.float64)
    asked = {"sites": [*stream_sites(ours), "final_in"], "conditions": [condition], "documents": 12}
    native, foreign = (interchange(model, TASK, **asked) for model in (ours, mapped(ours)))
    assert native.cells.keys() == foreign.cells.keys()
    pairs = [(native.clean, foreign.clean), (native.corrupt, foreign.corrupt)]
    pairs += [(native.cells[cell], foreign.cells[cell]) for cell in native.cells]
    for one, other in pairs:
        for metric in one:
            assert other[metric] == pytest.approx(one[metric], abs=1e-9, nan_ok=True), metric
    moved = [
        cell for cell, values in native.cells.items() if abs(values["logit"] - native.corrupt["logit"]).max() > 0.1
    ]
    assert len({site for _, site, _ in moved}) > 5, "otherwise nothing was compared"


def test_the_verdict_on_ours_as_a_strangers_is_the_same():
    ours = hand_set.induction()
    task = hand_set.TASK
    native = verdict(interchange(ours, task, documents=32), 2)
    model = mapped(ours)
    found, said = judgement(model, task, "short", 32, seed=0, step=7)
    assert {row.site for row in found} == {None, "blocks.1.block_in", "blocks.1.mixer_out"}
    assert (said.mechanism, said.layer, said.role, said.confidence) == ("induction", 1, "value", 1.0)
    assert said.mechanism == native.mechanism
    assert said.evidence["blocks.1.block_in at value"] == pytest.approx(
        native.evidence["blocks.1.block_in at value"], abs=0.05
    )
    assert lacking(model) is None


def test_sites_that_a_module_has_are_known_by_their_own_names():
    ours = hand_set.random("mamba", TASK)
    model = Foreign(ours)
    assert list(sites(model)) == list(sites(ours))
    assert model.takes_at
    names = ["blocks.0.mixer.conv_out", "blocks.1.block_in"]
    native, foreign = (interchange(one, TASK, names, documents=8) for one in (ours, model))
    for cell in native.cells:
        assert foreign.cells[cell]["likelihood"] == pytest.approx(native.cells[cell]["likelihood"], abs=1e-5)


@pytest.mark.parametrize("site", Small.sites)
def test_restoring_a_site_of_the_stream_everywhere_restores_the_output(site, module):
    model = Foreign(module)
    clean, corrupt = (torch.randint(VOCAB, (5, 9), generator=torch.Generator().manual_seed(i)) for i in (0, 1))
    with record(model, [site]) as seen:
        logits = model(clean)
    with patch(model, {site: lambda x, _: seen[site]}):
        restored = model(corrupt)
    assert torch.equal(restored, logits) == site.endswith("block_in")
    assert not torch.equal(restored, model(corrupt)), "every site is passed by what matters"


def test_the_strangers_own_module_is_left_as_it_was(module):
    before, kinds = copy.deepcopy(module.state_dict()), [type(part) for part in module.modules()]
    model = Foreign(module)
    tokens = torch.arange(9)[None]
    assert torch.equal(model(tokens), module(tokens))
    with patch(model, {"blocks.0.mixer_out": lambda x, _: 0 * x}):
        assert not torch.equal(model(tokens), module(tokens))
    fit(model, TASK, steps=2, every=1)
    assert [type(part) for part in module.modules()] == kinds
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert sites(module) == {}
    assert isinstance(model.module.gru, nn.GRU)


def test_a_copy_of_a_model_has_sites_of_its_own(module):
    model = Foreign(module)
    twin = copy.deepcopy(model)
    tokens = torch.arange(9)[None]
    with patch(twin, {"blocks.0.mixer_out": lambda x, _: 0 * x}):
        assert not torch.equal(twin(tokens), model(tokens))
    assert torch.equal(twin(tokens), model(tokens))


class Convolved(nn.Module):
    """Channels before time, attention with its weights, and a submodule that runs all its submodules in a row."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, D)
        self.conv = nn.Conv1d(D, D, 1)
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True)
        self.weights = nn.Identity()
        self.row = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, VOCAB))

    def forward(self, tokens):
        x = self.conv(input=self.embedding(tokens).mT).mT
        future = torch.ones(2 * tokens.shape[1:], dtype=torch.bool).triu(1)
        y, weights = self.attention(x, x, x, attn_mask=future)
        return self.row(y + self.weights(weights) @ x)


def test_a_site_has_the_axes_that_pass_it():
    places = {"in": "input of conv", "out": "output of conv", "looks": "output of weights", "rows": "input of row"}
    found = sites(model := Foreign(Convolved(), places))
    axes = {name: " ".join(site.axes) for name, site in found.items()}
    assert axes == {"in": "batch 8 time", "out": "batch 8 time", "looks": "batch time source", "rows": "batch time 8"}
    assert {found[name].about for name in found} == set(places.values())
    grid = interchange(model, TASK, documents=8)
    for role in ("key", "value"):  # the convolution is one token wide: its input and its output hold the same
        one, other = (grid.cells["restored", name, role]["logit"] for name in ("in", "out"))
        assert one == pytest.approx(other, abs=1e-5)


def test_how_much_is_stacked_changes_nothing(module):
    model = Foreign(module)
    large, little = (interchange(model, TASK, documents=9, memory=memory) for memory in (2**28, 1))
    for cell in large.cells:
        assert little.cells[cell]["logit"] == pytest.approx(large.cells[cell]["logit"], abs=1e-5)


class Changed(nn.Module):
    """A module with one part, called as its `how` says."""

    def __init__(self, how):
        super().__init__()
        self.embedding, self.part, self.head = nn.Embedding(VOCAB, D), nn.Linear(D, D), nn.Linear(D, VOCAB)
        self.how = how

    def forward(self, tokens):
        return self.head(self.how(self, self.embedding(tokens)))


HEAD = {"part": "output of part"}
REFUSED = [
    (lambda m, x: m.part(x), {"a": "output of prat"}, "'output of prat' must be 'input of PATH' or 'output of PATH'"),
    (lambda m, x: m.part(x), {"a": "output of prat"}, "did you mean 'part'?"),
    (lambda m, x: m.part(x), {"a": "part"}, "a='part' must be"),
    (lambda m, x: m.part(x), {"a": 3}, "a='3' must be"),
    (lambda m, x: m.part(x), ["part"], "sites=['part'] must map names"),
    (lambda m, x: m.part(x), {"a": "output of part", "b": "output of part"}, "b='output of part' must be new"),
    (lambda m, x: m.part(x), {"a.b": "output of part", "a": "input of part"}, "'a' must have another name"),
    (lambda m, x: m.part(x), {"module.a": "output of part"}, "'module.a' must have another name"),
    (lambda m, x: m.part(x), {"forward": "output of part"}, "'forward' must have another name"),
    (lambda m, x: m.part(m.part(x)), HEAD, "'part' must be passed once in a forward pass; it is passed 2 times"),
    (lambda m, x: x, HEAD, "'part' must be passed once in a forward pass; it is passed 0 times"),
    (lambda m, x: x + m.part(x.sum(dim=1))[:, None], HEAD, "'part' must be a tensor (batch, …) with a time axis"),
    (lambda m, x: m.part(x.transpose(0, 1)).transpose(0, 1), HEAD, "for tokens (3, 2) it has the shape (2, 3, 8)"),
    (lambda m, x: x.sum(dim=1), {}, "Changed must return logits (batch, time, vocab); for tokens (3, 2) it returns"),
    (lambda m, x: x + torch.randn_like(x), {}, "must give the same logits for the same tokens"),
    (lambda m, x: x @ x, {}, "must take tokens (batch, time); with (3, 2) it raised RuntimeError"),
]


@pytest.mark.parametrize(("how", "places", "reason"), REFUSED)
def test_what_would_make_false_numbers_is_refused_in_a_line(how, places, reason):
    module = Changed(how)
    module.sites = places
    with pytest.raises(InvalidInput) as error:
        Foreign(module)
    assert any(reason in problem for problem in error.value.problems), error.value.problems


class NoTensor(nn.Module):
    def forward(self, x):
        return {"x": x}


def test_an_output_that_is_no_tensor_is_refused():
    module = Changed(lambda m, x: m.part(x)["x"])
    module.part = NoTensor()
    with pytest.raises(InvalidInput, match="the output of part must be a tensor, or begin with one; it is dict"):
        Foreign(module, HEAD)


def test_a_site_of_the_modules_own_must_have_the_axes_it_says():
    module = Changed(lambda m, x: m.part(x))
    module.part = Site("batch head time d_head", "")
    with pytest.raises(InvalidInput, match="'part' must be a tensor"):
        Foreign(module)
    module.part = Site("batch time d_model", "")
    assert list(sites(Foreign(module))) == ["part"]
    with pytest.raises(InvalidInput, match="'input of head' must be new"):
        Foreign(module, {"part": "input of head"})


def test_a_blocks_input_that_a_residual_goes_past_is_refused(module):
    with pytest.raises(InvalidInput, match=r"site 'blocks\.1\.block_in' must hold all that goes on there"):
        Foreign(module, {"blocks.1.block_in": "input of norm"})
    assert list(sites(Foreign(module, {"normed": "input of norm"}))) == ["normed"]


def test_a_patch_that_is_not_hit_is_an_error_and_no_number():
    model = Foreign(Changed(lambda m, x: m.part(x) if len(x) < 5 else x), HEAD)
    with pytest.raises(InterventionError, match="the patch at part was hit 0 times"):
        interchange(model, TASK, roles=["key", "key+0"], documents=4)  # stacked, they are 8


def test_without_our_names_there_are_rows_and_it_is_said_what_a_verdict_lacks(caplog, named, tmp_path, monkeypatch):
    monkeypatch.setattr(Small, "sites", {"memory": "output of gru", "blocks.first.in": "input of norm"})
    with caplog.at_level(logging.WARNING, "mecheval"):
        found = run(small(architecture="small", train_steps=2), tmp_path)
    assert [record.message for record in caplog.records] == [
        "small: a verdict needs sites that are called as ours are, blocks.1.block_in, …; the model has none"
    ]
    assert {(row["site"], row["layer"]) for row in found.rows if row["site"]} == {
        ("memory", None),
        ("blocks.first.in", None),
    }
    assert found.verdict is None
    monkeypatch.setattr(Small, "sites", {"blocks.1.block_in": "output of stream"})
    model = build_model(ModelConfig(architecture="small"), VOCAB)
    assert lacking(model) == "a verdict needs the sites blocks.1.mixer_out; the model does not have them"
    assert judged(interchange(model, TASK, documents=8), layers_of(sites(model))) is None
    monkeypatch.setattr(Small, "sites", {})
    assert judgement(build_model(ModelConfig(architecture="small"), VOCAB), TASK, "short", 8, 0, 0) == ([], None)


def test_layers_are_counted_by_names():
    assert [layer_of(name) for name in ("blocks.12.x", "blocks.x.1", "x.blocks.1.y", "blocks.1")] == [
        12,
        None,
        None,
        None,
    ]
    assert (layers_of([]), layers_of(["embed_out"]), layers_of(["blocks.0.a", "blocks.2.b"])) == (0, 0, 3)


def test_stopped_after_any_step_a_strangers_run_ends_in_the_same_bytes(named, tmp_path):
    experiment = small(architecture="small:heads=2", train_steps=5, eval_every=2)
    alone = result(run(experiment, tmp_path / "alone").folder)
    for step in (1, 3, 5):
        with pytest.raises(Stopped):
            run(experiment, tmp_path / "stopped", Settings(save_every=0.0), [Reaper(step)])
    found = run(experiment, tmp_path / "stopped", Settings(save_every=0.0))
    assert result(found.folder) == alone
    model, _, _ = trained(found.folder)
    assert model.module.head.weight is model.module.embedding.weight
    assert torch.equal(model.module.head.weight, found.weights()["module.embedding.weight"])
    assert "module.head.weight" not in found.weights(), "tied to the embedding: kept once"


def test_the_first_weights_depend_on_the_seed_alone_and_init_multiplies_them(named):
    def weights(seed, **init):
        torch.rand(3)
        return build_model(ModelConfig(architecture="small", **init), VOCAB, seed).state_dict()

    state = torch.random.get_rng_state()
    one, same, other = (build_model(ModelConfig(architecture="small"), VOCAB, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["module.embedding.weight"], other["module.embedding.weight"])
    scaled = weights(1, init_linear=3.0, init_embedding=5.0)
    assert torch.equal(scaled["module.embedding.weight"], 5 * one["module.embedding.weight"]), (
        "not 15 times: it is tied"
    )
    assert torch.equal(scaled["module.attention.out_proj.weight"], 3 * one["module.attention.out_proj.weight"])


def test_fit_trains_where_it_is_and_stops_when_it_is_told(module):
    model = Foreign(module)
    curve = fit(model, Recall(pairs=2, vocab=4), steps=60, lr=1e-2, batch=64, every=20)
    assert [row["step"] for row in curve] == [20, 40, 60]
    assert curve[-1]["loss"] < curve[0]["loss"]
    again = fit(Foreign(module), Recall(pairs=2, vocab=4), steps=60, lr=1e-2, batch=64, every=20, stop=0.01)
    assert again == curve[:1]


def test_its_costs_are_counted_without_embedding_and_head(module):
    def counted(time):
        return describe_model(Foreign(module), (time,)).flops_per_token[time]

    facts = describe_model(Foreign(module), (16,))
    assert facts.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert facts.parameters - facts.parameters_without_embedding == VOCAB * D
    assert facts.state_bytes == {}
    gru, projections, looking = 2 * 3 * D * D, 4 * D * D, 2 * 16 * D
    assert 0 < counted(16) - 2 * (gru + projections + looking) < 40 * D
    assert counted(32) - counted(16) >= 2 * 2 * 16 * D


def test_what_only_our_blocks_can_say_is_refused(module):
    model = Foreign(module)
    for ask in (
        lambda: looks(model, TASK, documents=4),
        lambda: held_pairs(model, TASK, 0),
        lambda: states(model, TASK.documents(0, "test", 0, 4), 0),
    ):
        with pytest.raises(InvalidInput, match="model=Small must be a mecheval LanguageModel: only"):
            ask()
