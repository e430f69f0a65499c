"""Identities that hold for any intervention, on every architecture, layer and site.

To the bit, in float32, except where roundings are known to differ:

    a materialised site (`scores` of attention, `state`)    recording it changes the path taken
    a convolution by FFT (`long`, beyond 80 tokens)         it is causal up to rounding only
    documents one by one                                    products of other shapes

There the difference is at most 1e-6 in float32 and 1e-12 in float64, relative to the largest logit.
"""

from functools import cache, cached_property

import numpy as np
import pytest
import torch
from support.known_models import random
from support.task_facts import relative_error

from mecheval.models.edits import put, take
from mecheval.models.ops.long_conv import TOEPLITZ_UP_TO
from mecheval.models.site import patch, record, sites
from mecheval.tasks.recall import Recall
from mecheval.tasks.treecall import Treecall

ARCHITECTURES = ["attention", "base_conv", "based", "delta_net", "h3:d_state=8", "hyena", "mamba"]
TASKS = {
    "recall": Recall(pairs=6, min_pairs=2, vocab=32),
    "treecall": Treecall(max_len=24),
    "long": Recall(pairs=45, min_pairs=38, vocab=128),
}
BY_FFT = ["base_conv", "h3:d_state=8", "hyena"]
CASES = [(name, task) for task in ("recall", "treecall") for name in ARCHITECTURES] + [
    (a, "long") for a in BY_FFT
]
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
ROWS = 6


class Case:
    """A model and documents of different lengths, clean and with another key."""

    def __init__(self, architecture, task, dtype):
        task = TASKS[task]
        self.model, self.dtype = (
            random(architecture, task, dtype=dtype).requires_grad_(False),
            dtype,
        )
        docs = task.documents(0, "test", 0, 4 * ROWS)
        twins = task.corrupt(docs, "key", 0)
        self.docs = docs[np.flatnonzero(twins.usable)[:ROWS]]
        self.clean, self.wrong = (
            torch.from_numpy(d[np.flatnonzero(twins.usable)[:ROWS]].tokens).long()
            for d in (docs, twins.documents)
        )
        self.roles = {role: torch.from_numpy(at).long() for role, at in self.docs.roles.items()}
        self.mixed = torch.stack(list(self.roles.values()))[
            torch.arange(ROWS) % len(self.roles), torch.arange(ROWS)
        ]
        self.time = self.clean.shape[1]
        self.by_fft = self.time > TOEPLITZ_UP_TO
        assert len(set(self.docs.lengths.tolist())) > 1
        assert ((self.clean != self.wrong).sum(dim=1) == 1).all()
        assert len(set(self.mixed.tolist())) > 2

    def run(self, tokens, edits=None):
        """Return logits at the query of a pass over all positions, with edits at sites."""
        with patch(self.model, edits or {}):
            return take(self.model(tokens), self.roles["query"], 1)

    @cached_property
    def seen(self):
        """Record every site in the clean and the corrupt run, each with the logits of its pass."""
        together = [name for name, site in sites(self.model).items() if not site.materialised]
        apart = [[name] for name in sites(self.model) if name not in together]
        found = {}
        for side, tokens in (("clean", self.clean), ("wrong", self.wrong)):
            for names in (together, *apart):
                with record(self.model, names) as seen:
                    logits = self.run(tokens)
                found |= {(side, name): (logits, seen[name]) for name in names}
        return found

    def masked(self, mask, value):
        """Return an edit that puts in a value at some positions of each row."""

        def edit(x, site):
            shape = [1] * x.dim()
            shape[0], shape[site.time] = x.shape[0], x.shape[site.time]
            return torch.where(mask.view(shape), value, x)

        return edit

    @property
    def positions(self):
        return torch.arange(self.time)[None, :]


@cache
def case_of(architecture, task, dtype=torch.float32):
    return Case(architecture, task, dtype)


