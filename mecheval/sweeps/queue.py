"""A queue: studies in order of worth, whose runs are made whenever a machine has time for them.

It is a TOML file beside the kept studies that it makes grow:

[[study]]
recipe = "emergence"
scale = "small"
why = "one sentence"

and, if wanted, `name` (the folder of the kept study; without it RECIPE-SCALE, for the scale `small`
RECIPE), `seeds = 10` (as many for each model), `only` (fields that a run must have) and `fields`
(set in every run; such a study needs a name of its own).

What is kept beside the file is never trained again, wherever it was trained: runs of other kept
studies join those that plan them. All new runs are in one folder, and each study is kept again when
one of its runs has finished.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from mecheval.core.errors import InvalidInput
from mecheval.core.options import Field, did_you_mean, format_value, validate
from mecheval.results.archive import KEPT, Archive
from mecheval.results.folders import read_run
from mecheval.results.keep import join
from mecheval.results.plan import Plan
from mecheval.runs.experiment import Experiment, fields_of
from mecheval.runs.files import read_input
from mecheval.sweeps.recipe import get_experiments, get_scale

_NAME = re.compile("[a-z0-9][a-z0-9_-]*")
_TABLES = ("only", "fields")  # of fields of experiments


@dataclass(frozen=True)
class QueuedStudy:
    """The experiments of a recipe that a queue wants, and the kept study they become part of."""

    name: str
    why: str
    plan: Plan
    experiments: Sequence[Experiment]

    @property
    def keys(self) -> set[str]:
        return {experiment.key for experiment in self.experiments}


@dataclass(frozen=True)
class Queue:
    """The studies of a file; `kept` has the study in which each finished run is kept, by its key.

    `keep` is called when runs have finished and adds them.
    """

    path: Path
    studies: Sequence[QueuedStudy]
    kept: dict[str, set[str]]  # the names of kept studies by the key of a run

    @classmethod
    def read(cls, path: Path) -> "Queue":
        """Read a file and the studies that are kept beside it; report every problem at once."""
        studies = _studies(path)
        kept: dict[str, set[str]] = {}
        for record in sorted(path.parent.glob(f"*/{KEPT}")):
            if archive := Archive.read(record.parent):
                for key in archive.finished():
                    kept.setdefault(key, set()).add(record.parent.name)
        return cls(path, studies, kept)

    @property
    def experiments(self) -> list[Experiment]:
        """Every experiment that is wanted, each once, in order."""
        wanted = {one.key: one for study in self.studies for one in study.experiments}
        return list(wanted.values())

    @property
    def todo(self) -> list[Experiment]:
        """The experiments of which no run is kept."""
        return [one for one in self.experiments if one.key not in self.kept]

    def count(self, study: QueuedStudy) -> int:
        """Return of how many experiments of a study a run is kept in any study."""
        return sum(key in self.kept for key in study.keys)

    def keep(self, folders: Mapping[str, Path]) -> list[str]:
        """Keep finished runs, folders by key, in the first study that wants each.

        Any other study is kept again as soon as nothing that it wants is missing. Return the names
        of the studies that have grown.
        """
        new = dict(folders)
        grown = []
        for study in self.studies:
            mine = study.keys & new.keys()
            known = {key for key in study.keys if study.name in self.kept.get(key, ())}
            whole = study.keys <= self.kept.keys() | folders.keys()
            if mine or (whole and known < study.keys):
                self._keep_study(study, {key: folders[key] for key in study.keys & folders.keys()})
                grown.append(study.name)
            for key in mine:
                del new[key]
        return grown

    def _keep_study(self, study: QueuedStudy, folders: Mapping[str, Path]) -> None:
        """Join what is planned, what is kept, here or in other studies, and what is new."""
        place = self.path.parent / study.name
        archives = [Archive.planned(study.plan)]
        if before := Archive.read(place):
            archives.append(before)
        lent = {name for key in study.keys for name in self.kept.get(key, ())} - {study.name}
        for name in sorted(lent):
            if other := Archive.read(self.path.parent / name):
                archives.append(other.only(study.keys))
        archives.append(Archive.of(map(read_run, folders.values())).only(study.keys))
        joined = join(archives)
        joined.write(place)
        for key in joined.finished():
            self.kept.setdefault(key, set()).add(study.name)


def _studies(path: Path) -> list[QueuedStudy]:
    try:
        content = tomllib.loads(read_input(path, "queue"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"queue={str(path)!r} is not TOML: {error}") from error
    tables = content.get("study")
    if content.keys() != {"study"} or not isinstance(tables, list) or not tables:
        raise InvalidInput(f"queue={str(path)!r} must have tables [[study]] and nothing else")
    studies: list[QueuedStudy] = []
    problems: list[str] = []
    for number, table in enumerate(tables, 1):
        try:
            studies.append(_study(table))
        except InvalidInput as error:
            problems += error.within(f"{path}, study {number}").problems
    if problems:
        raise InvalidInput(problems)
    _check_names(path, studies)
    return studies


def _check_names(path: Path, studies: Sequence[QueuedStudy]) -> None:
    """Refuse a study whose folder is that of other runs."""
    about: dict[str, str] = {}
    for study in studies:
        planned = Archive.planned(study.plan).about
        place = path.parent / study.name
        if place.is_dir() and (before := Archive.read(place)):
            about.setdefault(study.name, before.about)
        if (other := about.setdefault(study.name, planned)) != planned:
            problem = f"{path}: {place} has {other}, and must not be mixed with {planned}"
            raise InvalidInput(f"{problem}; give the study another name")


@dataclass(frozen=True, kw_only=True)
class _Written:
    """The values of a study in the file, beside its tables `only` and `fields`."""

    recipe: str
    scale: str
    why: str
    name: str | None = None
    seeds: Annotated[int | None, Field(ge=1, le=1000)] = None


def _study(table: Any) -> QueuedStudy:
    if not isinstance(table, dict):
        raise InvalidInput(f"{format_value(table)} must be a table")
    values = {name: value for name, value in table.items() if name not in _TABLES}
    written = _Written(**validate(_Written, values))
    only, fields = (_fields(table, name) for name in _TABLES)
    scale = get_scale(written.scale)
    usual = written.recipe if scale.name == "small" else f"{written.recipe}-{scale.name}"
    name = written.name or usual
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"name={name!r} must be of small letters, digits, - and _")
    if fields and name == usual:
        raise InvalidInput("fields change every run; give the study a name of its own")
    if written.seeds:
        scale = scale.with_seeds(written.seeds)
    experiments = list(_selected(get_experiments(written.recipe, scale), only, fields))
    if not experiments:
        raise InvalidInput(f"only={format_value(only)} leaves no experiment of {written.recipe}")
    records = tuple(one.record() for one in experiments)
    plan = Plan(written.recipe, scale.name, records, tuple(one.name for one in experiments))
    return QueuedStudy(name, written.why, plan, experiments)


def _fields(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a table of fields; refuse one that no experiment has."""
    fields = table.get(name, {})
    if not isinstance(fields, dict):
        raise InvalidInput(f"{name}={format_value(fields)} must be a table of fields")
    fields = dict(_flat(fields))
    for field in fields:
        if field not in fields_of():
            raise InvalidInput(f"{name}: no field {field!r}{did_you_mean(field, fields_of())}")
    return fields


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted names: TOML reads `train.lr = 1` as a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _selected(
    experiments: Sequence[Experiment], only: Mapping[str, Any], fields: Mapping[str, Any]
) -> Iterator[Experiment]:
    for experiment in experiments:
        have = experiment.fields()
        if all(have.get(name) in _listed(value) for name, value in only.items()):
            yield Experiment.of({**have, **fields}) if fields else experiment


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
