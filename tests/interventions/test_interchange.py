"""A grid compared with full passes, one document and one cell at a time."""

from functools import cache

import numpy as np
import pytest
import torch
from support.known_models import random

from mecheval.core.errors import InterventionError, InvalidInput
from mecheval.interventions import interchange as module
from mecheval.interventions import trace
from mecheval.interventions.grid import layer_of
from mecheval.interventions.interchange import interchange, stream_sites
from mecheval.interventions.positions import every_position, positions
from mecheval.models.config import ModelConfig
from mecheval.models.edits import put
from mecheval.models.language_model import LanguageModel
from mecheval.models.site import Site, patch, record, sites
from mecheval.plugins import register_mixer
from mecheval.tasks.recall import Recall
from mecheval.tasks.treecall import Treecall

METRICS = ("likelihood", "accuracy", "logit", "kl")
ARCHITECTURES = ["attention", "base_conv", "based", "delta_net", "h3:d_state=8", "hyena", "mamba"]
TASKS = {
    "recall": Recall(pairs=5, min_pairs=2, vocab=24),
    "treecall": Treecall(max_len=20, terminals=8),
    "long": Recall(pairs=42, min_pairs=36, vocab=128),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}
every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


class Slowly:
    """The expected values of a grid, document by document."""

    def __init__(self, model, task, documents, corrupt="key", kind="resample"):
        self.model = model
        docs = task.documents(0, "test", 0, documents)
        twins = task.corrupt(docs, corrupt, 0, kind)
        usable = np.flatnonzero(twins.usable)
        self.docs = [docs[usable[i : i + 1]] for i in range(len(usable))]
        self.twins = [twins.documents[usable[i : i + 1]] for i in range(len(usable))]
        self.clean = [self._seen(docs) for docs in self.docs]
        self.wrong = [self._seen(docs) for docs in self.twins]

    def _seen(self, docs):
        """Return the logits at the query, and the activations at every site."""
        with record(self.model, list(sites(self.model))) as seen:
            logits = self.model(self._tokens(docs))[0, docs.roles["query"][0]]
        return logits, seen

    def _tokens(self, docs):
        return torch.from_numpy(docs.tokens).long()

    def scores(self, i, logits):
        """Compute every metric by its definition, in double precision."""
        logits, clean = logits.double().numpy(), self.clean[i][0].double().numpy()
        p, q = (np.exp(z - z.max()) / np.exp(z - z.max()).sum() for z in (clean, logits))
        answer = int(self.docs[i].answer[0])
        accuracy = float(max(range(len(logits)), key=lambda token: logits[token]) == answer)
        kl = float((p * np.log(p / q)).sum())
        return {"likelihood": q[answer], "accuracy": accuracy, "logit": logits[answer], "kl": kl}

    def ends(self, i):
        return self.scores(i, self.clean[i][0]), self.scores(i, self.wrong[i][0])

    def cell(self, i, condition, name, place, other=None):
        """Return the scores of document i; a control puts in the activation of document `other`."""
        where, there = positions(self.docs[i], place)
        if not there[0]:
            return dict.fromkeys(METRICS, np.nan)
        ablated = condition == "ablated"
        base, source = (self.docs, self.wrong) if ablated else (self.twins, self.clean)
        value = source[i][1][name]
        if other is not None:
            from_where = torch.from_numpy(positions(self.docs[other], place)[0])
            time = sites(self.model)[name].time
            value = self.clean[other][1][name].index_select(time, from_where).squeeze(time)
        with patch(self.model, {name: put(value, torch.from_numpy(where))}):
            return self.scores(
                i, self.model(self._tokens(base[i]))[0, self.docs[i].roles["query"][0]]
            )


def of_document(values, i):
    return {metric: values[metric][i] for metric in METRICS}


