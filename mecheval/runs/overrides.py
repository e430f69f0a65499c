"""Fields of an experiment as people write them: `train.lr=3e-3` as words, TOML in a file."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import format_value
from mecheval.core.spec import Scalar, parse_scalar
from mecheval.models.registries import mixers
from mecheval.plugins import register_from_text
from mecheval.runs.experiment import Experiment
from mecheval.runs.files import read_input
from mecheval.tasks import tasks

NAMED = {"task": tasks, "model.architecture": mixers}  # specs, with options of their own
_OVERRIDE = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)=(.*)", re.DOTALL)
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_LINE = re.compile(r"\s*([A-Za-z0-9_.\"' -]+?)\s*=")


@dataclass(frozen=True)
class Written:
    """Values by dotted name, and the place where each was written."""

    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, later: "Written") -> "Written":
        """Join two; the later one wins."""
        kept = {name: place for name, place in self.places.items() if name not in later.values}
        return Written({**self.values, **later.values}, {**kept, **later.places})


def read_experiment(words: Sequence[str], file: Path | None) -> Experiment:
    """Build the experiment of a command line: `TASK MODEL` or a file, and `field=value` words."""
    names = [word for word in words if not _OVERRIDE.fullmatch(word)]
    if len(names) not in (0, 2) or not (names or file):
        text = " ".join(names) or "nothing"
        example = "'mecheval run recall mamba'"
        raise InvalidInput(f"{text!r} must be TASK and MODEL, as in {example}; or use --file")
    overrides = from_words([word for word in words if _OVERRIDE.fullmatch(word)])
    if names:
        positional = dict(zip(NAMED, names, strict=True))
        if twice := sorted(positional.keys() & overrides.values.keys()):
            both = {name: (positional[name], overrides.values[name]) for name in twice}
            raise InvalidInput(f"{n} is given twice: {a!r} and {b!r}" for n, (a, b) in both.items())
        overrides = Written(positional) | overrides
    written = from_toml(file) | overrides if file else overrides
    values = dict(written.values)
    for name, registry in NAMED.items():
        if ".py:" in str(values.get(name)):  # a class in a file
            values[name] = register_from_text(registry, values[name])
    return Experiment.of(values, written.places)


def from_words(words: Sequence[str]) -> Written:
    """Parse `name=value` words; report every word that is not one."""
    values: dict[str, Scalar] = {}
    places: dict[str, str] = {}
    problems = []
    for word in words:
        match = _OVERRIDE.fullmatch(word)
        if not match:
            problems.append(f"{word!r} must read field=value, as in 'train.lr=3e-3'")
            continue
        name, text = match.groups()
        if name in values:
            problems.append(f"{name} is given twice: {values[name]!r} and {text!r}")
            continue
        try:
            values[name] = text if name in NAMED else parse_scalar(text)
        except ValueError:
            problems.append(f"{word!r} must give a number, true, false or text")
            continue
        # an error begins with name=value, which is the place unless it was typed differently
        if name not in NAMED and word != f"{name}={format_value(values[name])}":
            places[name] = word
    if problems:
        raise InvalidInput(problems)
    return Written(values, places)


def from_toml(file: Path) -> Written:
    """Read the fields of a TOML file; tables and dotted keys are equivalent."""
    text = read_input(file, "file")
    try:
        values = dict(_flatten(tomllib.loads(text)))
    except (ValueError, RecursionError) as error:  # also a number or a nesting too large for Python
        raise InvalidInput(f"{file}: not TOML: {error}") from error
    lines = _lines(text)
    places = {name: f"{file}:{lines[name]}" if name in lines else str(file) for name in values}
    return Written(values, places)


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _lines(text: str) -> dict[str, int]:
    """Return the line number of each field, where the file is written in the usual way."""
    numbers, table = {}, ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = header[1].strip() + "."
        elif entry := _LINE.match(line):
            numbers[table + re.sub(r"[\s\"']", "", entry[1])] = number
    return numbers
