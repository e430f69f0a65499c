import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Spec, canonical_json

names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
looks_like_a_value = st.sampled_from(["8", "-1", "1e3", "true", "false", "nan", "inf"])
needs_quotes = st.sampled_from(["", "a b", "a,b", "a=b", 'a"b', "a:b"])
scalars = (
    looks_like_a_value
    | needs_quotes
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
specs = st.builds(Spec, names, st.dictionaries(names, scalars, max_size=5))


@given(specs)
def test_a_spec_is_read_back_from_its_text(spec):
    again = Spec.parse(str(spec))
    assert again == spec
    assert again.key == spec.key
    assert hash(again) == hash(spec)


@given(specs, specs)
def test_specs_share_a_key_exactly_if_they_are_equal(one, other):
    assert (one == other) == (one.key == other.key)


def test_the_text_is_what_people_type():
    spec = Spec.parse("recall:vocab=64,pairs=8")
    assert spec == Spec("recall", {"pairs": 8, "vocab": 64})
    assert str(spec) == "recall:pairs=8,vocab=64"


def test_a_key_never_changes():
    key = "58690cd2566db3f5e6be4b58392a8ff4323ec4932353ac9395c9a3148c20aadc"
    assert Spec.parse("recall:pairs=8,vocab=64").key == key


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("-8", -8),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("2.", 2.0),
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("right", "right"),
        ('"8"', "8"),
        ('"a,b=c"', "a,b=c"),
        ("inf", math.inf),
    ],
)
def test_values_have_the_type_they_look_like(text, value):
    parsed = Spec.parse(f"name:option={text}").options["option"]
    assert parsed == value
    assert type(parsed) is type(value)


def test_one_true_and_one_point_nought_are_different_options():
    keys = {Spec("x", {"a": value}).key for value in (1, 1.0, True, "1")}
    assert len(keys) == 4


@pytest.mark.parametrize(
    "text",
    ["", ":", "a b", "recall:", "recall:pairs", "recall:=8", "recall:pairs=8,", 'a:b="c'],
)
def test_text_that_is_not_a_spec_is_refused(text):
    with pytest.raises(InvalidInput):
        Spec.parse(text)


def test_everything_wrong_is_reported_at_once():
    with pytest.raises(InvalidInput) as error:
        Spec.parse("re call:pairs=8,pairs=9,vocab=")
    assert len(error.value.problems) == 3


def test_canonical_json_has_no_room_for_nan():
    with pytest.raises(ValueError, match="Out of range float"):
        canonical_json({"a": math.nan})
