"""Options are the keywords of a constructor: read off its signature, checked before it is called.

A range or a meaning is given by annotation, `pairs: Annotated[int, Field(ge=1, description="…")] = 32`. What holds
between fields is a function of just those fields in the class's tuple `constraints`; it returns a complaint or None.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from mecheval.errors import InvalidInput
from mecheval.spec import Scalar, print_scalar

REQUIRED = inspect.Parameter.empty
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
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
        return " or ".join(
            _NOUNS.get(kind, getattr(kind, "__name__", str(kind)))
            for kind in _kinds(self.annotation)
            if kind is not NoneType
        )

    @property
    def allowed(self) -> str:
        parts = [part for part in _parts(self.annotation) if part is not NoneType]  # left out is how None is said
        return " or ".join(_allowed(part, self._bounds()) for part in parts)

    def check(self, value: object) -> Any:
        """The value as the constructor wants it; raises ValueError."""
        adapter: TypeAdapter[Any] = TypeAdapter(self.annotation, config=_STRICT)
        return adapter.validate_python(value)

    def _bounds(self) -> dict[str, Any]:
        bounds: dict[str, Any] = {}
        for item in get_args(self.annotation)[1:] if get_origin(self.annotation) is Annotated else ():
            for limit in item.metadata if isinstance(item, FieldInfo) else (item,):
                bounds |= (
                    {name: getattr(limit, name) for name in limit.__slots__} if hasattr(limit, "__slots__") else {}
                )
        return bounds


def options_of(factory: Callable[..., Any], given: Iterable[str] = ()) -> dict[str, Option]:
    """The options of a class or function, without the parameters that its caller gives."""
    parameters = inspect.signature(factory).parameters.values()
    owner = factory.__init__ if inspect.isclass(factory) else factory
    hints = get_type_hints(owner, include_extras=True)
    return {
        p.name: _option(p, hints.get(p.name))
        for p in parameters
        if p.name not in given and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    }


def checked(factory: Callable[..., Any], options: Mapping[str, Any], given: Iterable[str] = ()) -> dict[str, Any]:
    """The options as the constructor wants them, or InvalidInput with every wrong field."""
    known = options_of(factory, given)
    problems, wrong = [], set()
    values = {name: option.default for name, option in known.items() if option.default is not REQUIRED}
    for name, value in options.items():
        if name not in known:
            problems.append(f"no option {name!r}{nearest(name, known)}")
            continue
        try:
            values[name] = known[name].check(value)
        except ValidationError:
            problems.append(f"{name}={_shown(value)} must be {known[name].allowed}")
            wrong.add(name)
    missing = known.keys() - values.keys() - wrong
    problems += [f"option {name!r} is missing; it must be {known[name].allowed}" for name in sorted(missing)]
    for constraint in getattr(factory, "constraints", ()):
        fields = inspect.signature(constraint).parameters.keys()
        if fields <= values.keys() - wrong:
            complaint = constraint(**{name: values[name] for name in fields})
            problems += [complaint] if complaint else []
    if problems:
        raise InvalidInput(problems)
    return values


def nearest(name: str, known: Iterable[str]) -> str:
    """The rest of an error line: what was probably meant, and what there is."""
    names = sorted(known)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    meant = f"; did you mean {match[0]!r}?" if match else ""
    return f"{meant} (known: {', '.join(names) or 'none'})"


def _option(parameter: inspect.Parameter, hint: Any) -> Option:
    if hint is None:  # a stranger's class may leave it to the default
        hint = Any if parameter.default in (REQUIRED, None) else type(parameter.default)
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    summary = next((note.description for note in notes if isinstance(note, FieldInfo) and note.description), "")
    return Option(parameter.name, hint, parameter.default, summary)


def _parts(annotation: Any) -> list[Any]:
    """The members of a union, the annotation itself otherwise."""
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [part for member in get_args(annotation) for part in _parts(member)]
    return [annotation]


def _kinds(annotation: Any) -> list[Any]:
    kinds = [type(get_args(part)[0]) if get_origin(part) is Literal else part for part in _parts(annotation)]
    return list(dict.fromkeys(kinds))


def _allowed(part: Any, bounds: Mapping[str, Any]) -> str:
    if get_origin(part) is Literal:
        return "one of " + ", ".join(print_scalar(value) for value in get_args(part))
    if part is bool:
        return "true or false"
    if part not in (int, float):
        return {str: "text", Any: "anything"}.get(part, str(part))
    noun = "an even integer" if bounds.get("multiple_of") == 2 else "an integer" if part is int else "a number"
    words = {"ge": "from {}", "gt": "above {}", "le": "to {}", "lt": "and below {}"}
    limits = [text.format(_number(bounds[name])) for name, text in words.items() if name in bounds]
    return " ".join([noun, *limits])


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _shown(value: object) -> str:
    return print_scalar(value) if isinstance(value, Scalar) else repr(value)
