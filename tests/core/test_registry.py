from importlib.metadata import EntryPoint

import pytest

from mecheval.core import registry as module
from mecheval.core.errors import InvalidInput
from mecheval.core.registry import Registry
from mecheval.core.spec import Spec


class Plain:
    """A plain thing.

    And more about it."""

    def __init__(self, size: int = 1):
        self.size = size


@pytest.fixture
def things():
    registry = Registry("thing")
    registry.add("plain", Plain)
    registry.add_preset("large", Spec.parse("plain:size=9"), "a large one")
    return registry


def test_a_name_with_options_builds_the_thing(things):
    assert things.build("plain:size=3").size == 3
    assert things.build("plain").size == 1


def test_a_preset_stands_for_its_options_and_yields_to_given_ones(things):
    assert things.build("large").size == 9
    assert things.build("large:size=2").size == 2


def test_a_misspelt_name_is_answered_with_the_nearest(things):
    message = r"no thing named 'plian'; did you mean 'plain'\? \(known: large, plain\)"
    with pytest.raises(InvalidInput, match=message):
        things.build("plian")


def test_a_constructors_value_error_is_reported(things):
    class Picky:
        def __init__(self, size: int = 1):
            raise ValueError("size must be prime")

    things.add("picky", Picky)
    with pytest.raises(InvalidInput, match="picky: picky:size=4 is refused: size must be prime"):
        things.build("picky:size=4")


def test_an_entry_point_cannot_take_a_name(monkeypatch, things):
    point = EntryPoint(name="plain", value="their.package:Plain", group="mecheval.things")
    monkeypatch.setattr(module, "entry_points", lambda group: [point])
    message = r"entry point their\.package:Plain: name='plain' is taken"
    with pytest.raises(InvalidInput, match=message):
        things.names()


def test_an_error_says_which_thing(things):
    with pytest.raises(InvalidInput, match=r"^large: size=x must be an integer"):
        things.build("large:size=x")


def test_a_name_is_taken_once(things):
    with pytest.raises(InvalidInput, match="'large' is taken"):
        things.add("large", Plain)


def test_an_entry_point_is_registered_like_a_built_in(monkeypatch):
    point = EntryPoint(name="counted", value="collections:Counter", group="mecheval.things")
    points = {"mecheval.things": [point]}
    monkeypatch.setattr(module, "entry_points", lambda group: points.get(group, []))
    registry = Registry("thing")
    assert registry.names() == ["counted"]
    assert registry.get("counted").__name__ == "Counter"


def test_a_broken_entry_point_is_named_on_first_use(monkeypatch):
    point = EntryPoint(name="gone", value="no_such_module:Thing", group="mecheval.things")
    monkeypatch.setattr(module, "entry_points", lambda group: [point])
    registry = Registry("thing")
    with pytest.raises(InvalidInput, match="'gone' cannot be imported from 'no_such_module:Thing'"):
        registry.get("gone")


def test_an_entry_says_what_programs_read(things):
    assert things.describe("large").to_dict() == {
        "name": "large",
        "summary": "a large one (plain:size=9)",
        "options": [
            {
                "name": "size",
                "type": "integer",
                "default": 9,
                "allowed": "an integer",
                "summary": "",
            }
        ],
        "preset_of": "plain",
    }
    assert things.describe("plain").summary == "A plain thing."


def test_a_class_that_is_defined_anew_takes_the_place_it_had(things):
    def defined(size):
        class Mine:
            def __init__(self, size: int = size):
                self.size = size

        return Mine

    things.add("mine", defined(1))
    things.add("mine", defined(2))
    assert things.build("mine").size == 2
    with pytest.raises(InvalidInput, match="'mine' is taken"):
        things.add("mine", Plain)


def test_a_class_without_the_arguments_of_its_kind_is_refused_with_its_place():
    registry = Registry("thing", given=("width", "depth"))
    registry.add("plain", Plain)
    message = r"plain: it must be built with \(width, depth, \*\*options\); .*:\d+ takes \(size\)"
    with pytest.raises(InvalidInput, match=message):
        registry.check(Spec("plain"))


def test_functions_and_instances_are_registered_like_classes():
    class Drawing:
        summary = "A drawing."

    registry = Registry("figure", reserved=("status",))

    @registry.register("curve")
    def curve(*, width: int = 3):
        """Draw a curve."""
        return width

    registry.add("picture", drawing := Drawing())
    assert registry.build("curve:width=4") == 4
    assert registry.describe("curve").summary == "Draw a curve."
    assert registry.get("picture") is drawing
    assert registry.describe("picture").to_dict()["summary"] == "A drawing."
    with pytest.raises(InvalidInput, match="'status' is taken"):
        registry.add("status", drawing)