every_case = pytest.mark.parametrize(("architecture", "task"), CASES)
every_precision = pytest.mark.parametrize(
    "dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch.")
)


def assert_near(found, expected, dtype, *about):
    assert relative_error(found, expected) <= TOLERANCE[dtype], about


def assert_equal(case, found, expected, *about):
    """Assert equality to the bit, or closeness if an FFT lies between."""
    if case.by_fft:
        assert_near(found, expected, case.dtype, *about)
    else:
        assert torch.equal(found, expected), about


@pytest.mark.slow
@every_precision
@every_case
def test_recording_changes_nothing(architecture, task, dtype):
    case = case_of(architecture, task, dtype)
    plain = {"clean": case.run(case.clean), "wrong": case.run(case.wrong)}
    for (side, name), (logits, _) in case.seen.items():
        if sites(case.model)[name].materialised:
            assert_near(logits, plain[side], dtype, name)
        else:
            assert torch.equal(logits, plain[side]), name


@every_case
def test_clean_into_clean_and_corrupt_into_corrupt_change_nothing(architecture, task):
    case = case_of(architecture, task)
    for (side, name), (logits, value) in case.seen.items():
        tokens = case.clean if side == "clean" else case.wrong
        for where in (case.mixed, None):
            assert torch.equal(case.run(tokens, {name: put(value, where)}), logits), name


@every_case
def test_effects_are_there_to_be_seen(architecture, task):
    """Without this the identities would be empty: restoring the key shows at every depth."""
    case = case_of(architecture, task)
    clean, corrupt = case.run(case.clean), case.run(case.wrong)
    assert relative_error(clean, corrupt) > 1e-3
    for name in ("blocks.0.block_in", "blocks.1.block_in"):
        _, value = case.seen["clean", name]
        found = [
            case.run(case.wrong, {name: put(value, case.roles[role])}) for role in ("key", "query")
        ]
        assert max(relative_error(logits, corrupt) for logits in found) > 1e-3, name


@every_case
def test_a_block_input_restored_at_all_positions_is_clean(architecture, task):
    case = case_of(architecture, task)
    for name in ("blocks.0.block_in", "blocks.1.block_in"):
        clean, value = case.seen["clean", name]
        assert torch.equal(case.run(case.wrong, {name: put(value)}), clean), name


@every_case
def test_the_key_restored_before_the_first_block_is_clean(architecture, task):
    case = case_of(architecture, task)
    for name in ("embed_out", "blocks.0.block_in"):
        clean, value = case.seen["clean", name]
        assert torch.equal(case.run(case.wrong, {name: put(value, case.roles["key"])}), clean), name


@pytest.mark.slow
@every_case
def test_positions_before_the_corrupted_token_change_nothing(architecture, task):
    case = case_of(architecture, task)
    before = case.positions < case.roles["key"][:, None]
    for name in sites(case.model):
        corrupt, _ = case.seen["wrong", name]
        _, value = case.seen["clean", name]
        for edit in (put(value, case.roles["key"] - 1), case.masked(before, value)):
            assert_equal(case, case.run(case.wrong, {name: edit}), corrupt, name)


@every_case
def test_positions_after_the_query_change_nothing(architecture, task):
    case = case_of(architecture, task)
    behind = case.positions > case.roles["query"][:, None]
    assert behind.any()
    for name in sites(case.model):
        corrupt, value = case.seen["wrong", name]
        noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(0))
        assert_equal(case, case.run(case.wrong, {name: case.masked(behind, noise)}), corrupt, name)


@every_case
def test_the_last_block_restored_at_the_query_is_clean(architecture, task):
    case = case_of(architecture, task)
    for name in ("blocks.1.block_out", "final_in"):
        clean, value = case.seen["clean", name]
        assert torch.equal(case.run(case.wrong, {name: put(value, case.roles["query"])}), clean), (
            name
        )


