"""A name with options, as people type it and as files keep it: "recall:pairs=8,vocab=64".

text     name[:option=value[,option=value…]]
value    an integer, a number, true or false, or text; text that could be mistaken is quoted as in JSON
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from mecheval.core.errors import InvalidInput

Scalar = bool | int | float | str

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf)")
_PLAIN = re.compile(r"[^\s,=:\"]+")
_ASSIGNMENT = re.compile(r'([^,="]*)=("(?:[^"\\]|\\.)*"|[^,"]*)(,|$)')


@dataclass(frozen=True, eq=False)
class Spec:
    """What a user names: a task, a mixer or an architecture, with its options."""

    name: str
    options: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(sorted(self.options.items()))))

    @classmethod
    def parse(cls, text: str) -> "Spec":
        name, colon, rest = text.partition(":")
        problems = []
        if not _NAME.fullmatch(name):
            problems.append(f"name={name!r} must be letters, digits and underscores, as in 'recall:pairs=8'")
        if colon and not rest:
            problems.append(f"{text!r} ends in ':'; options must follow it, as in '{name}:option=value'")
        options: dict[str, Scalar] = {}
        at = 0
        while at < len(rest):
            found = _ASSIGNMENT.match(rest, at)
            if not found or not _NAME.fullmatch(found[1]):
                problems.append(f"{rest[at:]!r} must read option=value, as in '{name}:pairs=8,vocab=64'")
                break
            if found[1] in options:
                problems.append(f"{found[1]} is given twice: {options[found[1]]!r} and {found[2]!r}")
            try:
                options[found[1]] = parse_scalar(found[2])
            except ValueError:
                problems.append(f"{found[1]}={found[2]} must be a number, true, false or text")
            at = found.end()
        if rest.endswith(","):
            problems.append(f"{text!r} ends in ','; another option=value must follow it")
        if problems:
            raise InvalidInput(problems)
        return cls(name, options)

    def __str__(self) -> str:
        options = ",".join(f"{name}={print_scalar(value)}" for name, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name

    def __eq__(self, other: object) -> bool:
        # by what is printed: 1, 1.0 and true are equal in Python and different options
        return isinstance(other, Spec) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def to_json(self) -> str:
        return canonical_json({"name": self.name, "options": dict(self.options)})

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        record = json.loads(text)
        return cls(record["name"], record["options"])

    @property
    def key(self) -> str:
        """Names this spec for ever: the same on every machine and in every version."""
        return digest(self.to_json())


def parse_scalar(text: str) -> Scalar:
    """Raises ValueError for what is neither a number, a truth value nor text."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text.lower()):
        return float(text)
    if text.startswith('"'):
        return str(json.loads(text))
    if not text:
        raise ValueError("empty")
    return text


def print_scalar(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    plain = _PLAIN.fullmatch(value) and isinstance(parse_scalar(value), str)
    return value if plain else json.dumps(value, ensure_ascii=False)


def canonical_json(value: object) -> str:
    """One text per value: keys sorted, no spaces, no NaN. What is hashed is this."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