def assert_near(found, expected, dtype, *about):
    """Numbers are probabilities, logits or nats; a logit is relative to a size of about ten."""
    scale = {"likelihood": 1, "accuracy": 0, "logit": 10, "kl": 10}
    for metric in METRICS:
        wanted = pytest.approx(
            expected[metric], abs=scale[metric] * TOLERANCE[dtype], rel=0, nan_ok=True
        )
        assert found[metric] == wanted, (metric, *about)


@cache
def model_of(architecture, task="recall", dtype=torch.float64):
    return random(architecture, TASKS[task], dtype=dtype).requires_grad_(False)


@pytest.mark.parametrize(
    ("architecture", "task", "dtype"),
    [
        *((name, "recall", torch.float64) for name in ARCHITECTURES),
        *((name, "treecall", torch.float64) for name in ("attention", "mamba")),
        ("base_conv", "long", torch.float64),  # by FFT
        *((name, "recall", torch.float32) for name in ("attention", "hyena", "mamba")),
    ],
)
def test_every_cell_is_that_of_one_document_at_a_time(architecture, task, dtype):
    model = model_of(architecture, task, dtype)
    truth = Slowly(model, TASKS[task], 3)
    names = (
        list(sites(model))
        if task == "recall" and dtype == torch.float64
        else stream_sites(model)[1::3]
    )
    roles = ["key", "value", "value+2", "query", "@5"]
    conditions = ["restored", "ablated"]
    grid = interchange(model, TASKS[task], names, roles, conditions=conditions, documents=3)
    assert set(grid.cells) == {
        (c, name, role) for c in conditions for name in names for role in roles
    }
    for i in range(len(truth.docs)):
        for found, expected in zip((grid.clean, grid.corrupt), truth.ends(i), strict=True):
            assert_near(of_document(found, i), expected, dtype)
        for number, (condition, name, role) in enumerate(grid.cells):
            if (
                number + number // 5 + i
            ) % 3:  # a third of them, of each kind some: there are thousands
                continue
            found = of_document(grid.cells[condition, name, role], i)
            assert_near(
                found, truth.cell(i, condition, name, role), dtype, condition, name, role, i
            )


@every_architecture
@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
def test_identities_of_a_grid(architecture, dtype):
    """Shapes differ from a plain pass: rows are stacked, and only what is read is computed."""
    model = model_of(architecture, dtype=dtype)
    names = [name for name in sites(model) if ".mixer." not in name]
    roles = ("bos", "key", "value", "query")
    grid = interchange(
        model, TASKS["recall"], names, roles, conditions=["restored", "ablated"], documents=8
    )

    def same(one, other):
        for i in range(8):
            assert_near(of_document(one, i), of_document(other, i), dtype)

    for condition, back, base in (
        ("restored", grid.clean, grid.corrupt),
        ("ablated", grid.corrupt, grid.clean),
    ):
        for name in ("embed_out", "blocks.0.block_in"):
            same(grid.cells[condition, name, "key"], back)
        for name in ("blocks.1.block_out", "final_in"):
            same(grid.cells[condition, name, "query"], back)
            same(grid.cells[condition, name, "value"], base)
        for name in names:
            same(grid.cells[condition, name, "bos"], base)
        for role in roles:
            same(
                grid.cells[condition, "blocks.0.block_out", role],
                grid.cells[condition, "blocks.1.block_in", role],
            )
            same(
                grid.cells[condition, "blocks.1.block_out", role],
                grid.cells[condition, "final_in", role],
            )
    assert np.abs(grid.clean["logit"] - grid.corrupt["logit"]).max() > 1e-3
    assert np.abs(grid.clean["kl"]).max() <= 10 * TOLERANCE[dtype]


