import pytest

from mecheval.core.errors import InvalidInput
from mecheval.runs.experiment import Experiment
from mecheval.runs.overrides import Written, from_toml, from_words

TOML = """\
# an experiment
task = "recall:pairs=2,vocab=8"
seed = 3

[model]
architecture = "attention"  # a Transformer
d_model = 8

[model.init]
linear = 3
embedding = 5.0

[train]
steps = 12
lr = 3e-3
"""
FIELDS = {
    "task": "recall:pairs=2,vocab=8",
    "seed": 3,
    "model.architecture": "attention",
    "model.d_model": 8,
    "model.init.linear": 3,
    "model.init.embedding": 5.0,
    "train.steps": 12,
    "train.lr": 3e-3,
}
LINES = {
    "task": 2,
    "seed": 3,
    "model.architecture": 6,
    "model.d_model": 7,
    "model.init.linear": 10,
    "model.init.embedding": 11,
    "train.steps": 14,
    "train.lr": 15,
}


@pytest.fixture
def written(tmp_path):
    def write(text):
        file = tmp_path / "x.toml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return write


def problems(function, *arguments):
    with pytest.raises(InvalidInput) as error:
        function(*arguments)
    return list(error.value.problems)


def test_tables_are_fields_with_the_line_of_each(written):
    file = written(TOML)
    found = from_toml(file)
    assert found.values == FIELDS
    assert found.places == {name: f"{file}:{line}" for name, line in LINES.items()}


def test_dotted_keys_are_the_same_thing(written):
    dotted = "\n".join(f"{name} = {value!r}" for name, value in FIELDS.items())
    found = from_toml(written(dotted))
    assert found.values == FIELDS
    assert [place.rpartition(":")[2] for place in found.places.values()] == list("12345678")
    mixed = 'task = "recall"\n[model]\narchitecture = "mamba"\n'
    mixed += 'init.linear = 2\n"d_model" = 8\ninit . embedding = 3'
    found = from_toml(written(mixed))
    assert found.values == {
        "task": "recall",
        "model.architecture": "mamba",
        "model.init.linear": 2,
        "model.d_model": 8,
        "model.init.embedding": 3,
    }
    assert [place.rpartition(":")[2] for place in found.places.values()] == [
        "1",
        "3",
        "4",
        "6",
        "5",
    ]


def test_an_inline_table_is_fields_too(written):
    file = written('task = "recall"\nmodel = {architecture = "mamba", init = {linear = 2}}\n')
    found = from_toml(file)
    assert found.values == {"task": "recall", "model.architecture": "mamba", "model.init.linear": 2}
    assert found.places["model.init.linear"].startswith(str(file))


def test_every_wrong_line_of_a_file_is_named(written):
    file = written(
        TOML.replace("d_model = 8", "d_model = 0").replace("seed = 3", "seed = true\nsede = 1")
    )
    written_in = from_toml(file)
    found = problems(Experiment.of, written_in.values, written_in.places)
    assert sorted(problem.partition("=")[0] for problem in found) == [
        f"{file}:3: seed",
        f"{file}:4: sede",
        f"{file}:8: model.d_model",
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("task = ", ["not TOML", "end of document"]),
        ("task recall", ["not TOML", "line 1"]),
        ('task = "recall', ["not TOML", "end of document"]),
        ("task = recall", ["not TOML", "line 1"]),
        ("[train]\nlr = 1\nlr = 2\n", ["not TOML", "line 3"]),
        ("[train]\nlr = 1\n[train]\nsteps = 2\n", ["not TOML", "line 3"]),
        ("train.lr = 1\ntrain = 2\n", ["not TOML", "line 2"]),
        ("[train\nlr = 1", ["not TOML", "line 1"]),
        (b"task = '\xff'", ["cannot be read", "utf-8"]),
        (b"\x80\x04\x95", ["cannot be read", "utf-8"]),
    ],
)
def test_what_is_no_toml_is_refused_with_its_line(text, named, written):
    file = written(text)
    (found,) = problems(from_toml, file)
    assert str(file) in found
    assert [word for word in named if word not in found] == []


