"""Later states follow from an edited one as if the recurrence had restarted there."""

import pytest
import torch

from mecheval.models.ops import delta_rule, selective_scan

BATCH, TIME = 3, 9
TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-5}


class Scan:
    """h_t = exp(dt_t A) ∘ h_{t−1} + dt_t B_t x_t"""

    def __init__(self, dtype):
        draw = torch.Generator().manual_seed(0)
        self.x, self.B = (torch.randn(BATCH, TIME, d, generator=draw).to(dtype) for d in (4, 3))
        self.dt = torch.rand(BATCH, TIME, 4, generator=draw).to(dtype)
        self.A = -torch.rand(4, 3, generator=draw).to(dtype)
        self.states = selective_scan.selective_states(self.x, self.dt, self.A, self.B)

    def step(self, h, row, t):
        dt = self.dt[row, t]
        return torch.exp(dt[:, None] * self.A) * h + torch.outer(
            dt * self.x[row, t], self.B[row, t]
        )

    def propagate_edit(self, edited):
        return selective_scan.propagate_edit(self.dt, self.A, self.states, edited)


class Delta:
    """S_t = S_{t−1} + β_t k_t (v_t − k_tᵀ S_{t−1})ᵀ, by head"""

    def __init__(self, dtype):
        draw = torch.Generator().manual_seed(0)
        k, v = (torch.randn(BATCH, TIME, 2, d, generator=draw) for d in (4, 3))
        self.k, self.v = (k / k.norm(dim=-1, keepdim=True)).to(dtype), v.to(dtype)
        self.beta = torch.rand(BATCH, TIME, 2, generator=draw).to(dtype)
        self.states = delta_rule.delta_states(self.k, self.v, self.beta)

    def step(self, S, row, t):
        heads = zip(S, self.k[row, t], self.v[row, t], self.beta[row, t], strict=True)
        return torch.stack([S + beta * torch.outer(k, v - k @ S) for S, k, v, beta in heads])

    def propagate_edit(self, edited):
        return delta_rule.propagate_edit(self.k, self.beta, self.states, edited)


@pytest.fixture(params=[Scan, Delta])
def kind(request):
    return request.param


def restart(recurrence, edits):
    """Compute token by token, continuing from each edit (row, t)."""
    rows = []
    for row in range(BATCH):
        state, states = torch.zeros_like(recurrence.states[0, 0]), []
        for t in range(TIME):
            state = edits.get((row, t), recurrence.step(state, row, t))
            states.append(state)
        rows.append(torch.stack(states))
    return torch.stack(rows)


def with_edits(states, edits):
    edited = states.clone()
    for (row, t), value in edits.items():
        edited[row, t] = value
    return edited


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize(
    "places",
    [
        [(0, 4)],
        [(0, 0)],
        [(0, TIME - 1)],
        [(0, 2), (1, 5), (2, 0)],
        [(1, 2), (1, 6)],
        [(1, 3), (1, 4), (2, 4)],
        [(row, t) for row in range(BATCH) for t in range(TIME)],
    ],
    ids=[
        "middle",
        "first",
        "last",
        "elsewhere in every row",
        "twice",
        "side by side",
        "everywhere",
    ],
)
def test_the_recurrence_continues_from_an_edit(kind, dtype, places):
    recurrence = kind(dtype)
    draw = torch.Generator().manual_seed(1)
    edits = {
        place: torch.randn(recurrence.states.shape[2:], generator=draw).to(dtype)
        for place in places
    }
    truth = restart(recurrence, edits)
    result = recurrence.propagate_edit(with_edits(recurrence.states, edits))
    assert (result - truth).abs().max() <= TOLERANCE[dtype]
    for (row, t), value in edits.items():
        assert torch.equal(result[row, t], value), "an edit is kept to the bit"
    for row in range(BATCH):
        first = min((t for edited, t in places if edited == row), default=TIME)
        assert torch.equal(result[row, :first], recurrence.states[row, :first]), (
            "nothing happens before an edit"
        )


@pytest.mark.parametrize("which", [0, -1])
def test_changing_one_number_of_a_state_is_an_edit(kind, which):
    recurrence = kind(torch.float64)
    value = recurrence.states[1, 3].clone()
    value.view(-1)[which] += 1
    result = recurrence.propagate_edit(with_edits(recurrence.states, {(1, 3): value}))
    assert (result - restart(recurrence, {(1, 3): value})).abs().max() <= TOLERANCE[torch.float64]


def test_without_an_edit_no_bit_changes(kind):
    recurrence = kind(torch.float32)
    assert recurrence.propagate_edit(recurrence.states) is recurrence.states
    assert torch.equal(recurrence.propagate_edit(recurrence.states.clone()), recurrence.states)


def test_the_inputs_are_not_changed(kind):
    recurrence = kind(torch.float64)
    edited = with_edits(recurrence.states, {(0, 2): torch.ones_like(recurrence.states[0, 2])})
    before = recurrence.states.clone(), edited.clone()
    recurrence.propagate_edit(edited)
    assert torch.equal(recurrence.states, before[0])
    assert torch.equal(edited, before[1])


def test_gradients_reach_an_edit_through_later_states(kind):
    recurrence = kind(torch.float64)
    value = torch.ones_like(recurrence.states[0, 2]).requires_grad_()
    last = recurrence.propagate_edit(with_edits(recurrence.states, {(0, 2): value}))[0, -1]
    gradient = torch.autograd.grad(last.sum(), value)[0]
    moved = restart(recurrence, {(0, 2): (value + 1e-6).detach()})[0, -1]
    plain = restart(recurrence, {(0, 2): value.detach()})[0, -1]
    assert gradient.sum() == pytest.approx(float((moved - plain).sum() / 1e-6), rel=1e-6)
