import json
import math
import re

import pytest

from mecheval.core.errors import InvalidInput
from mecheval.core.options import validate
from mecheval.interventions.grid import EvalConfig
from mecheval.models.config import ModelConfig
from mecheval.runs.experiment import Experiment, Settings, fields_of
from mecheval.tasks.recall import Recall
from mecheval.training.config import TrainConfig

SMALL = {"task": "recall:pairs=2,vocab=8", "model.architecture": "attention"}
# every field, and a value that is not its default
OTHER = {
    "task": "recall:pairs=3,vocab=8",
    "model.architecture": "attention:heads=2",
    "model.d_model": 128,
    "model.layers": 3,
    "model.max_len": 512,
    "model.init.linear": 2.0,
    "model.init.embedding": 0.5,
    "train.documents": 64,
    "train.epochs": 3,
    "train.steps": 7,
    "train.batch": 16,
    "train.bucket": 8,
    "train.lr": 0.002,
    "train.schedule": "linear",
    "train.warmup": 0.0,
    "train.stop": 0.9,
    "eval.documents": 8,
    "eval.every": 10,
    "eval.grid": "stream",
    "eval.grid_documents": 8,
    "eval.grid_split": "both",
    "eval.grid_every": 2,
    "seed": 1,
}
# names for ever: a run of any version is found by them
KEYS = {
    "7288858f1f44fd4cef6ab1899da0bd08d7a279c4d7ddff186088712e0e7b68bd": {
        "task": "ar_16pairs",
        "model.architecture": "attention",
    },
    "ad277352b811d10b8e4090340e834076fab833777d862cdba452ec54fb233c0e": {
        "task": "atr",
        "model.architecture": "mamba:d_conv=2",
        "model.layers": 1,
        "train.epochs": 32,
        "train.lr": 3e-3,
        "seed": 7,
    },
    "103374fbb1d06538717e0347cf8dd5aac47ea63da5109d555dbb7b4123a473b4": {
        "task": "recall:pairs=4,vocab=64,queries=2",
        "model.architecture": "based:kernel=long",
        "model.d_model": 32,
        "model.max_len": 64,
        "model.init.linear": 3,
        "model.init.embedding": 5.0,
        "train.documents": 0,
        "train.steps": 600,
        "train.batch": 128,
        "train.schedule": "constant",
        "train.warmup": 0.05,
        "train.stop": 0.95,
        "eval.documents": 512,
        "eval.every": 50,
    },
}


def problems(fields, places=None):
    with pytest.raises(InvalidInput) as error:
        Experiment.of(fields, places)
    return list(error.value.problems)


@pytest.mark.parametrize(("key", "fields"), KEYS.items())
def test_a_key_is_the_same_for_ever(key, fields):
    assert Experiment.of(fields).key == key


@pytest.mark.parametrize("fields", [SMALL, *KEYS.values(), OTHER | {"train.steps": None}])
def test_an_experiment_comes_back_from_its_fields(fields):
    experiment = Experiment.of({name: value for name, value in fields.items() if value is not None})
    again = Experiment.of(experiment.fields())
    assert again == experiment
    assert again.key == experiment.key
    assert again.to_json() == experiment.to_json()
    assert Experiment.of(json.loads(experiment.to_json())).key == experiment.key
    for name, value in fields.items():
        if value is not None and name not in ("task", "model.architecture"):
            assert experiment.fields()[name] == value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"task": "ar_16pairs"}, {"task": "recall:pairs=16"}),
        ({"task": "ar_16pairs:vocab=64"}, {"task": "recall:vocab=64,pairs=16"}),
        ({"task": "recall:pairs=4,vocab=64"}, {"task": "recall:vocab=64,pairs=4"}),
        ({"task": "recall:pairs=32,queries=1,held_out=0.0"}, {"task": "recall"}),
        ({"task": "recall:held_out=0"}, {"task": "recall"}),
        ({"task": "atr"}, {"task": "treecall"}),
        ({"model.architecture": "mamba:d_conv=4,expand=2"}, {"model.architecture": "mamba"}),
        (
            {"model.architecture": "mamba:d_state=8,d_conv=2"},
            {"model.architecture": "mamba:d_conv=2,backend=auto,d_state=8"},
        ),
        ({"train.lr": 1}, {"train.lr": 1.0}),
        ({"model.init.linear": 3}, {"model.init.linear": 3.0}),
        ({"train.lr": 1e-3, "seed": 0, "eval.every": 500, "model.max_len": 1024}, {}),
    ],
)
def test_the_same_experiment_in_other_words_has_the_same_key(one, other):
    first, second = Experiment.of(SMALL | one), Experiment.of(SMALL | other)
    assert first.key == second.key
    assert first.name == second.name


