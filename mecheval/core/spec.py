"""A spec is a name with options, as people type it and files store it: "recall:pairs=8,vocab=64".

text     name[:option=value[,option=value…]]
value    an integer, a number, true or false, or text; ambiguous text is quoted as in JSON

A hybrid begins with its pattern, "hybrid:mamba*3+attention[heads=2],norm=rms": commas in brackets
belong to the pattern.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from mecheval.core.errors import InvalidInput

Scalar = bool | int | float | str
HUB = "hf:"  # in front of a folder, a file or a name

# the first option, written without a name
UNNAMED = {"hybrid": "pattern", "parallel": "mixers", "hf-config": "family"}
_PATTERN = re.compile(r"(?:[A-Za-z0-9_+*|]|\[[^\[\]]*\])+")
_OPTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(_OPTION.pattern + r"(-[A-Za-z0-9_]+)*")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf)")
_PLAIN = re.compile(r"[^\s,=:\"]+")
_CANONICAL = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")
)
_ASSIGNMENT = re.compile(r'([^,="]*)=("(?:[^"\\]|\\.)*"|[^,"]*)(,|$)')


@dataclass(frozen=True, eq=False)
class Spec:
    """The name of a task, mixer, architecture or model, with its options.

    Parameters
    ----------
    name
        The name.
    options
        Its options.

    Examples
    --------
    >>> from mecheval import Spec
    >>> spec = Spec.parse("recall:vocab=64,pairs=8")
    >>> str(spec), dict(spec.options)
    ('recall:pairs=8,vocab=64', {'pairs': 8, 'vocab': 64})
    """

    name: str
    options: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = MappingProxyType(dict(sorted(self.options.items())))
        object.__setattr__(self, "options", options)

    @classmethod
    def parse(cls, text: str) -> "Spec":
        """Read a spec from text, or raise InvalidInput with everything that is wrong with it."""
        name, colon, rest = text.partition(":")
        problems = []
        if not _NAME.fullmatch(name):
            example = "as in 'recall:pairs=8'"
            problems.append(f"name={name!r} must be letters, digits and underscores, {example}")
        if colon and not rest:
            problems.append(f"{text!r} ends in ':'; add options, as in '{name}:option=value'")
        options: dict[str, Scalar] = {}
        at = 0
        if name in UNNAMED and (first := re.match(_PATTERN.pattern + "(,|$)", rest)):
            options[UNNAMED[name]], at = first[0].removesuffix(","), first.end()
        while at < len(rest):
            match = _ASSIGNMENT.match(rest, at)
            if not match or not _OPTION.fullmatch(match[1]):
                example = f"'{name}:pairs=8,vocab=64'"
                problems.append(f"{rest[at:]!r} must read option=value, as in {example}")
                break
            option, value, _ = match.groups()
            if option in options:
                problems.append(f"{option} is given twice: {options[option]!r} and {value!r}")
            try:
                options[option] = parse_scalar(value)
            except ValueError:
                problems.append(f"{option}={value} must be a number, true, false or text")
            at = match.end()
        if rest.endswith(","):
            problems.append(f"{text!r} ends in ','; remove it or add another option=value")
        if problems:
            raise InvalidInput(problems)
        return cls(name, options)

    def __str__(self) -> str:
        options, first = dict(self.options), UNNAMED.get(self.name, "")
        parts = []
        if _PATTERN.fullmatch(str(options.get(first, ""))):
            parts.append(str(options.pop(first)))
        parts += [f"{name}={print_scalar(value)}" for name, value in options.items()]
        return f"{self.name}:{','.join(parts)}" if parts else self.name

    def __eq__(self, other: object) -> bool:
        # compares text: 1, 1.0 and true are equal in Python and different options
        return isinstance(other, Spec) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def key(self) -> str:
        """A hash that is the same on every machine and in every version."""
        return digest(canonical_json({"name": self.name, "options": dict(self.options)}))


def is_hub_name(text: str) -> bool:
    """Tell if a text names a model of transformers, as `hf:FOLDER` does, and is no spec."""
    return text.startswith(HUB)


def parse_scalar(text: str) -> Scalar:
    """Return the number, boolean or text that a text stands for, or raise ValueError."""
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
    """Return the text that `parse_scalar` reads as this value."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    plain = _PLAIN.fullmatch(value) and isinstance(parse_scalar(value), str)
    return value if plain else json.dumps(value, ensure_ascii=False)


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value, for hashing: sorted keys, no spaces, no NaN."""
    return _CANONICAL.encode(value)


def digest(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
