"""The one registry: built-ins, plug-in files and entry points are added to it alike.

There is one each for tasks, mixers, architectures, models, metrics, loggers, recipes, figures and
claims. A package registers by an entry point of the group `mecheval.<kind>s`.
"""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any, TypeVar

from mecheval.core.errors import InvalidInput, is_out_of_memory
from mecheval.core.options import REQUIRED, Option, did_you_mean, options_of, validate, where
from mecheval.core.spec import Spec

T = TypeVar("T")
Names = tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A name with its summary and options, as `mecheval list` prints it."""

    name: str
    summary: str
    options: tuple[Option, ...]
    preset_of: str | None = None

    def to_dict(self) -> dict[str, Any]:
        keys = ("name", "type", "default", "allowed", "summary")
        options = [{key: getattr(option, key) for key in keys} for option in self.options]
        for option in options:
            if option["default"] is REQUIRED:
                option["default"] = None
        return {**vars(self), "options": options}


class Registry:
    """Named classes, functions or instances of one kind.

    `given` are the parameters that every class of the kind is built with; its other keywords are
    its options. `reserved` names cannot be registered.
    """

    def __init__(self, kind: str, given: Names = (), reserved: Names = ()) -> None:
        self.kind, self.given, self.reserved = kind, given, reserved
        self._targets: dict[str, Any] = {}
        self._declared: dict[str, Any] = {}
        self._presets: dict[str, tuple[Spec, str]] = {}
        self._entry_points_read = False

    def add(self, name: str, target: Any, options: Any = None) -> None:
        """Register a target, or the text "module:name" that is imported on first use.

        `options` declares the options of a target that is slow to import. A class or function that
        is defined again, in a changed file or notebook, replaces the earlier one.
        """
        taken = name in self._presets or name in self._targets or name in self.reserved
        if taken and not _same_definition(self._targets.get(name), target):
            raise InvalidInput(f"name={name!r} is taken by another {self.kind}; rename yours")
        self._targets[name] = target
        if options is not None:
            self._declared[name] = options

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds a class or function by a name."""

        def decorate(target: T) -> T:
            self.add(name, target)
            return target

        return decorate

    def add_preset(self, name: str, spec: Spec, summary: str) -> None:
        self._presets[name] = (spec, summary)

    def names(self) -> list[str]:
        """Return the names in the order of registration, presets last."""
        if not self._entry_points_read:
            self._entry_points_read = True
            for point in entry_points(group=f"mecheval.{self.kind}s"):
                try:
                    self.add(point.name, point.value)
                except InvalidInput as error:
                    raise error.within(f"entry point {point.value}") from error
        return [*self._targets, *self._presets]

    def get(self, name: str) -> Any:
        """Return what is registered by a name, imported if need be."""
        name = self._without_preset(name)
        if isinstance(target := self._targets[name], str):
            module, _, attribute = target.partition(":")
            try:
                self._targets[name] = getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                if is_out_of_memory(error):
                    raise
                problem = f"the {self.kind} {name!r} cannot be imported from {target!r}: {error}"
                raise InvalidInput(problem) from error
        return self._targets[name]

    def name_of(self, target: Any) -> str | None:
        """Return the name of a target that is registered and imported, if it is."""
        return next((name for name, known in self._targets.items() if known is target), None)

    def is_built_in(self, name: str) -> bool:
        return str(self.get(name).__module__).startswith("mecheval.")

    def options(self, name: str) -> Any:
        """Return the class or function that has the options and the summary of a name."""
        return self._declared.get(self._without_preset(name)) or self.get(name)

    def expand(self, spec: Spec) -> Spec:
        """Replace a preset by its definition; options of the spec win over the preset's."""
        if spec.name not in self._presets:
            return spec
        preset = self._presets[spec.name][0]
        return Spec(preset.name, {**preset.options, **spec.options})

    def check(self, spec: Spec, cls: Any = None, **given: Any) -> dict[str, Any]:
        """Return all options of a spec, validated; nothing is built. `cls` may be unregistered."""
        factory = cls or self.options(spec.name)
        try:
            self._check_signature(factory)
            return validate(factory, self.expand(spec).options, self.given, given)
        except InvalidInput as error:
            raise error.within(spec.name) from error

    def shortest(self, spec: Spec) -> Spec:
        """Return the spec with presets expanded and options at their defaults left out."""
        options = options_of(self.options(spec.name), self.given)
        values = {n: v for n, v in self.check(spec).items() if v != options[n].default}
        return Spec(self.expand(spec).name, values)

    def spec_of(self, instance: object) -> Spec:
        """Return the shortest spec that builds an instance of a registered class."""
        cls = type(instance)
        for name in self.names():
            if name not in self._presets and self.get(name) is cls:
                options = {n: getattr(instance, n) for n in options_of(cls, self.given)}
                return self.shortest(Spec(name, options))
        hint = f"decorate it with @register_{self.kind}(name)"
        raise InvalidInput(f"{cls.__name__} is not registered; {hint}")

    def build(self, spec: str | Spec, cls: Any = None, **given: Any) -> Any:
        """Build an instance of a registered class, or of `cls`, after validating its options."""
        spec = Spec.parse(spec) if isinstance(spec, str) else spec
        options = self.check(spec, cls, **given)
        try:
            return (cls or self.get(spec.name))(**given, **options)
        except InvalidInput as error:
            raise error.within(spec.name) from error
        except ValueError as error:  # from a third-party constructor
            raise InvalidInput(f"{spec.name}: {spec} is refused: {error}") from error

    def describe(self, name: str) -> Entry:
        """Return the summary and the options of a name."""
        factory = self.options(name)
        options = options_of(factory, self.given) if callable(factory) else {}
        if name not in self._presets:
            return Entry(name, summary_of(factory), tuple(options.values()))
        spec, summary = self._presets[name]
        defaults = {n: spec.options.get(n, o.default) for n, o in options.items()}
        preset = tuple(replace(o, default=defaults[n]) for n, o in options.items())
        return Entry(name, f"{summary} ({spec})", preset, preset_of=spec.name)

    def _without_preset(self, name: str) -> str:
        if name not in self.names():
            raise InvalidInput(f"no {self.kind} named {name!r}{did_you_mean(name, self.names())}")
        return self._presets[name][0].name if name in self._presets else name

    def _check_signature(self, factory: Any) -> None:
        signature = inspect.signature(factory)
        try:
            signature.bind_partial(**dict.fromkeys(self.given))
        except TypeError as error:
            expected, takes = ", ".join(self.given), ", ".join(signature.parameters)
            problem = f"it must be built with ({expected}, **options)"
            raise InvalidInput(f"{problem}; {where(factory)} takes ({takes})") from error


def summary_of(target: Any) -> str:
    """Return a target's `summary`, or the first line of its docstring."""
    text = getattr(target, "summary", None) or target.__doc__ or ""
    return str(text).strip().partition("\n")[0]


def _same_definition(old: Any, new: Any) -> bool:
    names = ("__module__", "__qualname__")
    places = [[getattr(target, name, None) for name in names] for target in (old, new)]
    return old == new or (places[0] == places[1] and None not in places[0])