def test_every_field_is_part_of_the_key():
    assert OTHER.keys() == fields_of().keys(), "a new field must be changed here, too"
    keys = {Experiment.of(SMALL).key}
    for name, value in OTHER.items():
        keys.add(Experiment.of(SMALL | {name: value}).key)
    assert len(keys) == 1 + len(OTHER)


def test_an_experiment_made_in_python_is_the_same():
    made = Experiment(
        task=Recall(pairs=16),
        model=ModelConfig(architecture="mamba:expand=2", layers=1, init_linear=2.0),
        train=TrainConfig(lr=3e-3, steps=10),
        eval=EvalConfig(every=5),
        seed=3,
    )
    fields = {
        "task": "recall:pairs=16",
        "model.architecture": "mamba",
        "model.layers": 1,
        "model.init.linear": 2.0,
    }
    fields |= {"train.lr": 3e-3, "train.steps": 10, "eval.every": 5, "seed": 3}
    assert Experiment.of(fields) == made
    assert made.fields().items() >= fields.items()


@pytest.mark.parametrize("fields", [SMALL, *KEYS.values()])
def test_an_experiment_comes_back_from_its_record(fields):
    experiment = Experiment.of(fields)
    assert experiment.record() == {"key": experiment.key, **experiment.fields()}
    assert Experiment.from_record(experiment.record()) == experiment