@pytest.mark.parametrize("memory", [2**28, 1], ids=["one block", "blocks of two"])
@pytest.mark.parametrize("architecture", ["attention", "mamba"])
def test_the_control_puts_in_what_another_document_has_there(architecture, memory):
    model, name, roles = model_of(architecture), "blocks.1.block_in", ["value", "query", "value+4"]
    grid = interchange(
        model, TASKS["recall"], [name], roles, conditions=["control"], documents=5, memory=memory
    )
    truth = Slowly(model, TASKS["recall"], 5)
    n = len(truth.docs)
    assert n == 5, "the last block has one document"
    there = np.array([positions(docs, "value+4")[1][0] for docs in truth.docs])
    assert (there & ~np.roll(there, 1)).any(), "some have the place, and the one before has not"
    for i in range(n):
        other = (i - 1) % n
        for role in roles:
            expected = truth.cell(i, "control", name, role, other)
            if not positions(truth.docs[other], role)[1][0]:
                expected = dict.fromkeys(METRICS, np.nan)
            assert_near(
                of_document(grid.cells["control", name, role], i), expected, torch.float64, i, role
            )


def test_a_single_document_has_no_control():
    task = TASKS["recall"]
    grid = interchange(
        model_of("attention"), task, ["blocks.1.block_in"], conditions=["control"], documents=1
    )
    for cell in grid.cells.values():
        assert np.isnan(cell["likelihood"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["attention", "base_conv", "mamba"])
def test_results_do_not_depend_on_the_memory_allowed(architecture):
    model, task = model_of(architecture, "treecall"), TASKS["treecall"]
    asked = {
        "roles": ["key", "value+1", "query", "@9"],
        "conditions": ["restored", "ablated", "control"],
    }
    asked |= {"sites": stream_sites(model)[::3], "documents": 11}
    calls = []
    whole = interchange(model, task, **asked)
    parts = interchange(model, task, memory=1, progress=lambda *at: calls.append(at), **asked)
    n, cells = len(whole.clean["kl"]), len(whole.cells)
    sizes = [min(2, n - first) for first in range(0, n, 2) for _ in range(cells)]
    assert calls == [(done, n * cells) for done in np.cumsum(sizes).tolist()], (
        "blocks of two, cell by cell"
    )
    assert list(whole.cells) == list(parts.cells)
    for one, other in zip(
        (whole.clean, whole.corrupt, *whole.cells.values()),
        (parts.clean, parts.corrupt, *(parts.cells[cell] for cell in whole.cells)),
        strict=True,
    ):
        for metric in METRICS:
            assert other[metric] == pytest.approx(one[metric], abs=1e-11, rel=0, nan_ok=True), (
                metric
            )


def largest_batch(model, task, memory, **asked):
    """Return how many rows are stacked at most, and the grid."""
    rows = []
    with patch(model, {"final_in": lambda x, site: rows.append(len(x)) or x}):
        grid = interchange(model, task, memory=memory, **asked)
    return max(rows), grid


@pytest.mark.slow
@pytest.mark.parametrize(
    ("roles", "documents", "largest"),
    [(("key", "value", "query"), 60, 100), (tuple(f"@{i}" for i in range(20)), 3, 30)],
    ids=["documents", "positions of a few documents"],
)
def test_half_the_memory_stacks_half_as_much_and_gives_the_same(roles, documents, largest):
    """With few documents, their positions are split."""
    model, task = model_of("attention", "treecall"), TASKS["treecall"]
    asked = {
        "sites": ["blocks.1.block_in", "blocks.1.mixer_out"],
        "roles": roles,
        "documents": documents,
    }
    most, whole = largest_batch(model, task, 2**30, **asked)
    assert most >= largest, "all at once"
    one = module._bytes_per_row(model, task.documents(0, "test", 0, 1), asked["sites"])
    before = most
    for memory in (16 * one, 8 * one, 4 * one):
        rows, parts = largest_batch(model, task, memory, **asked)
        assert rows < before
        assert rows <= max(memory // one, 3), (
            "a block has at least two documents, and few have more tokens than one"
        )
        before = rows
        for cell, values in whole.cells.items():
            for metric in METRICS:
                assert parts.cells[cell][metric] == pytest.approx(
                    values[metric], abs=1e-11, rel=0, nan_ok=True
                )


def test_wider_numbers_take_more_memory():
    docs = TASKS["recall"].documents(0, "test", 0, 1)
    single, double = (
        module._bytes_per_row(model_of("mamba", dtype=dtype), docs, ["blocks.0.mixer.state"])
        for dtype in (torch.float32, torch.float64)
    )
    assert double == 2 * single


@pytest.mark.slow
def test_memory_bounds_a_block_by_the_longest_document():
    model, task = model_of("attention", "treecall"), TASKS["treecall"]
    docs = task.documents(0, "test", 0, 200)
    usable = docs[task.corrupt(docs, "key", 0).usable]
    assert usable.lengths[0] < usable.lengths.max()
    steps = {}
    for start, first in (("short", 0), ("long", int(usable.lengths.argmax()))):
        seen = []
        moved = _Moved(task, usable[np.roll(np.arange(len(usable)), -first)])
        interchange(
            model,
            moved,
            documents=200,
            memory=2**22,
            progress=lambda done, n, to=seen: to.append(done),
        )
        steps[start] = seen[0]  # a cell of the first block
    assert steps["short"] == steps["long"] < len(usable)


class _Moved:
    """A task with given documents."""

    def __init__(self, task, docs):
        self.task, self.docs, self.vocab_size, self.max_len = (
            task,
            docs,
            task.vocab_size,
            task.max_len,
        )

    def documents(self, seed, split, start, stop):
        return self.docs[start:stop]

    def corrupt(self, docs, role, seed, kind="resample"):
        return self.task.corrupt(docs, role, seed, kind)

    def word(self, token):
        return self.task.word(token)


def test_a_cell_does_not_depend_on_what_else_is_asked():
    model, task = model_of("delta_net"), TASKS["recall"]
    names, roles = list(sites(model)), ["key", "value", "query"]
    whole = interchange(model, task, names, roles, documents=6)
    for name, role in (
        ("blocks.0.mixer.state", "value"),
        ("blocks.1.mixer_out", "query"),
        ("embed_out", "key"),
    ):
        alone = interchange(model, task, [name], [role], documents=6)
        for metric in METRICS:
            expected = pytest.approx(whole.cells["restored", name, role][metric], abs=1e-11)
            assert alone.cells["restored", name, role][metric] == expected
    assert len(interchange(model, task, names[:2] * 2, roles * 2, documents=6).cells) == 6, (
        "duplicates count once"
    )


@pytest.mark.parametrize(
    ("corrupt", "kind"), [("key", "swap"), ("value", "resample"), ("query", "swap")]
)
def test_other_corruptions(corrupt, kind):
    model, task, name = model_of("mamba"), TASKS["recall"], "blocks.0.block_in"
    grid = interchange(
        model, task, [name], ["key", "value", "query"], corrupt=corrupt, kind=kind, documents=8
    )
    truth = Slowly(model, task, 8, corrupt, kind)
    assert grid.corrupted == corrupt
    assert len(grid.clean["likelihood"]) == len(truth.docs) > 0
    for i in range(len(truth.docs)):
        for role in ("key", "value", "query"):
            found = of_document(grid.cells["restored", name, role], i)
            assert_near(found, truth.cell(i, "restored", name, role), torch.float64, i, role)
        if kind == "resample":
            assert_near(
                of_document(grid.cells["restored", name, corrupt], i),
                truth.ends(i)[0],
                torch.float64,
            )
    if kind == "swap" and corrupt == "key":
        restored = grid.cells["restored", name, "key"]["logit"]
        assert np.abs(restored - grid.clean["logit"]).max() > 1e-3, (
            "the key that it was exchanged with is still wrong"
        )


@pytest.mark.parametrize("corrupt", ["key", "value", "query"])
def test_after_a_swap_the_likelihood_of_the_corrupted_documents_answer_is_known(corrupt):
    model, task, name = model_of("attention"), TASKS["recall"], "blocks.1.block_in"
    asked = {
        "sites": [name],
        "roles": ["value", "query", "value+4"],
        "corrupt": corrupt,
        "documents": 8,
    }
    grid = interchange(model, task, kind="swap", **asked)
    truth = Slowly(model, task, 8, corrupt, "swap")
    assert len(truth.docs) > 3
    for i, twin in enumerate(truth.twins):
        p = [
            logits.double().softmax(dim=-1)[int(twin.answer[0])]
            for logits, _ in (truth.clean[i], truth.wrong[i])
        ]
        found = grid.clean["counterfactual"][i], grid.corrupt["counterfactual"][i]
        assert found == pytest.approx([float(x) for x in p], abs=1e-12)
        assert twin.answer[0] != truth.docs[i].answer[0]
    for values in grid.cells.values():
        assert np.array_equal(np.isnan(values["counterfactual"]), np.isnan(values["likelihood"]))
    whole = grid.cells["restored", name, "query"]["counterfactual"]
    assert not np.allclose(whole, grid.corrupt["counterfactual"])
    assert "counterfactual" not in interchange(model, task, kind="resample", **asked).clean, (
        "it has no such answer"
    )


def test_one_document_at_every_position_is_what_it_is_among_others():
    model, task, names = (
        model_of("mamba"),
        TASKS["recall"],
        ["blocks.0.mixer_in", "blocks.1.block_in"],
    )
    docs = task.documents(0, "test", 3, 4)
    places = every_position(docs)
    assert places == [f"@{i}" for i in range(docs.lengths[0])]
    alone = interchange(model, task, names, places, start=3, documents=1)
    usable = task.corrupt(task.documents(0, "test", 0, 6), "key", 0).usable
    assert usable[3]
    row = int(usable[:3].sum())
    among = interchange(model, task, names, places, documents=6)
    for cell, values in alone.cells.items():
        for metric in METRICS:
            assert values[metric] == pytest.approx(among.cells[cell][metric][[row]], abs=1e-12)
    for role in ("key", "query"):
        same = alone.cells["restored", names[0], f"@{docs.roles[role][0]}"]["logit"]
        by_role = interchange(model, task, names, [role], start=3, documents=1).cells[
            "restored", names[0], role
        ]
        assert same == pytest.approx(by_role["logit"], abs=1e-12)
    assert every_position(docs[:0]) == []


def test_only_documents_whose_answer_went_are_used():
    task, model = TASKS["treecall"], model_of("attention", "treecall")
    docs = task.documents(0, "test", 0, 20)
    usable = task.corrupt(docs, "key", 0).usable
    assert 0 < usable.sum() < 20
    grid = interchange(model, task, ["embed_out"], ["key"], documents=20)
    truth = Slowly(model, task, 20)
    assert (
        len(grid.clean["logit"])
        == len(grid.cells["restored", "embed_out", "key"]["kl"])
        == usable.sum()
    )
    for i in range(len(truth.docs)):
        assert_near(of_document(grid.clean, i), truth.ends(i)[0], torch.float64, i)


def test_seed_and_split_choose_the_documents():
    task, model = TASKS["recall"], model_of("attention")
    ends = [
        interchange(model, task, ["embed_out"], ["key"], documents=4, **given)
        .clean["logit"]
        .tolist()
        for given in ({}, {"seed": 1}, {"split": "dev"}, {"seed": 0, "split": "test"})
    ]
    assert ends[0] == ends[3]
    assert ends[0] != ends[1] != ends[2] != ends[0]
    assert interchange(model, task, ["embed_out"], ["key"], documents=4, split="dev").split == "dev"


def test_places_outside_a_document_are_left_out():
    task, model = TASKS["recall"], model_of("attention")
    places = ["value+1", "value+3", "@7", "query+1", "bos-1"]
    docs = task.documents(0, "test", 0, 12)
    docs = docs[task.corrupt(docs, "key", 0).usable]
    grid = interchange(model, task, ["blocks.0.block_in", "final_in"], places, documents=12)
    for (_, _, place), values in grid.cells.items():
        for metric in METRICS:
            assert np.array_equal(~np.isnan(values[metric]), positions(docs, place)[1]), place
    there = ~np.isnan(grid.cells["restored", "final_in", "value+3"]["kl"])
    assert 0 < there.sum() < len(docs)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (
            {"sites": ["blocks.0.mixer_uot"]},
            "no site 'blocks.0.mixer_uot'; did you mean 'blocks.0.mixer_out'?",
        ),
        (
            {"sites": ["embed_out", "blocks.2.block_in"]},
            "no site 'blocks.2.block_in'; did you mean",
        ),
        ({"sites": ["blocks.0.mixer.state"]}, "no site 'blocks.0.mixer.state'; did you mean"),
        (
            {"roles": ["kye"]},
            "role='kye' must be a role, a role with an offset as in 'value+1', or '@5'; did you",
        ),
        ({"roles": ["answer"]}, "role='answer' must be a role"),
        ({"sites": []}, "sites must name at least one"),
        ({"roles": []}, "roles must name at least one"),
        ({"conditions": []}, "conditions must name at least one"),
        ({"documents": 0}, "documents=0 must be at least 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_can(asked, line):
    """`state` is Mamba's, not attention's."""
    with pytest.raises(InvalidInput) as error:
        interchange(model_of("attention"), TASKS["recall"], **{"documents": 4, **asked})
    assert str(error.value).startswith(line)
    assert error.value.exit_code == 2


def test_an_unknown_condition_is_refused_with_the_known_ones():
    with pytest.raises(
        InvalidInput
    ) as error:  # the type checks of the tests would refuse it before
        module._check(model_of("attention"), ["embed_uot"], ["key"], ["resotred"], 4)
    assert error.value.problems[0].startswith("no site 'embed_uot'; did you mean 'embed_out'?")
    assert (
        error.value.problems[1] == "condition='resotred' must be one of restored, ablated, control"
    )


def test_a_task_without_other_answers_is_refused():
    with pytest.raises(
        InvalidInput, match="corrupt=key by resample changes the answer of none of 8 documents"
    ):
        interchange(
            random("attention", Recall(pairs=1, vocab=2)), Recall(pairs=1, vocab=2), documents=8
        )


class Evasive(torch.nn.Module):
    """A mixer with a site that it passes as often as it likes."""

    passes = 1

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.out_proj = torch.nn.Linear(d_model, d_model)
        self.inside = Site("batch time d_model", "what may be passed")

    def forward(self, x):
        for _ in range(self.passes):
            x = self.inside(x)
        return self.out_proj(x.cumsum(dim=1))


@pytest.fixture
def evasive(own_names):
    register_mixer("evasive")(Evasive)
    model = LanguageModel(
        ModelConfig(architecture="evasive", d_model=8, max_len=16), TASKS["recall"].vocab_size
    )
    return model.requires_grad_(False)


@pytest.mark.parametrize("passes", [0, 2])
def test_a_site_that_is_not_passed_once_gives_no_number(evasive, passes, monkeypatch):
    asked = {"roles": ["key", "query"], "documents": 4}
    interchange(evasive, TASKS["recall"], ["blocks.1.mixer.inside"], **asked)
    monkeypatch.setattr(Evasive, "passes", passes)
    with pytest.raises(
        InterventionError, match=rf"blocks\.1\.mixer\.inside was hit {passes} times"
    ):
        interchange(evasive, TASKS["recall"], ["blocks.1.mixer.inside"], **asked)
    with pytest.raises(
        InterventionError, match=rf"blocks\.1\.mixer\.inside was hit {passes} times"
    ):
        interchange(evasive, TASKS["recall"], ["embed_out", "blocks.1.mixer.inside"], **asked)
    assert not any(site.used for site in sites(evasive).values())


def test_a_site_that_is_passed_only_in_a_plain_run_gives_no_number(evasive, monkeypatch):
    """It was recorded, and then the forward pass took another way."""
    plain = trace._resume

    def another_way(*arguments):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Evasive, "passes", 0)
            return plain(*arguments)

    monkeypatch.setattr(trace, "_resume", another_way)
    with pytest.raises(InterventionError, match=r"blocks\.1\.mixer\.inside was hit 0 times"):
        interchange(evasive, TASKS["recall"], ["blocks.1.mixer.inside"], ["key"], documents=4)


@pytest.mark.parametrize(
    "name", ["embed_out", "blocks.1.block_in", "blocks.0.mlp_out", "blocks.1.mixer.query"]
)
def test_a_patch_that_changes_nothing_although_it_should_gives_no_number(name, monkeypatch):
    monkeypatch.setattr(trace, "put", lambda value, at: lambda x, site: x)
    with pytest.raises(InterventionError, match="had no effect although"):
        interchange(model_of("attention"), TASKS["recall"], [name], ["key"], documents=4)


@every_architecture
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_model_that_is_not_finite_gives_no_number(architecture, bad):
    model = random(architecture, TASKS["recall"]).requires_grad_(False)
    model.blocks[1].mixer_out.edits.append(lambda x, site: x * bad)
    with pytest.raises(InterventionError, match="not finite"):
        interchange(model, TASKS["recall"], ["blocks.0.block_in"], ["key"], documents=4)


def test_one_logit_that_is_not_finite_is_enough():
    model = random("attention", TASKS["recall"]).requires_grad_(False)
    for bad in (torch.nan, torch.inf, -torch.inf):
        model.embedding.weight[0, 0] = (
            bad  # the padding, which no short document reads: only its logit is bad
        )
        with pytest.raises(InterventionError, match="not finite"):
            interchange(
                model, Recall(pairs=5, vocab=24), ["blocks.0.block_in"], ["key"], documents=4
            )


def test_a_model_that_breaks_only_where_it_is_patched_gives_no_number():
    model = random("attention", TASKS["recall"]).requires_grad_(False)
    seen = []

    def late(x, site):
        seen.append(1)
        return x * (torch.nan if len(seen) > 3 else 1.0)

    with (
        patch(model, {"blocks.1.block_in": late}),
        pytest.raises(InterventionError, match="not finite"),
    ):
        interchange(model, TASKS["recall"], ["blocks.0.block_in"], ["key"], documents=4)


def test_the_model_is_left_as_it_was():
    model, task = random("mamba", TASKS["recall"]), TASKS["recall"]
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    tokens = torch.from_numpy(task.documents(0, "test", 0, 4).tokens).long()
    plain = model(tokens)
    grid = interchange(
        model, task, list(sites(model)), conditions=["restored", "ablated", "control"], documents=4
    )
    again = interchange(
        model, task, list(sites(model)), conditions=["restored", "ablated", "control"], documents=4
    )
    assert torch.equal(model(tokens), plain)
    assert not any(site.used for site in sites(model).values())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    for cell, values in grid.cells.items():
        for metric in METRICS:
            assert np.array_equal(values[metric], again.cells[cell][metric], equal_nan=True), (
                "the same every time"
            )


def test_without_sites_the_grid_is_the_papers():
    found = {layer_of(name): set() for name in stream_sites(model_of("attention"))}
    for name in stream_sites(model_of("attention")):
        found[layer_of(name)].add(name.rpartition(".")[2])
    six = {"block_in", "mixer_in", "mixer_out", "mlp_in", "mlp_out", "block_out"}
    assert found == {0: six, 1: six}
    assert not any("mlp" in name for name in stream_sites(model_of("mamba")))
    grid = interchange(model_of("mamba"), TASKS["recall"], documents=2)
    assert {cell[1] for cell in grid.cells} == set(stream_sites(model_of("mamba")))
    assert {cell[2] for cell in grid.cells} == {"key", "value", "next_key", "divider", "query"}
    assert (layer_of("embed_out"), layer_of("final_in"), layer_of("blocks.11.mixer.state")) == (
        None,
        None,
        11,
    )
