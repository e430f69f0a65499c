"""What to try next follows from the measurements, in order, with n and interval."""

import numpy as np
import pytest
from cards.test_said import LINE

from mecheval.cards.advice import FALLING, advise, improving, with_advice
from mecheval.cards.diagnosis import slope


def share(value, half=0.02, n=1024):
    low, high = max(value - half, 0.0), min(value + half, 1.0)
    return {"value": value, "low": low, "high": high, "n": n}


def changes(tokens, possible, layer=None):
    return {"layer": layer, "tokens": tokens, "possible": possible, "changes": []}


FLAT = {"value": -0.001, "low": -0.004, "high": 0.002, "n": 10, "steps": 3000, "total": 3000}
FLAT |= {"first_step": 2100}
LEARNING = {**FLAT, "value": -0.12, "low": -0.14, "high": -0.1}
GONE = {"value": 1e-6, "low": 1e-7, "high": 2e-6, "n": 10}
ROW = {
    "task": LINE.task,
    "test": share(0.6),
    "train": share(0.62),
    "from_document": share(0.7),
    "chance": 0.25,
    "without_recall": "any value of the document 25.0%",
    "trained_pairs": 8,
    "by_pairs": [
        {"pairs": 2, **share(0.7), "chance": 0.5},
        {"pairs": 8, **share(0.5), "chance": 0.125},
    ],
    "curve": FLAT,
    "gradient_norm": {"value": 0.5, "low": 0.4, "high": 0.6, "n": 10},
    "reach": [changes(10, 10), changes(10, 10, layer=0)],
    "farther": share(0.0, 0.0),
    "trained_on": 256,
}


@pytest.mark.parametrize(
    ("changed", "tried", "evidence"),
    [
        (
            {"reach": [changes(4, 4), changes(2, 2, layer=0)], "farther": share(0.75)},
            "Widen the window",
            "the receptive field is 4 tokens (2 in layer 0), and nothing beyond it matters; "
            "75% [73%, 77%; n=1,024] of the keys are farther from the query.",
        ),
        (
            {"reach": [changes(4, 10)], "farther": share(0.75)},
            "Let it read farther back",
            "tokens up to 10 back change the output, by less than 1 %.",
        ),
        (
            {"train": share(1.0), "test": share(0.28)},
            "Train on more documents.",
            "train 100% [98%, 100%; n=1,024], test 28% [26%, 30%; n=1,024]: it memorises; "
            "there were 256 to train on.",
        ),
        (
            {"curve": LEARNING},
            "Train longer.",
            "the dev loss was still falling 12 % [10, 14] in 100 steps, over 10 evaluations "
            "from step 2,100.",
        ),
        (
            {
                "by_pairs": [
                    {"pairs": 2, **share(0.95), "chance": 0.5},
                    {"pairs": 8, **share(0.3), "chance": 0.125},
                ]
            },
            "Give it a larger state",
            "95% [93%, 97%; n=1,024] with 2 pairs",
        ),
        (
            {"gradient_norm": GONE},
            "Check the scale of the initial weights.",
            "the gradient has vanished",
        ),
        (
            {"test": share(0.26), "train": share(0.26), "from_document": share(0.97)},
            "Help it to join key and value",
            "26% [24%, 28%; n=1,024] right; without recall: any value of the document 25.0%.",
        ),
    ],
)
def test_each_finding_has_its_advice_and_nothing_else_has(changed, tried, evidence):
    (step,) = advise({**ROW, **changed}, LINE)
    assert step["try"].startswith(tried)
    assert evidence in step["evidence"]
    assert not advise(ROW, LINE)[0]["try"].startswith(tried)


def test_a_rate_at_the_edge_names_the_next():
    from dataclasses import replace

    (step,) = advise(ROW, replace(LINE, rate=1e-2))
    assert step["try"] == "Try the rate 0.03."
    assert (
        "the best rate, 0.01, is the largest tried (of 3, from 0.001 to 0.01)" in step["evidence"]
    )


def test_a_small_gradient_is_right_where_nothing_is_left_to_learn():
    fitted = {**ROW, "gradient_norm": GONE, "train": share(1.0), "test": share(0.28)}
    assert [step["try"] for step in advise(fitted, LINE)] == ["Train on more documents."]


def test_more_pairs_than_in_training_say_nothing_of_the_state():
    pairs = [{"pairs": n, **share(x), "chance": 1 / n} for n, x in ((2, 0.95), (4, 0.9), (8, 0.1))]
    wanted = "Give it a larger state, or more heads."
    assert wanted not in [
        step["try"] for step in advise({**ROW, "by_pairs": pairs, "trained_pairs": 4}, LINE)
    ]
    assert wanted in [step["try"] for step in advise({**ROW, "by_pairs": pairs}, LINE)]


@pytest.mark.parametrize("change", [-0.3, -0.1, -0.05, -0.02, -0.01])
def test_a_loss_that_falls_is_never_said_to_have_stopped(change):
    for noise, known in ((0.001, True), (0.05, False)):
        rng = np.random.default_rng(int(-1000 * change))
        fell = slope(
            curve((1 + change) ** np.arange(24) * np.exp(noise * rng.normal(size=24))), 0, 0
        )
        assert improving({"curve": fell}) in ((True,) if known else (True, None))


@pytest.mark.parametrize("change", [-0.003, -0.001, 0.0, 0.01, 0.05])
def test_a_loss_that_hardly_changes_is_never_said_to_fall(change):
    for noise, known in ((0.001, True), (0.01, False)):
        rng = np.random.default_rng(int(1000 * abs(change)))
        flat = slope(
            curve((1 + change) ** np.arange(24) * np.exp(noise * rng.normal(size=24))), 0, 0
        )
        assert improving({"curve": flat}) in ((False,) if known else (False, None))


def test_the_strongest_reason_comes_first():
    row = {**ROW, "curve": LEARNING, "reach": [changes(4, 4)], "farther": share(0.75)}
    first, second = with_advice([row], [LINE])[0]["next"]
    assert first["try"].startswith("Widen")
    assert second["try"] == "Train longer."


def curve(losses):
    return [{"step": 100 * (i + 1), "loss": loss, "accuracy": 0.3} for i, loss in enumerate(losses)]


def test_a_loss_that_falls_a_tenth_every_hundred_steps_is_said_so():
    falling = slope(curve([0.9**i for i in range(12)]), 1200, 1200)
    assert falling["value"] == pytest.approx(-0.1)
    assert falling["n"] == 4
    assert improving({"curve": falling})
    flat = slope(curve([1.0, 1.01, 0.99, 1.0] * 3), 1200, 1200)
    assert flat["low"] < FALLING < flat["high"]
    assert improving({"curve": flat}) is None, "four noisy points leave it open"
    still = slope(curve([1.0, 1.0001, 0.9999, 1.0] * 3), 1200, 1200)
    assert improving({"curve": still}) is False
    assert improving({"curve": slope(curve([1.0, 0.9]), 200, 200)}) is None, "too few to say"
