"""The docstrings of the public names: their sections are complete and their examples run."""

import doctest
import inspect

import pytest

import mecheval

# what is called or built; the others are constants, errors and interfaces
DOCUMENTED = [
    name
    for name in mecheval.__all__
    if name not in {"Card", "Kind", "Role", "Split", "Task"}
    and not name.isupper()
    and not name.endswith(("Error", "Failed", "Input"))
]
RETURNED = {"Verdict", "Grammar", "Measurement", "TokenMixing"}  # not built by users
LONG = {"sweep", "card"}  # which start processes
FLAGS = doctest.ELLIPSIS
SKIP = "+" + "SKIP"


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in DOCUMENTED],
)
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(getattr(mecheval, name))
    (example,) = [doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, name, "", 0)]
    assert example.examples, f"{name} has no example"
    assert SKIP not in text
    printed = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    assert not runner.run(example, out=printed.append).failed, "".join(printed)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_parameter_of_a_public_name_is_described(name):
    target = getattr(mecheval, name)
    text = inspect.getdoc(target)
    parameters = inspect.signature(target).parameters
    if inspect.isfunction(target):
        assert "\nReturns\n-------\n" in text
    if name in RETURNED:
        return
    _, heading, rest = text.partition("\nParameters\n----------\n")
    assert heading
    described = {line for line in rest.splitlines() if line and not line.startswith(" ")}
    assert {parameter for parameter in parameters if parameter != "_"} <= described


@pytest.mark.parametrize("name", DOCUMENTED)
def test_no_signature_shows_the_insides_of_pydantic(name):
    assert "FieldInfo" not in str(inspect.signature(getattr(mecheval, name)))