@pytest.mark.slow
@every_case
def test_the_output_of_a_block_is_the_input_of_the_next(architecture, task):
    case = case_of(architecture, task)
    for name, same in (
        ("blocks.0.block_out", "blocks.1.block_in"),
        ("blocks.1.block_out", "final_in"),
    ):
        _, value = case.seen["clean", name]
        assert torch.equal(value, case.seen["clean", same][1])
        found = []
        for role, where in case.roles.items():
            one, other = (case.run(case.wrong, {site: put(value, where)}) for site in (name, same))
            assert torch.equal(one, other), (name, role)
            found.append(one)
        assert not all(torch.equal(logits, case.run(case.wrong)) for logits in found), name


@pytest.mark.slow
@every_precision
@pytest.mark.parametrize(("architecture", "task"), [case for case in CASES if case[1] != "long"])
def test_rows_patched_at_different_positions_are_as_if_one_by_one(architecture, task, dtype):
    case = case_of(architecture, task, dtype)
    few = ["blocks.0.mixer_out", "blocks.1.block_in"]  # in float32; in float64 all
    alone = [Alone(case, row) for row in range(1, ROWS, 3)]
    for name in sites(case.model) if dtype == torch.float64 else few:
        together = case.run(case.wrong, {name: put(case.seen["clean", name][1], case.mixed)})
        assert_near(together[1::3], torch.cat([one.patched(name) for one in alone]), dtype, name)


class Alone:
    """One document without padding."""

    def __init__(self, case, row):
        self.model, self.where = case.model, case.mixed[row : row + 1]
        length = int(case.docs.lengths[row])
        clean, self.wrong = (tokens[row : row + 1, :length] for tokens in (case.clean, case.wrong))
        with record(self.model, list(sites(self.model))) as self.seen:
            self.model(clean)

    def patched(self, name):
        with patch(self.model, {name: put(self.seen[name], self.where)}):
            return self.model(self.wrong)[:, -1]


@pytest.mark.slow
@every_case
def test_a_plain_pass_after_patching_or_after_an_exception_is_as_before(architecture, task):
    case = case_of(architecture, task)
    before = case.run(case.wrong)

    def fails(x, site):
        raise ZeroDivisionError

    for name in sites(case.model):
        with pytest.raises(ZeroDivisionError):
            case.run(case.wrong, {name: fails})
        assert not any(site.used for site in sites(case.model).values()), name
    case.run(
        case.wrong,
        {name: put(value + 1) for (side, name), (_, value) in case.seen.items() if side == "clean"},
    )
    assert not any(site.used for site in sites(case.model).values())
    assert torch.equal(case.run(case.wrong), before)


STATEFUL = ["mamba", "mamba:d_conv=0", "delta_net", "delta_net:heads=2"]


@pytest.mark.parametrize("architecture", STATEFUL)
@pytest.mark.parametrize("layer", [0, 1])
def test_a_mixer_continues_from_an_edited_state(architecture, layer):
    """Its output after two edits is computed by hand from its other sites."""
    case = case_of(architecture, "recall", torch.float64)
    name, mixer = f"blocks.{layer}.mixer", case.model.blocks[layer].mixer
    inputs = (
        ["conv_out", "dt"]
        if hasattr(mixer, "dt")
        else ["q_conv_out", "k_conv_out", "v_conv_out", "beta"]
    )
    out = "ssm_out" if hasattr(mixer, "dt") else "head_out"
    state = case.seen["clean", f"{name}.state"][1]
    first, second = case.roles["key"], case.roles["key"] + 2
    put_in = {first: state.flip(0)[:, 1], second: 2 * state.flip(0)[:, 2]}

    def both(x, site):
        for where, value in put_in.items():
            x = put(value, where)(x, site)
        return x

    with (
        patch(case.model, {f"{name}.state": both}),
        record(case.model, [f"{name}.{s}" for s in [*inputs, out]]) as seen,
    ):
        case.model(case.clean)
    passed = [seen[f"{name}.{site}"] for site in inputs]
    for row in range(ROWS):
        own = {int(where[row]): value[row] for where, value in put_in.items()}
        by_hand = (_scanned if hasattr(mixer, "dt") else _remembered)(
            mixer, [x[row] for x in passed], own
        )
        assert_near(seen[f"{name}.{out}"][row], by_hand, torch.float64, row)


