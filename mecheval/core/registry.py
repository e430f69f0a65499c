"""Where names become things. Built-ins, entry points and plug-in files enter by the same `add`."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Option, did_you_mean, options_of, validate, where
from mecheval.core.spec import Spec

Factory = Callable[..., Any]  # a class or a function whose keywords are the options
Target = str | Factory  # or "module:name" to import when it is first asked for


@dataclass(frozen=True)
class Entry:
    """One line of `mecheval list`."""

    name: str
    summary: str
    options: tuple[Option, ...]
    preset_of: str | None = None

    def to_dict(self) -> dict[str, Any]:
        options = [
            {"name": o.name, "type": o.type, "default": o.default, "allowed": o.allowed, "summary": o.summary}
            for o in self.options
        ]
        return {"name": self.name, "summary": self.summary, "options": options, "preset_of": self.preset_of}


class Registry:
    """The tasks, or the mixers, that can be named."""

    def __init__(self, kind: str, *, given: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.given = given
        self._targets: dict[str, Target] = {}
        self._declared: dict[str, Factory] = {}
        self._presets: dict[str, tuple[Spec, str]] = {}
        self._entry_points_read = False

    def add(self, name: str, target: Target, options: Factory | None = None) -> None:
        """`options` has the keywords of a target that should not be imported to know them.

        A class that is defined anew, in a file or a notebook that was changed, takes the place it had before.
        """
        taken = name in self._presets or name in self._targets
        if taken and not _same_place(self._targets.get(name), target):
            raise InvalidInput(f"name={name!r} is taken: there is a {self.kind} of that name already")
        self._targets[name] = target
        if options is not None:
            self._declared[name] = options

    def add_preset(self, name: str, spec: Spec, summary: str) -> None:
        self._presets[name] = (spec, summary)

    def names(self) -> list[str]:
        """Definitions first, then presets, each in the order they entered."""
        if not self._entry_points_read:
            self._entry_points_read = True
            for point in entry_points(group=f"mecheval.{self.kind}s"):
                try:
                    self.add(point.name, point.value)
                except InvalidInput as error:
                    raise error.within(f"entry point {point.value}") from error
        return [*self._targets, *self._presets]

    def get(self, name: str) -> Factory:
        name = self._definition(name)
        target = self._targets[name]
        if isinstance(target, str):
            target = self._targets[name] = _imported(self.kind, name, target)
        return target

    def options(self, name: str) -> Factory:
        """What has the keywords and the summary of a name: the thing itself, unless they are declared apart."""
        name = self._definition(name)
        return self._declared.get(name) or self.get(name)

    def expand(self, spec: Spec) -> Spec:
        """A preset written out; the options given with it win."""
        if spec.name not in self._presets:
            return spec
        preset = self._presets[spec.name][0]
        return Spec(preset.name, {**preset.options, **spec.options})

    def check(self, spec: Spec, cls: Factory | None = None, **given: Any) -> dict[str, Any]:
        """All options of a name, or of a class without one; InvalidInput names every wrong field. Nothing is built."""
        try:
            if cls or self._definition(spec.name) not in self._declared:
                _must_take(cls or self.get(spec.name), self.given)
            return validate(cls or self.options(spec.name), self.expand(spec).options, self.given, given)
        except InvalidInput as error:
            raise error.within(spec.name) from error

    def shortest(self, spec: Spec) -> Spec:
        """The same in the fewest words: presets written out, options at their defaults left out."""
        options, values = options_of(self.options(spec.name), self.given), self.check(spec)
        return Spec(self.expand(spec).name, {n: v for n, v in values.items() if v != options[n].default})

    def spec_of(self, thing: object) -> Spec:
        """The spec that builds an instance of a registered class."""
        for name in self.names():
            if name not in self._presets and self.get(name) is type(thing):
                return self.shortest(Spec(name, {n: getattr(thing, n) for n in options_of(type(thing), self.given)}))
        raise InvalidInput(f"{type(thing).__name__} is not registered; decorate it with @register_{self.kind}(name)")

    def build(self, spec: str | Spec, cls: Factory | None = None, **given: Any) -> Any:
        """The thing itself."""
        spec = Spec.parse(spec) if isinstance(spec, str) else spec
        options = self.check(spec, cls, **given)
        try:
            return (cls or self.get(spec.name))(**given, **options)
        except InvalidInput as error:
            raise error.within(spec.name) from error
        except ValueError as error:  # a stranger's constructor says no in its own words
            raise InvalidInput(f"{spec.name}: {spec} is refused: {error}") from error

    def describe(self, name: str) -> Entry:
        cls = self.options(name)
        options = options_of(cls, self.given)
        if name not in self._presets:
            return Entry(name, summary_of(cls), tuple(options.values()))
        spec, summary = self._presets[name]
        preset = [
            Option(o.name, o.annotation, spec.options.get(o.name, o.default), o.summary) for o in options.values()
        ]
        return Entry(name, f"{summary} ({spec})", tuple(preset), preset_of=spec.name)

    def _definition(self, name: str) -> str:
        if name not in self.names():
            raise InvalidInput(f"no {self.kind} named {name!r}{did_you_mean(name, self.names())}")
        return self._presets[name][0].name if name in self._presets else name


def _same_place(old: Target | None, new: Target) -> bool:
    return isinstance(old, type) and isinstance(new, type) and _place(old) == _place(new)


def _place(cls: type[Any]) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def _must_take(factory: Factory, given: tuple[str, ...]) -> None:
    """What every one of its kind is built with."""
    signature = inspect.signature(factory)
    try:
        signature.bind_partial(**dict.fromkeys(given))
    except TypeError as error:
        wanted = ", ".join(given)
        raise InvalidInput(
            f"it must be built with ({wanted}, **options); {where(factory)} takes {signature}"
        ) from error


def summary_of(thing: Callable[..., Any]) -> str:
    return (thing.__doc__ or "").strip().split("\n")[0]


def _imported(kind: str, name: str, target: str) -> Factory:
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"the {kind} {name!r} cannot be loaded from {target!r}: {error}") from error
