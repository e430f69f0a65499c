from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import Field

from mecheval.core.errors import InvalidInput
from mecheval.core.options import options_of, validate, where


def _even_sum(width, heads):
    return f"heads={heads} must divide width={width}" if width % heads else None


@dataclass
class Thing:
    width: Annotated[int, Field(ge=1, le=64, description="how wide")]
    heads: Annotated[int, Field(ge=1)] = 1
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.5
    kernel: Annotated[int, Field(ge=1)] | Literal["long"] = 3
    side: Literal["left", "right"] = "right"
    flag: bool = False

    constraints: ClassVar[Any] = (_even_sum,)


def test_options_are_the_keywords_of_the_constructor():
    options = options_of(Thing)
    assert list(options) == ["width", "heads", "rate", "kernel", "side", "flag"]
    assert options["width"].summary == "how wide"
    assert options["width"].allowed == "an integer from 1 to 64"
    assert options["rate"].allowed == "a number above 0 and below 1"
    assert options["kernel"].allowed == "an integer from 1 or one of long"
    assert options["kernel"].type == "integer or text"
    assert options["side"].allowed == "one of left, right"
    assert options["flag"].allowed == "true or false"


def test_a_third_party_class_needs_no_annotations():
    class Mixer:
        def __init__(self, d_model, max_len, heads=4):
            pass

    options = options_of(Mixer, given=("d_model", "max_len"))
    assert list(options) == ["heads"]
    with pytest.raises(InvalidInput, match="heads=many must be an integer"):
        validate(Mixer, {"heads": "many"}, given=("d_model", "max_len"))


def test_annotations_may_be_strings():
    def function(*, pairs: "Annotated[int, Field(ge=1)]" = 1):
        return pairs

    with pytest.raises(InvalidInput, match="pairs=0"):
        validate(function, {"pairs": 0})


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"width": 0}, "width=0 must be an integer from 1 to 64"),
        ({"width": 8.0}, "width=8.0 must be an integer from 1 to 64"),
        ({"width": True}, "width=true must be an integer from 1 to 64"),
        ({"width": "8"}, 'width="8" must be an integer from 1 to 64'),
        ({"width": 8, "rate": float("nan")}, "rate=nan must be a number above 0 and below 1"),
        ({"width": 8, "rate": 1}, "rate=1 must be a number above 0 and below 1"),
        ({"width": 8, "kernel": "short"}, "kernel=short must be an integer from 1 or one of long"),
        ({"width": 8, "flag": 1}, "flag=1 must be true or false"),
        ({"width": 8, "heads": 3}, "heads=3 must divide width=8"),
        ({}, "option 'width' is missing; it must be an integer from 1 to 64"),
        ({"width": 8, "haeds": 2}, "no option 'haeds'; did you mean 'heads'?"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_allowed(options, line):
    with pytest.raises(InvalidInput) as error:
        validate(Thing, options)
    assert len(error.value.problems) == 1
    assert error.value.problems[0].startswith(line)


def test_every_wrong_field_is_reported_and_no_constraint_on_a_wrong_one():
    with pytest.raises(InvalidInput) as error:
        validate(Thing, {"width": 0, "heads": 3, "side": "up", "colour": "red"})
    assert [problem.split("=")[0].split(";")[0] for problem in error.value.problems] == [
        "width",
        "side",
        "no option 'colour' (known: flag, heads, kernel, rate, side, width)",
    ]


def test_values_come_out_as_the_constructor_wants_them():
    values = validate(Thing, {"width": 8, "rate": 0.25})
    defaults = {"heads": 1, "kernel": 3, "side": "right", "flag": False}
    assert values == {"width": 8, "rate": 0.25, **defaults}


def test_an_option_without_a_type_is_refused_where_it_is_given_or_needed_and_nowhere_else():
    class Mixer:
        def __init__(self, d_model, max_len, device=None):
            pass

    class Needs:
        def __init__(self, window):
            pass

    here = ("d_model", "max_len")
    assert validate(Mixer, {}, given=here) == {"device": None}
    with pytest.raises(InvalidInput, match=r"'device' must have a type, .*test_options.py:\d+"):
        validate(Mixer, {"device": "cpu"}, given=here)
    with pytest.raises(InvalidInput, match=r"^option 'window' must have a type"):
        validate(Needs, {})


def test_a_type_that_cannot_be_typed_in_a_command_is_refused():
    class Strange:
        pass

    class Other:
        def __init__(self, act: Strange = None):
            pass

    with pytest.raises(InvalidInput, match="option 'act' must have a type"):
        validate(Other, {"act": "relu"})


def test_the_place_of_a_constructor_is_a_file_and_a_line():
    class Own:
        def __init__(self):
            pass

    class Inherits(Own):
        pass

    first = Own.__init__.__code__.co_firstlineno
    assert where(Own).endswith(f"test_options.py:{first}")
    assert where(Inherits).endswith(f"test_options.py:{first + 3}")
    assert "test_options.py:" in where(Thing), "a dataclass has no constructor in its source"
    assert where(int) == "builtins"
