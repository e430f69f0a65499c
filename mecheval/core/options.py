"""Options are the keywords of a constructor, read from its signature and validated before the call.

An annotation gives range and meaning: `pairs: Annotated[int, Field(ge=1, description="…")] = 32`.
Rules between fields are functions of those fields, listed in the class's tuple `constraints`; each
returns a problem or None.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import pydantic
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from mecheval.core.errors import InvalidInput
from mecheval.core.spec import Scalar, print_scalar

REQUIRED = inspect.Parameter.empty
Constraints = tuple[Callable[..., str | None], ...]
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_BOUNDS = {"ge": "from", "gt": "above", "le": "to", "lt": "and below"}
_NOUNS = {int: "integer", float: "number", bool: "boolean", str: "text"}


@dataclass(frozen=True, kw_only=True, repr=False)
class Field:
    """The limits and the meaning of an option, in its annotation.

    It is a group of metadata as annotated-types defines one, which pydantic reads. pydantic's own
    `Field` works, too, but fills the signatures in `help` with its empty attributes.
    """

    ge: int | float | None = None
    gt: int | float | None = None
    le: int | float | None = None
    lt: int | float | None = None
    multiple_of: int | float | None = None
    description: str | None = None

    __is_annotated_types_grouped_metadata__: ClassVar[Literal[True]] = True

    def __iter__(self) -> Iterator[Any]:
        """Yield each limit as pydantic writes it."""
        yield from self.metadata

    @property
    def metadata(self) -> list[Any]:
        limits = {name: value for name, value in self._given() if name != "description"}
        return list(pydantic.Field(**limits).metadata)

    def __repr__(self) -> str:
        return f"Field({', '.join(f'{name}={value!r}' for name, value in self._given())})"

    def _given(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in vars(self).items() if value is not None]


@dataclass(frozen=True)
class Option:
    """One keyword of a constructor."""

    name: str
    annotation: Any
    default: Any
    summary: str = ""

    @property
    def type(self) -> str:
        """The types of its values in words, as in "integer or text"."""
        names = []
        for part, _ in _union_members(self.annotation):
            kind = type(get_args(part)[0]) if get_origin(part) is Literal else part
            names.append(_NOUNS.get(kind, getattr(kind, "__name__", str(kind))))
        return " or ".join(dict.fromkeys(names))

    @property
    def allowed(self) -> str:
        """The allowed values in words, as in "an integer from 1 or one of long"."""
        return " or ".join(_allowed(*member) for member in _union_members(self.annotation))

    @property
    def parameter(self) -> inspect.Parameter:
        """The keyword in a signature."""
        details = {"default": self.default, "annotation": self.annotation}
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, **details)

    @cached_property
    def convert(self) -> Callable[[object], Any] | None:
        """A function that returns a valid value or raises ValidationError; None without a type."""
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(self.annotation, config=_STRICT)
        except PydanticUserError:  # a class that pydantic cannot validate
            return None
        return None if self.annotation is Any else adapter.validate_python


def options_of(factory: Callable[..., Any], given: tuple[str, ...] = ()) -> Mapping[str, Option]:
    """Return the options of a class or function, without the parameters that its caller gives."""
    return _read_options(factory, given)


@cache
def _read_options(factory: Any, given: tuple[str, ...]) -> Mapping[str, Option]:
    try:
        parameters = inspect.signature(factory, eval_str=True).parameters.values()
    except Exception as error:  # evaluating third-party annotations can raise anything
        raise InvalidInput(f"invalid annotations at {where(factory)}: {error}") from error
    keywords = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name: _option(p) for p in parameters if p.name not in given and p.kind in keywords}


def validate(
    factory: Callable[..., Any],
    options: Mapping[str, Any],
    given: tuple[str, ...] = (),
    values_given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the options with defaults, or raise InvalidInput with every wrong field.

    `given` names the parameters that the caller gives; constraints see their `values_given`.
    """
    known = options_of(factory, given)
    values = {name: o.default for name, o in known.items() if o.default is not REQUIRED}
    problems = []
    for name, value in options.items():
        if name not in known:
            problems.append(f"no option {name!r}{did_you_mean(name, known)}")
            continue
        convert = known[name].convert
        try:
            values[name] = convert(value) if convert else value
        except ValidationError:
            problems.append(f"{name}={format_value(value)} must be {known[name].allowed}")
            values.pop(name, None)
    for name, option in sorted(known.items()):
        needed = option.default is REQUIRED or name in options
        if needed and not option.convert:
            example = f"as in '{name}: int = 4'; {where(factory)}"
            problems.append(f"option {name!r} must have a type, {example}")
        elif needed and name not in options:
            problems.append(f"option {name!r} is missing; it must be {option.allowed}")
    constraints = getattr(factory, "constraints", ())
    problems += broken_constraints(constraints, {**values_given, **values})
    if problems:
        raise InvalidInput(problems)
    return values


