"""Options are the keywords of a constructor: read off its signature, checked before it is called.

A range or a meaning is given by annotation, `pairs: Annotated[int, Field(ge=1, description="…")] = 32`. What holds
between fields is a function of just those fields in the class's tuple `constraints`; it returns a complaint or None.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Scalar, print_scalar

REQUIRED = inspect.Parameter.empty
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_BOUNDS = {"ge": "from {}", "gt": "above {}", "le": "to {}", "lt": "and below {}", "multiple_of": ""}
_NOUNS = {int: "integer", float: "number", bool: "boolean", str: "text"}


@dataclass(frozen=True)
class Option:
    """One keyword of a constructor."""

    name: str
    annotation: Any
    default: Any
    summary: str = ""

    @property
    def type(self) -> str:
        kinds = [
            type(get_args(part)[0]) if get_origin(part) is Literal else part for part, _ in _parts(self.annotation)
        ]
        return " or ".join(dict.fromkeys(_NOUNS.get(kind, getattr(kind, "__name__", str(kind))) for kind in kinds))

    @property
    def allowed(self) -> str:
        return " or ".join(_allowed(part, bounds) for part, bounds in _parts(self.annotation))

    @property
    def typed(self) -> bool:
        """Whether it has a type, and one of which something can be written in a command."""
        return self._validate is not None

    def check(self, value: object) -> Any:
        """The value as the constructor wants it; raises ValidationError."""
        assert self._validate is not None
        return self._validate(value)

    @cached_property
    def _validate(self) -> Callable[[object], Any] | None:
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(self.annotation, config=_STRICT)
        except PydanticUserError:  # a class that pydantic knows nothing of
            return None
        return None if self.annotation is Any else adapter.validate_python


def options_of(factory: Callable[..., Any], given: tuple[str, ...] = ()) -> Mapping[str, Option]:
    """The options of a class or function, without the parameters that its caller gives."""
    return _read(factory, given)


@cache
def _read(factory: Any, given: tuple[str, ...]) -> Mapping[str, Option]:
    parameters = inspect.signature(factory).parameters.values()
    owner = factory.__init__ if inspect.isclass(factory) else factory
    try:
        hints = get_type_hints(owner, include_extras=True)
    except Exception as error:  # a stranger's annotations: whatever evaluating them raises
        raise InvalidInput(f"its annotations at {where(factory)} must be types: {error}") from error
    return {
        p.name: _option(p, hints.get(p.name))
        for p in parameters
        if p.name not in given and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    }


def validate(
    factory: Callable[..., Any],
    options: Mapping[str, Any],
    given: tuple[str, ...] = (),
    values_given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The options as the constructor wants them, or InvalidInput with every wrong field.

    `given` are the parameters that its caller gives; where their values are known, constraints may speak of them.
    """
    known = options_of(factory, given)
    problems, wrong = [], set()
    values = {name: option.default for name, option in known.items() if option.default is not REQUIRED}
    for name, value in options.items():
        if name not in known:
            problems.append(f"no option {name!r}{did_you_mean(name, known)}")
        elif known[name].typed:
            try:
                values[name] = known[name].check(value)
            except ValidationError:
                problems.append(f"{name}={format_value(value)} must be {known[name].allowed}")
                wrong.add(name)
    missing = known.keys() - values.keys() - wrong
    untyped = {name for name in missing | options.keys() if name in known and not known[name].typed}
    problems += [f"option {name!r} is missing; it must be {known[name].allowed}" for name in sorted(missing - untyped)]
    problems += [
        f"option {name!r} must have a type, as '{name}: int = 4' has; {where(factory)}" for name in sorted(untyped)
    ]
    for constraint in getattr(factory, "constraints", ()):
        fields = inspect.signature(constraint).parameters.keys()
        sound = {**values_given, **{name: value for name, value in values.items() if name not in wrong}}
        if fields <= sound.keys():
            complaint = constraint(**{name: sound[name] for name in fields})
            problems += [complaint] if complaint else []
    if problems:
        raise InvalidInput(problems)
    return values


def where(thing: Callable[..., Any]) -> str:
    """`file.py:12`, where a function or a class's constructor is written; the module if nobody knows."""
    own = vars(thing).get("__init__") if inspect.isclass(thing) else thing
    code = getattr(inspect.unwrap(own) if own else None, "__code__", None)
    try:
        if code is None or not Path(code.co_filename).is_file():  # inherited, or made by a dataclass
            file, line = inspect.getsourcefile(thing), inspect.getsourcelines(thing)[1]
        else:
            file, line = code.co_filename, code.co_firstlineno
    except (OSError, TypeError):
        return str(thing.__module__)
    path = Path(file or "?")
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{line}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The rest of an error line: what was probably meant, and what there is."""
    names = sorted(known)
    match = difflib.get_close_matches(name, names, n=1)
    meant = f"; did you mean {match[0]!r}?" if match else ""
    return f"{meant} (known: {', '.join(names) or 'none'})"


def _option(parameter: inspect.Parameter, hint: Any) -> Option:
    if hint is None:  # a stranger's class may leave it to the default
        hint = Any if parameter.default in (REQUIRED, None) else type(parameter.default)
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    summary = next((note.description for note in notes if isinstance(note, FieldInfo) and note.description), "")
    return Option(parameter.name, hint, parameter.default, summary)


def _parts(annotation: Any) -> list[tuple[Any, dict[str, Any]]]:
    """The members of a union, or the annotation itself, each with its limits. None is said by leaving it out."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        limits = [limit for note in notes for limit in (note.metadata if isinstance(note, FieldInfo) else [note])]
        bounds = {name: getattr(limit, name) for limit in limits for name in _BOUNDS if hasattr(limit, name)}
        return [(part, {**bounds, **own}) for part, own in _parts(inner)]
    if get_origin(annotation) in (Union, UnionType):
        return [part for member in get_args(annotation) if member is not NoneType for part in _parts(member)]
    return [(annotation, {})]


def _allowed(part: Any, bounds: Mapping[str, Any]) -> str:
    if get_origin(part) is Literal:
        return "one of " + ", ".join(print_scalar(value) for value in get_args(part))
    if part is bool:
        return "true or false"
    if part not in (int, float):
        return {str: "text", Any: "anything"}.get(part, str(part))
    noun = "an even integer" if bounds.get("multiple_of") == 2 else "an integer" if part is int else "a number"
    limits = [text.format(_number(bounds[name])) for name, text in _BOUNDS.items() if text and name in bounds]
    return " ".join([noun, *limits])


def _number(value: int | float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def format_value(value: object) -> str:
    """A value as it would be typed."""
    return print_scalar(value) if isinstance(value, Scalar) else repr(value)