@pytest.mark.parametrize("path", ["nowhere.toml", ".", "x.toml/y.toml"])
def test_a_file_that_cannot_be_read_is_refused(path, tmp_path, written):
    written(TOML)
    (found,) = problems(from_toml, tmp_path / path)
    assert found.startswith(f"file='{tmp_path / path}' cannot be read")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lr = nan", "train.lr=nan must be a number"),
        ("lr = inf", "train.lr=inf must be a number"),
        ("lr = true", "train.lr=true must be a number"),
        ('lr = "3e-3"', 'train.lr="3e-3" must be a number'),
        ("lr = [1e-3, 3e-3]", "train.lr=[0.001, 0.003] must be a number"),
        ("lr = 2026-01-01", "train.lr=datetime.date(2026, 1, 1) must be a number"),
        ("steps = 10.0", "train.steps=10.0 must be an integer"),
        ("rate = 1", "train.rate=1: no such field"),
        ("lr.high = 1", "train.lr.high=1: no such field"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_where_it_stands(line, expected, written):
    file = written(f'task = "recall"\nmodel.architecture = "mamba"\n[train]\n{line}\n')
    found = from_toml(file)
    (problem,) = problems(Experiment.of, found.values, found.places)
    assert problem.startswith(f"{file}:4: {expected}")


def test_words_are_read_as_they_would_be_typed():
    words = [
        "train.lr=3e-3",
        "seed=7",
        "train.schedule=linear",
        "a.b=true",
        'c="7"',
        "task=recall:pairs=2,vocab=8",
    ]
    assert from_words(words).values == {
        "train.lr": 3e-3,
        "seed": 7,
        "train.schedule": "linear",
        "a.b": True,
        "c": "7",
        "task": "recall:pairs=2,vocab=8",
    }
    assert type(from_words(["train.lr=1"]).values["train.lr"]) is int


def test_every_word_that_is_no_field_is_reported():
    found = problems(
        from_words, ["train.lr", "=3", "seed=", "seed=1", "seed=2", 'x="y', "train.steps=5"]
    )
    assert [problem.split(" ")[0] for problem in found] == [
        "'train.lr'",
        "'=3'",
        "'seed='",
        "seed",
        "'x=\"y'",
    ]
    assert "given twice: 1 and '2'" in found[3]


def test_an_override_is_reported_by_its_own_words():
    words = ["task=recall:pairs=0", "model.architecture=mamba", "train.lr=-1", "train.stpes=3"]
    written = from_words(words)
    found = problems(Experiment.of, written.values, written.places)
    assert sorted(problem.partition(" ")[0].rstrip(":") for problem in found) == [
        words[0],
        words[2],
        words[3],
    ]


def test_what_is_written_later_wins(written):
    both = from_toml(written(TOML)) | from_words(["train.lr=0.5", "eval.every=2"])
    assert both.values == FIELDS | {"train.lr": 0.5, "eval.every": 2}
    assert both.places["seed"].endswith("x.toml:3")
    assert (Written() | both) == both


def test_an_override_is_not_blamed_on_the_files_line(tmp_path):
    (file := tmp_path / "x.toml").write_text("train.lr = 0.1\n")
    both = from_toml(file) | from_words(["train.lr=-1"])
    with pytest.raises(InvalidInput, match=r"^train\.lr=-1 must be"):
        Experiment.of({**FIELDS, **both.values}, both.places)


def test_a_key_without_letters_takes_no_other_place(tmp_path):
    (file := tmp_path / "x.toml").write_text('"" = 2\n[train]\nlr = -1\n')
    w = from_toml(file)
    with pytest.raises(InvalidInput) as error:
        Experiment.of({**FIELDS, **w.values}, w.places)
    assert any(problem.startswith(f"{file}:3: train.lr") for problem in error.value.problems)
