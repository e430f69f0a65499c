"""A third-party model is trained, intervened on and given a verdict as ours are."""

import copy
import logging

import pytest
import torch
from support import known_models
from support.fault_injection import Reaper, Stopped, result, small
from torch import nn

from mecheval.core.errors import InterventionError, InvalidInput
from mecheval.interventions.grid import GridOptions, layer_of, layers_of
from mecheval.interventions.grid_eval import evaluate_grid, missing_sites
from mecheval.interventions.interchange import interchange, stream_sites
from mecheval.interventions.states import held_pairs, states
from mecheval.interventions.token_mixing import token_mixing
from mecheval.interventions.verdict import supports_verdict, verdict
from mecheval.models.build import build_model
from mecheval.models.config import ModelConfig
from mecheval.models.cost import describe_model
from mecheval.models.external import ExternalModel
from mecheval.models.registries import models
from mecheval.models.site import Site, patch, record, sites
from mecheval.runs.experiment import Settings
from mecheval.runs.files import unpack_tensors
from mecheval.runs.fit import fit
from mecheval.runs.run import run
from mecheval.tasks.recall import Recall

TASK = Recall(pairs=4, vocab=16)
D, VOCAB = 8, TASK.vocab_size


class Small(nn.Module):
    """A third-party model: two layers and a head tied to the embedding."""

    sites = {  # noqa: RUF012
        "blocks.0.block_in": "output of embedding",
        "blocks.0.mixer_out": "output of gru",
        "blocks.1.block_in": "output of stream",
        "blocks.1.mixer_out": "output of attention",
    }

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        layers: int,
        max_len: int,
        *,
        heads: int = 1,
    ) -> None:
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
        qkv = {"query": y, "key": y, "value": y}
        mixed, _ = self.attention(**qkv, attn_mask=future, need_weights=False)
        return self.head(x + mixed)


@pytest.fixture
def registered(monkeypatch):
    """Register `small` as a model for one test."""
    models.names()
    monkeypatch.setattr(models, "_targets", {**models._targets, "small": Small})


@pytest.fixture
def module():
    torch.manual_seed(0)
    return Small(VOCAB, D, 2, TASK.max_len)