def test_a_name_is_readable_and_a_name_of_a_folder():
    experiment = Experiment.of(SMALL)
    assert experiment.name == f"recall-attention-{experiment.key[:16]}"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"train.lr": 0}, "train.lr=0 must be a number above 0 to 1e+09"),
        ({"train.lr": math.nan}, "train.lr=nan must be a number above 0"),
        ({"train.lr": math.inf}, "train.lr=inf must be a number above 0"),
        ({"train.lr": "fast"}, "train.lr=fast must be a number above 0"),
        ({"train.lr": [1, 2]}, "train.lr=[1, 2] must be a number above 0"),
        ({"train.steps": 1.0}, "train.steps=1.0 must be an integer from 1"),
        ({"train.steps": True}, "train.steps=true must be an integer from 1"),
        ({"train.steps": 2, "train.epochs": 1}, "train.epochs=1 and steps=2 exclude each other"),
        ({"train.documents": 0}, "train.documents=0 must come with steps"),
        (
            {"train.documents": 8},
            "train.documents=8 must be 0 (fresh ones for every step) or at least batch=32",
        ),
        ({"train.schedule": "step"}, "train.schedule=step must be one of cosine, linear, constant"),
        ({"model.d_model": 0}, "model.d_model=0 must be an integer from 1"),
        ({"model.d_model": "64"}, 'model.d_model="64" must be an integer from 1'),
        ({"model.init.linear": 0.0}, "model.init.linear=0.0 must be a number above 0"),
        ({"model.init.embedding": -1}, "model.init.embedding=-1 must be a number above 0"),
        (
            {"model.init_linear": 2.0},
            "model.init_linear=2.0: no such field; did you mean 'model.init.linear'?",
        ),
        (
            {"model.architecture": "mmaba"},
            "model.architecture…no architecture named 'mmaba'; did you mean 'mamba'?",
        ),
        (
            {"model.architecture": "mamba:d_conv=99"},
            "model.architecture…mamba: d_conv=99 must be an integer",
        ),
        (
            {"model.architecture": "attention:heads=3"},
            "model.architecture…attention: heads=3 must divide d_model=64",
        ),
        ({"model.architecture": 5}, "model.architecture=5 must be text"),
        ({"task": "recal"}, "task=recal: no task named 'recal'; did you mean 'recall'?"),
        (
            {"task": "recall:pairs=0"},
            "task=recall:pairs=0: recall: pairs=0 must be an integer from 1",
        ),
        ({"task": 5}, "task=5 must be text"),
        (
            {"model.max_len": 6},
            "model.max_len=6 must be at least 7, the longest document of recall:pairs=2,vocab=8",
        ),
        (
            {"task": "recall:pairs=600"},
            "model.max_len=1024 must be at least 1203, the longest document",
        ),
        ({"eval.every": 0}, "eval.every=0 must be an integer from 1"),
        ({"eval.documents": 1.5}, "eval.documents=1.5 must be an integer from 1"),
        ({"seed": -1}, "seed=-1 must be an integer from 0"),
        ({"seed": 2**32}, "seed=4294967296 must be an integer from 0 and below 4294967296"),
        ({"seed": False}, "seed=false must be an integer from 0"),
        ({"train.device": "cuda"}, "train.device=cuda: no such field; use --device"),
        ({"save_every": 5}, "save_every=5: no such field; use --save-every"),
        ({"sed": 1}, "sed=1: no such field; did you mean 'seed'?"),
        ({"train": 3}, "train=3: no such field"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_allowed(fields, expected):
    (found,) = problems(SMALL | fields)
    assert re.match(".*".join(map(re.escape, expected.split("…"))), found)


def test_a_field_that_is_needed_is_asked_for():
    found = problems({})
    assert [problem.split("'")[1] for problem in found] == ["task", "model.architecture"]


def test_all_wrong_fields_are_reported_at_once_each_with_its_place():
    fields = {
        "task": "recall:pairs=0,vocab=7",
        "model.layers": 0,
        "train.lr": -1,
        "train.warmup": 2,
        "eval.every": 0,
        "seed": -1,
        "tain.lr": 1,
    }
    places = {name: f"x.toml:{line}" for line, name in enumerate(fields, 1)}
    found = problems({"model.architecture": "attention"} | fields, places)
    assert sorted(problem.split("=")[0] for problem in found) == [
        "x.toml:1: task",
        "x.toml:1: task",
        "x.toml:2: model.layers",
        "x.toml:3: train.lr",
        "x.toml:4: train.warmup",
        "x.toml:5: eval.every",
        "x.toml:6: seed",
        "x.toml:7: tain.lr",
    ]


def test_a_problem_of_an_architecture_has_its_place():
    places = {"model.architecture": "x.toml:2", "model": "x.toml:9"}
    (found,) = problems(SMALL | {"model.architecture": "mmaba"}, places)
    assert found.startswith("x.toml:2: model.architecture")
    assert "no architecture named 'mmaba'" in found


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"device": "tpu"}, "device=tpu must be one of cpu, cuda, mps"),
        ({"threads": 0}, "threads=0 must be an integer from 1 to 1024"),
        ({"threads": True}, "threads=true must be"),
        ({"save_every": -1.0}, "save_every=-1.0 must be a number from 0"),
        ({"save_every": math.nan}, "save_every=nan must be a number from 0"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(options, line):
    with pytest.raises(InvalidInput) as error:
        validate(Settings, options, given=("plugins",))
    (found,) = error.value.problems
    assert found.startswith(line)


def test_a_document_too_long_for_the_model_has_its_place():
    (found,) = problems(SMALL | {"model.max_len": 6}, {"model.max_len": "x.toml:3"})
    assert found.startswith("x.toml:3: model.max_len=6")


def test_a_wrong_architecture_is_reported_beside_other_wrong_fields_of_the_model():
    found = problems(SMALL | {"model.architecture": "mmaba", "model.layers": 0})
    assert len(found) == 2


def test_a_wrong_option_of_a_mixer_is_no_field_of_the_model():
    (found,) = problems(SMALL | {"model.architecture": "mamba:layers="})
    assert found.startswith("model.architecture")


def test_sixteen_epochs_are_sixteen_epochs():
    assert Experiment.of(SMALL | {"train.epochs": 16}).key == Experiment.of(SMALL).key