def _scanned(mixer, passed, put_in):
    """Mamba's recurrence, token by token."""
    x, dt = passed
    _, B, C = mixer.x_proj(x).split([mixer.dt_rank, mixer.d_state, mixer.d_state], dim=-1)
    A, h, y = -mixer.A_log.exp(), torch.zeros_like(mixer.A_log), []
    for t in range(len(x)):
        h = put_in.get(t, torch.exp(dt[t, :, None] * A) * h + torch.outer(dt[t] * x[t], B[t]))
        y.append(h @ C[t] + mixer.D * x[t])
    return torch.stack(y)


def _remembered(mixer, passed, put_in):
    """The delta rule, token by token and head by head."""
    *qkv, beta = passed
    q, k, v = (x.view(len(x), mixer.heads, -1) for x in qkv)
    q, k = (x / (x.square().sum(dim=-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    S, o = torch.zeros(mixer.heads, k.shape[-1], v.shape[-1], dtype=k.dtype), []
    for t in range(len(k)):
        heads = zip(S, k[t], v[t], beta[t], strict=True)
        S = put_in.get(t, torch.stack([S + b * torch.outer(k, v - k @ S) for S, k, v, b in heads]))
        o.append(torch.stack([S.T @ q for S, q in zip(S, q[t] * k.shape[-1] ** -0.5, strict=True)]))
    return torch.stack(o)


@pytest.mark.parametrize("architecture", STATEFUL)
def test_a_state_restored_where_a_convolution_last_sees_the_key_is_clean_behind_it(architecture):
    """The first layer gets the same tokens but for the key: only the state remembers it."""
    case = case_of(architecture, "recall", torch.float64)
    last = case.roles["key"] + 3  # of four taps
    kept = last < case.roles["query"]
    name, out = "blocks.0.mixer.state", "blocks.0.mixer_out"
    with record(case.model, [out]) as clean:
        case.model(case.clean)
    last = torch.minimum(last, case.roles["query"])
    with (
        patch(case.model, {name: put(case.seen["clean", name][1], last)}),
        record(case.model, [out]) as restored,
    ):
        case.model(case.wrong)
    assert kept.sum() >= 2
    for row in kept.nonzero()[:, 0].tolist():
        start, end = int(last[row]) + 1, int(case.roles["query"][row]) + 1
        assert_near(restored[out][row, start:end], clean[out][row, start:end], torch.float64, row)
        broken = case.seen["wrong", out][1]
        assert relative_error(broken[row, start:end], clean[out][row, start:end]) > 1e-4, (
            "the state did remember it"
        )


@pytest.mark.parametrize("architecture", STATEFUL)
def test_the_state_of_the_only_layer_restored_at_the_query_is_clean(architecture):
    task = TASKS["recall"]
    model = random(architecture, task, layers=1, dtype=torch.float64).requires_grad_(False)
    docs = task.documents(0, "test", 0, 40)
    twins = task.corrupt(docs, "key", 0)
    far = twins.usable & (
        docs.roles["key"] + 4 <= docs.roles["query"]
    )  # the convolution at the query is not the key's
    clean, wrong = (torch.from_numpy(side[far].tokens).long() for side in (docs, twins.documents))
    query = torch.from_numpy(docs[far].roles["query"]).long()
    name = "blocks.0.mixer.state"
    with record(model, [name]) as seen:
        expected = take(model(clean), query, 1)
    with patch(model, {name: put(seen[name], query)}):
        restored = take(model(wrong), query, 1)
    assert_near(restored, expected, torch.float64)
    assert relative_error(take(model(wrong), query, 1), expected) > 1e-4
