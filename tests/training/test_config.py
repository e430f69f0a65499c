import pytest

from mecheval.core.errors import InvalidInput
from mecheval.core.options import validate
from mecheval.interventions.grid import EvalConfig
from mecheval.training.config import TrainConfig


def test_the_papers_training_takes_50016_steps():
    """§4.1: 16 epochs of 100,032 documents by 32."""
    assert TrainConfig().total == 50_016
    assert TrainConfig(epochs=16).total == 50_016
    assert TrainConfig(epochs=32).total == 100_032


def test_what_does_not_fill_a_batch_is_left_out_of_every_epoch():
    assert TrainConfig(documents=100, batch=32, epochs=5).total == 15
    assert TrainConfig(documents=32, batch=32, epochs=1).total == 1
    assert TrainConfig(documents=95, batch=48, epochs=2).total == 2


def test_steps_take_the_place_of_epochs():
    assert TrainConfig(steps=7).total == 7
    assert TrainConfig(documents=0, steps=10**9).total == 10**9


def test_whole_numbers_become_rates():
    config = TrainConfig(**validate(TrainConfig, {"lr": 1, "warmup": 0, "stop": 1, "steps": 1}))
    assert [repr(value) for value in (config.lr, config.warmup, config.stop)] == [
        "1.0",
        "0.0",
        "1.0",
    ]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"documents": -1}, "documents=-1 must be an integer from 0 to"),
        ({"documents": 2**24 + 1}, "documents=16777217 must be"),
        (
            {"documents": 31},
            "documents=31 must be 0 (fresh ones for every step) or at least batch=32",
        ),
        (
            {"documents": 100, "batch": 101},
            "documents=100 must be 0 (fresh ones for every step) or at least batch=101",
        ),
        ({"documents": 0}, "documents=0 must come with steps"),
        ({"documents": 0, "epochs": 3}, "documents=0 must come with steps"),
        ({"epochs": 3, "steps": 5}, "epochs=3 and steps=5 exclude each other"),
        ({"epochs": 0}, "epochs=0 must be an integer from 1"),
        ({"steps": 0}, "steps=0 must be an integer from 1"),
        ({"steps": True}, "steps=true must be an integer"),
        ({"steps": 10.0}, "steps=10.0 must be an integer"),
        ({"batch": 0}, "batch=0 must be an integer from 1"),
        ({"lr": 0.0}, "lr=0.0 must be a number above 0"),
        ({"lr": -1e-3}, "lr=-0.001 must be a number above 0"),
        ({"lr": float("nan")}, "lr=nan must be a number above 0"),
        ({"lr": float("inf")}, "lr=inf must be a number above 0"),
        ({"lr": "fast"}, "lr=fast must be a number above 0"),
        ({"lr": True}, "lr=true must be a number above 0"),
        ({"warmup": 1.01}, "warmup=1.01 must be a number from 0 to 1"),
        ({"warmup": -0.1}, "warmup=-0.1 must be a number from 0 to 1"),
        ({"schedule": "step"}, "schedule=step must be one of cosine, linear, constant"),
        ({"stop": 0.0}, "stop=0.0 must be a number above 0 to 1"),
        ({"stop": 1.5}, "stop=1.5 must be a number above 0 to 1"),
    ],
)
def test_a_training_that_cannot_be_meant_is_refused(options, line):
    with pytest.raises(InvalidInput) as error:
        validate(TrainConfig, options)
    (found,) = error.value.problems
    assert found.startswith(line)


@pytest.mark.parametrize(
    "options", [{"documents": 0}, {"every": 0}, {"documents": True}, {"every": 1.0}]
)
def test_an_evaluation_that_cannot_be_meant_is_refused(options):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        validate(EvalConfig, options)


def test_every_wrong_field_is_reported_at_once():
    with pytest.raises(InvalidInput) as error:
        validate(
            TrainConfig,
            {"documents": 10, "batch": 11, "lr": 0, "schedule": "up", "epochs": 1, "steps": 1},
        )
    assert [problem.split("=")[0] for problem in error.value.problems] == [
        "lr",
        "schedule",
        "documents",
        "epochs",
    ]


def test_a_training_made_in_python_is_checked_too():
    with pytest.raises(InvalidInput, match=r"lr=-1\.0"):
        TrainConfig(lr=-1.0)
    with pytest.raises(InvalidInput, match="every=0"):
        EvalConfig(every=0)
