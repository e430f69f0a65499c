"""Fields of an experiment as people write them: `train.lr=3e-3` on a command line, TOML in a file."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import format_value
from mecheval.core.spec import Scalar, parse_scalar

OVERRIDE = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)=(.*)", re.DOTALL)
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_LINE = re.compile(r"\s*([A-Za-z0-9_.\"' -]+?)\s*=")


@dataclass(frozen=True)
class Written:
    """Values by dotted name, and where each was written."""

    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, later: "Written") -> "Written":
        """What is written later wins."""
        kept = {name: place for name, place in self.places.items() if name not in later.values}
        return Written({**self.values, **later.values}, {**kept, **later.places})


def from_words(words: Sequence[str]) -> Written:
    """`name=value` each; every word that is none is reported."""
    values: dict[str, Scalar] = {}
    problems = []
    for word in words:
        found = OVERRIDE.fullmatch(word)
        if not found:
            problems.append(f"{word!r} must read field=value, as in 'train.lr=3e-3'")
        elif found[1] in values:
            problems.append(f"{found[1]} is given twice: {values[found[1]]!r} and {found[2]!r}")
        else:
            try:
                values[found[1]] = found[2] if found[1] in TEXTS else parse_scalar(found[2])
            except ValueError:
                problems.append(f"{word!r} must give a number, true, false or text")
    if problems:
        raise InvalidInput(problems)
    # an error opens with name=value, which is the place, unless it was typed in another way
    typed = {word.partition("=")[0]: word for word in words}
    return Written(values, {n: typed[n] for n, v in values.items() if n not in TEXTS and typed[n] != f"{n}={format_value(v)}"})


TEXTS = ("task", "model.architecture")  # specs, with options of their own


def from_toml(file: Path) -> Written:
    """The fields of a TOML file; tables and dotted keys are the same thing."""
    try:
        text = file.read_text(encoding="utf-8")
        values = dict(_flat(tomllib.loads(text)))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"file={str(file)!r} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except (ValueError, RecursionError) as error:  # a number or a nesting that Python refuses to read, too
        raise InvalidInput(f"{file}: no TOML: {error}") from error
    lines = _lines(text)
    return Written(values, {name: f"{file}:{lines[name]}" if name in lines else str(file) for name in values})


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _lines(text: str) -> dict[str, int]:
    """Which line gives which field, where the file is written in the usual way."""
    found, table = {}, ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = header[1].strip() + "."
        elif entry := _LINE.match(line):
            found[table + re.sub(r"[\s\"']", "", entry[1])] = number
    return found
