import numpy as np
import pytest

from mecheval.training.config import TrainConfig
from mecheval.training.schedule import rate

SCHEDULES = ("cosine", "linear", "constant")


def rates(**options):
    config = TrainConfig(**options)
    return np.array([rate(config, step) for step in range(config.total)])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0.0, 0.05, 0.1, 0.5, 1.0])
def test_the_rate_goes_up_to_the_top_and_never_up_again(schedule, warmup):
    for steps in (1, 2, 7, 100, 1001):
        found = rates(schedule=schedule, warmup=warmup, steps=steps, lr=0.25)
        top = int(found.argmax())
        assert found[0] > 0, steps
        assert found[top] == 0.25, steps
        assert (np.diff(found[: top + 1]) > 0).all(), steps
        assert (np.diff(found[top:]) <= 0).all(), steps
        assert (found > 0).all(), steps


@pytest.mark.parametrize(
    ("schedule", "low", "high"),
    [("cosine", 3e-6, 4e-6), ("linear", 1e-3, 1.2e-3), ("constant", 1.0, 1.0)],
)
def test_the_rate_ends_near_0_unless_it_is_constant(schedule, low, high):
    found = rates(schedule=schedule, warmup=0.1, steps=1000, lr=1.0)
    assert low <= found[-1] <= high


def test_a_tenth_of_the_steps_warms_up_in_a_line():
    """§4.1."""
    found = rates(steps=1000, lr=3e-3)
    np.testing.assert_allclose(found[:100], 3e-3 * np.arange(1, 101) / 100, rtol=1e-15)
    assert (found[101:] < 3e-3).all()


def test_the_cosine_is_half_way_down_in_the_middle_and_flat_at_both_ends():
    found = rates(steps=1000, warmup=0.0, lr=1.0)
    assert found[500] == pytest.approx(0.5, abs=1e-15)
    assert found[250] == pytest.approx((1 + 0.5**0.5) / 2, abs=1e-15)
    np.testing.assert_allclose(found[1:] + found[:0:-1], 1.0, atol=1e-14)


def test_the_line_goes_down_by_the_same_amount_every_step():
    found = rates(schedule="linear", steps=50, warmup=0.0, lr=1.0)
    np.testing.assert_allclose(found, 1 - np.arange(50) / 50, rtol=1e-15)


def test_without_warmup_the_first_step_is_the_fastest():
    for schedule in SCHEDULES:
        assert rates(schedule=schedule, steps=10, warmup=0.0, lr=0.5)[0] == 0.5


def test_with_nothing_but_warmup_the_last_step_is_the_fastest():
    for schedule in SCHEDULES:
        np.testing.assert_allclose(
            rates(schedule=schedule, steps=4, warmup=1.0, lr=1.0), [0.25, 0.5, 0.75, 1.0]
        )