def broken_constraints(constraints: Constraints, fields: Mapping[str, Any]) -> list[str]:
    """Return the problems of the constraints whose fields are all known."""
    problems = []
    for constraint in constraints:
        names = inspect.signature(constraint).parameters.keys()
        if names <= fields.keys():
            problems.append(constraint(**{name: fields[name] for name in names}))
    return [problem for problem in problems if problem]


def settle(instance: object) -> None:
    """Validate the fields of a frozen dataclass and convert them to their types (0 becomes 0.0).

    Parameters
    ----------
    instance
        An instance, in its `__post_init__`.

    Returns
    -------
    None
        InvalidInput is raised with every wrong field.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from mecheval import settle
    >>> @dataclass(frozen=True)
    ... class Options:
    ...     rate: float = 0.1
    ...     def __post_init__(self):
    ...         settle(self)
    >>> Options(rate=1)
    Options(rate=1.0)
    """
    cls = type(instance)
    for name, value in validate(cls, {n: getattr(instance, n) for n in options_of(cls)}).items():
        object.__setattr__(instance, name, value)


def where(target: Callable[..., Any]) -> str:
    """Return `file.py:12`, the place of a function or constructor, or its module if unknown."""
    function = vars(target).get("__init__") if inspect.isclass(target) else target
    code = getattr(inspect.unwrap(function) if function else None, "__code__", None)
    try:
        if code is None or not Path(code.co_filename).is_file():  # inherited, or a dataclass's
            file, line = inspect.getsourcefile(target), inspect.getsourcelines(target)[1]
        else:
            file, line = code.co_filename, code.co_firstlineno
    except (OSError, TypeError):
        return str(target.__module__)
    path = Path(file or "?")
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{line}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error line: the nearest known name, and all of them."""
    names = sorted(known)
    match = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {match[0]!r}?" if match else ""
    return f"{hint} (known: {', '.join(names) or 'none'})"


def format_value(value: object) -> str:
    """Return a value as it is typed in a command."""
    return print_scalar(value) if isinstance(value, Scalar) else repr(value)


def _option(parameter: inspect.Parameter) -> Option:
    hint = parameter.annotation
    if hint is REQUIRED:  # a third-party class may leave the type to the default
        hint = Any if parameter.default in (REQUIRED, None) else type(parameter.default)
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    summaries = [note.description for note in notes if isinstance(note, Field | FieldInfo)]
    summary = next((text for text in summaries if text), "")
    return Option(parameter.name, hint, parameter.default, summary)


def _union_members(annotation: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the members of a union, or the annotation itself, with bounds; None is left out."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        bounds: dict[str, Any] = {}
        for note in notes:
            for limit in note.metadata if isinstance(note, Field | FieldInfo) else [note]:
                names = [name for name in (*_BOUNDS, "multiple_of") if hasattr(limit, name)]
                bounds |= {name: getattr(limit, name) for name in names}
        for part, inner_bounds in _union_members(inner):
            yield part, {**bounds, **inner_bounds}
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            # a class can be given in Python alone
            yield from _union_members(member) if member not in (NoneType, type) else ()
    else:
        yield annotation, {}


def _allowed(part: Any, bounds: Mapping[str, Any]) -> str:
    if get_origin(part) is Literal:
        return "one of " + ", ".join(print_scalar(value) for value in get_args(part))
    if part not in (int, float):
        return {bool: "true or false", str: "text", Any: "anything"}.get(part, str(part))
    noun = "an integer" if part is int else "a number"
    words = ["an even integer" if bounds.get("multiple_of") == 2 else noun]
    for name, word in _BOUNDS.items():
        if (bound := bounds.get(name)) is not None:
            words.append(f"{word} {bound if isinstance(bound, int) else format(bound, 'g')}")
    return " ".join(words)