class Plain(nn.Module):
    """Our backbone as a third-party module, known only by its submodules."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, tokens):
        return self.inner(tokens)


def as_external(model):
    """Wrap a model of ours, with the sites of its stream mapped by submodules."""
    places = {"block_in": "input of {}", "block_out": "output of {}"}
    places |= {"mixer_in": "input of {}.mixer", "mixer_out": "output of {}.mixer"}
    places |= {"mlp_in": "input of {}.mlp", "mlp_out": "output of {}.mlp"}
    mapping = {"final_in": "input of inner.norm"}
    for name in stream_sites(model):
        block, _, point = name.rpartition(".")
        mapping[name] = places[point].format(f"inner.{block}")
    return ExternalModel(Plain(model), mapping)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["attention", "based", "mamba"])
@pytest.mark.parametrize("condition", ["restored", "ablated", "control"])
def test_our_model_wrapped_as_external_gives_the_same_grid(architecture, condition):
    ours = known_models.random(architecture, TASK, dtype=torch.float64)
    asked = {"sites": [*stream_sites(ours), "final_in"], "conditions": [condition], "documents": 12}
    native, foreign = (interchange(model, TASK, **asked) for model in (ours, as_external(ours)))
    assert native.cells.keys() == foreign.cells.keys()
    pairs = [(native.clean, foreign.clean), (native.corrupt, foreign.corrupt)]
    pairs += [(native.cells[cell], foreign.cells[cell]) for cell in native.cells]
    for one, other in pairs:
        for metric in one:
            assert other[metric] == pytest.approx(one[metric], abs=1e-9, nan_ok=True), metric
    moved = set()
    for (_, site, _), values in native.cells.items():
        if abs(values["logit"] - native.corrupt["logit"]).max() > 0.1:
            moved.add(site)
    assert len(moved) > 5, "otherwise nothing was compared"


def test_the_verdict_on_our_model_wrapped_as_external_is_the_same():
    ours = known_models.induction()
    task = known_models.TASK
    native = verdict(interchange(ours, task, documents=32), 2)
    model = as_external(ours)
    result = evaluate_grid(model, task, GridOptions(site="short", documents=32))
    said = result.verdict
    assert {row.site for row in result.rows(7)} == {None, "blocks.1.block_in", "blocks.1.mixer_out"}
    assert (said.mechanism, said.layer, said.role, said.confidence) == (
        "induction",
        1,
        "value",
        1.0,
    )
    assert said.mechanism == native.mechanism
    assert said.evidence["blocks.1.block_in at value"] == pytest.approx(
        native.evidence["blocks.1.block_in at value"], abs=0.05
    )
    assert missing_sites(model) is None


def test_sites_that_a_module_has_are_known_by_their_own_names():
    ours = known_models.random("mamba", TASK)
    model = ExternalModel(ours)
    assert list(sites(model)) == list(sites(ours))
    assert model.takes_at
    names = ["blocks.0.mixer.conv_out", "blocks.1.block_in"]
    native, external = (interchange(one, TASK, names, documents=8) for one in (ours, model))
    for cell in native.cells:
        likelihood = native.cells[cell]["likelihood"]
        assert external.cells[cell]["likelihood"] == pytest.approx(likelihood, abs=1e-5)


@pytest.mark.parametrize("site", Small.sites)
def test_restoring_a_site_of_the_stream_everywhere_restores_the_output(site, module):
    model = ExternalModel(module)
    rngs = (torch.Generator().manual_seed(seed) for seed in (0, 1))
    clean, corrupt = (torch.randint(VOCAB, (5, 9), generator=rng) for rng in rngs)
    with record(model, [site]) as seen:
        logits = model(clean)
    with patch(model, {site: lambda x, _: seen[site]}):
        restored = model(corrupt)
    assert torch.equal(restored, logits) == site.endswith("block_in")
    assert not torch.equal(restored, model(corrupt)), "every site is passed by what matters"


def test_the_original_module_is_not_changed(module):
    before, kinds = copy.deepcopy(module.state_dict()), [type(part) for part in module.modules()]
    model = ExternalModel(module)
    tokens = torch.arange(9)[None]
    assert torch.equal(model(tokens), module(tokens))
    with patch(model, {"blocks.0.mixer_out": lambda x, _: 0 * x}):
        assert not torch.equal(model(tokens), module(tokens))
    fit(model, TASK, steps=2, every=1)
    assert [type(part) for part in module.modules()] == kinds
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert sites(module) == {}
    assert isinstance(model.module.gru, nn.GRU)


def test_a_copy_of_a_model_has_separate_sites(module):
    model = ExternalModel(module)
    twin = copy.deepcopy(model)
    tokens = torch.arange(9)[None]
    with patch(twin, {"blocks.0.mixer_out": lambda x, _: 0 * x}):
        assert not torch.equal(twin(tokens), model(tokens))
    assert torch.equal(twin(tokens), model(tokens))


class Convolved(nn.Module):
    """Channels before time, attention that returns weights, and an `nn.Sequential`."""

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
    places = {"in": "input of conv", "out": "output of conv"}
    places |= {"looks": "output of weights", "rows": "input of row"}
    named = sites(model := ExternalModel(Convolved(), places))
    axes = {name: " ".join(site.axes) for name, site in named.items()}
    assert axes == {
        "in": "batch 8 time",
        "out": "batch 8 time",
        "looks": "batch time source",
        "rows": "batch time 8",
    }
    assert {named[name].about for name in named} == set(places.values())
    grid = interchange(model, TASK, documents=8)
    for role in ("key", "value"):  # the convolution is one token wide: in and out hold the same
        one, other = (grid.cells["restored", name, role]["logit"] for name in ("in", "out"))
        assert one == pytest.approx(other, abs=1e-5)


def test_the_memory_limit_changes_no_result(module):
    model = ExternalModel(module)
    large, little = (interchange(model, TASK, documents=9, memory=memory) for memory in (2**28, 1))
    for cell in large.cells:
        assert little.cells[cell]["logit"] == pytest.approx(large.cells[cell]["logit"], abs=1e-5)


class Changed(nn.Module):
    """A module with one part, called as its `how` says."""

    def __init__(self, how):
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCAB, D), nn.Linear(D, VOCAB)
        self.part = nn.Linear(D, D)
        self.how = how

    def forward(self, tokens):
        return self.head(self.how(self, self.embedding(tokens)))


HEAD = {"part": "output of part"}
REFUSED = [
    (
        lambda m, x: m.part(x),
        {"a": "output of prat"},
        "'output of prat' must be 'input of PATH' or 'output of PATH'",
    ),
    (lambda m, x: m.part(x), {"a": "output of prat"}, "did you mean 'part'?"),
    (lambda m, x: m.part(x), {"a": "part"}, "a='part' must be"),
    (lambda m, x: m.part(x), {"a": 3}, "a='3' must be"),
    (lambda m, x: m.part(x), ["part"], "sites=['part'] must map names"),
    (
        lambda m, x: m.part(x),
        {"a": "output of part", "b": "output of part"},
        "b='output of part' must be new",
    ),
    (
        lambda m, x: m.part(x),
        {"a.b": "output of part", "a": "input of part"},
        "'a' must have another name",
    ),
    (lambda m, x: m.part(x), {"module.a": "output of part"}, "'module.a' must have another name"),
    (lambda m, x: m.part(x), {"forward": "output of part"}, "'forward' must have another name"),
    (
        lambda m, x: m.part(m.part(x)),
        HEAD,
        "'part' must be passed once in a forward pass; it is passed 2 times",
    ),
    (lambda m, x: x, HEAD, "'part' must be passed once in a forward pass; it is passed 0 times"),
    (
        lambda m, x: x + m.part(x.sum(dim=1))[:, None],
        HEAD,
        "'part' must be a tensor (batch, …) with a time axis",
    ),
    (
        lambda m, x: m.part(x.transpose(0, 1)).transpose(0, 1),
        HEAD,
        "for tokens (3, 2) it has the shape (2, 3, 8)",
    ),
    (
        lambda m, x: x.sum(dim=1),
        {},
        "Changed must return logits (batch, time, vocab); for tokens (3, 2) it returns",
    ),
    (lambda m, x: x + torch.randn_like(x), {}, "must return the same logits for the same tokens"),
    (lambda m, x: x @ x, {}, "must take tokens (batch, time); with (3, 2) it raised RuntimeError"),
]


@pytest.mark.parametrize(("how", "places", "reason"), REFUSED)
def test_each_faulty_module_or_mapping_is_rejected_in_one_line(how, places, reason):
    module = Changed(how)
    module.sites = places
    with pytest.raises(InvalidInput) as error:
        ExternalModel(module)
    assert any(reason in problem for problem in error.value.problems), error.value.problems


class NoTensor(nn.Module):
    def forward(self, x):
        return {"x": x}


def test_an_output_that_is_not_a_tensor_is_rejected():
    module = Changed(lambda m, x: m.part(x)["x"])
    module.part = NoTensor()
    with pytest.raises(
        InvalidInput, match="the output of part must be a tensor, or begin with one; it is dict"
    ):
        ExternalModel(module, HEAD)


def test_a_site_inside_the_module_must_have_the_axes_it_declares():
    module = Changed(lambda m, x: m.part(x))
    module.part = Site("batch head time d_head", "")
    with pytest.raises(InvalidInput, match="'part' must be a tensor"):
        ExternalModel(module)
    module.part = Site("batch time d_model", "")
    assert list(sites(ExternalModel(module))) == ["part"]
    with pytest.raises(InvalidInput, match="'input of head' must be new"):
        ExternalModel(module, {"part": "input of head"})


def test_a_block_in_that_a_residual_bypasses_is_rejected(module):
    with pytest.raises(InvalidInput, match=r"site 'blocks\.1\.block_in' is bypassed"):
        ExternalModel(module, {"blocks.1.block_in": "input of norm"})
    assert list(sites(ExternalModel(module, {"normed": "input of norm"}))) == ["normed"]


def test_a_patch_that_is_not_hit_is_an_error():
    model = ExternalModel(Changed(lambda m, x: m.part(x) if len(x) < 5 else x), HEAD)
    with pytest.raises(InterventionError, match="the patch at part was hit 0 times"):
        interchange(model, TASK, roles=["key", "key+0"], documents=4)  # stacked, they are 8


def test_other_site_names_give_rows_and_a_warning_about_the_verdict(
    caplog,
    registered,
    tmp_path,
    monkeypatch,
):
    places = {"memory": "output of gru", "blocks.first.in": "input of norm"}
    monkeypatch.setattr(Small, "sites", places)
    with caplog.at_level(logging.WARNING, "mecheval"):
        finished = run(small(architecture="small", train_steps=2), tmp_path)
    assert [record.message for record in caplog.records] == [
        "small: a verdict needs sites named blocks.1.block_in, …; the model has none"
    ]
    assert {(row["site"], row["layer"]) for row in finished.row_records if row["site"]} == {
        ("memory", None),
        ("blocks.first.in", None),
    }
    assert finished.verdict is None
    monkeypatch.setattr(Small, "sites", {"blocks.1.block_in": "output of stream"})
    model = build_model(ModelConfig(architecture="small"), VOCAB)
    assert (
        missing_sites(model)
        == "a verdict needs the sites blocks.1.mixer_out; the model does not have them"
    )
    assert not supports_verdict(interchange(model, TASK, documents=8))
    monkeypatch.setattr(Small, "sites", {})
    model = build_model(ModelConfig(architecture="small"), VOCAB)
    result = evaluate_grid(model, TASK, GridOptions(site="short", documents=8))
    assert (result.grid, result.verdict, result.rows(0)) == (None, None, [])


def test_layers_are_counted_by_names():
    assert layer_of("blocks.12.x") == 12
    assert all(layer_of(name) is None for name in ("blocks.x.1", "x.blocks.1.y", "blocks.1"))
    assert (layers_of([]), layers_of(["embed_out"])) == (0, 0)
    assert layers_of(["blocks.0.a", "blocks.2.b"]) == 3


def test_a_third_party_run_stopped_after_any_step_resumes_to_the_same_bytes(registered, tmp_path):
    experiment = small(architecture="small:heads=2", train_steps=5, eval_every=2)
    alone = result(run(experiment, tmp_path / "alone").folder)
    for step in (1, 3, 5):
        with pytest.raises(Stopped):
            run(experiment, tmp_path / "stopped", Settings(save_every=0.0), [Reaper(step)])
    found = run(experiment, tmp_path / "stopped", Settings(save_every=0.0))
    assert result(found.folder) == alone
    model = found.load_model()
    assert model.module.head.weight is model.module.embedding.weight
    weights = unpack_tensors((found.folder / "weights.safetensors").read_bytes())
    assert torch.equal(model.module.head.weight, weights["module.embedding.weight"])
    assert "module.head.weight" not in weights, "tied to the embedding: kept once"


def test_initial_weights_depend_on_the_seed_only_and_init_scales_them(registered):
    def weights(seed, **init):
        torch.rand(3)
        return build_model(ModelConfig(architecture="small", **init), VOCAB, seed).state_dict()

    state = torch.random.get_rng_state()
    config = ModelConfig(architecture="small")
    one, same, other = (build_model(config, VOCAB, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["module.embedding.weight"], other["module.embedding.weight"])
    scaled = weights(1, init_linear=3.0, init_embedding=5.0)
    embedding, projection = "module.embedding.weight", "module.attention.out_proj.weight"
    assert torch.equal(scaled[embedding], 5 * one[embedding]), "not 15 times: it is tied"
    assert torch.equal(scaled[projection], 3 * one[projection])


def test_fit_trains_in_place_and_stops_at_the_given_loss(module):
    model = ExternalModel(module)
    task, options = Recall(pairs=2, vocab=4), {"steps": 60, "lr": 1e-2, "batch": 64, "every": 20}
    curve = fit(model, task, **options)
    assert [row["step"] for row in curve] == [20, 40, 60]
    assert curve[-1]["loss"] < curve[0]["loss"]
    assert fit(ExternalModel(module), task, **options, stop=0.01) == curve[:1]


def test_costs_exclude_embedding_and_head(module):
    def counted(time):
        return describe_model(ExternalModel(module), (time,)).flops_per_token[time]

    facts = describe_model(ExternalModel(module), (16,))
    assert facts.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert facts.parameters - facts.parameters_without_embedding == VOCAB * D
    assert facts.state_bytes == {}
    gru, projections, looking = 2 * 3 * D * D, 4 * D * D, 2 * 16 * D
    assert 0 < counted(16) - 2 * (gru + projections + looking) < 40 * D
    assert counted(32) - counted(16) >= 2 * 2 * 16 * D


def test_what_only_our_blocks_can_say_is_refused(module):
    model = ExternalModel(module)
    for ask in (
        lambda: token_mixing(model, TASK, documents=4),
        lambda: held_pairs(model, TASK, 0),
        lambda: states(model, TASK.documents(0, "test", 0, 4), 0),
    ):
        with pytest.raises(
            InvalidInput, match="model=Small must be a mecheval LanguageModel: only"
        ):
            ask()
