"""Archives: what runs measured, in three Parquet tables that are small enough for a repository.

study.json        recipe, scale, and the checksums of the tables
runs.parquet      every planned experiment, how it ended, its verdict and provenance
rows.parquet      every measurement
curves.parquet    every evaluation

Weights and checkpoints are not archived. Measured numbers have single precision.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.core.spec import canonical_json
from mecheval.results.parquet import Lines, duckdb_name, read_parquet, write_parquet
from mecheval.runs.files import Damaged, read, read_json, sha256, write_json
from mecheval.runs.records import check_records

if TYPE_CHECKING:
    from pandas import DataFrame

KEPT = "study.json"
DAMAGED = "damaged"
OUTCOME = ("key", "status", "steps", "reason", "folder")
FACTS = ("verdict", "provenance")
_FLOAT = {"runs": "Float64", "rows": "Float32", "curves": "Float32"}  # of each table
_TABLES = tuple(_FLOAT)
Facts = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class RunData:
    """Everything that a finished run measured."""

    rows: Lines
    curve: Lines
    verdict: dict[str, Any] | None
    provenance: dict[str, Any]


Entry = tuple[dict[str, Any], dict[str, Any], RunData | None]  # outcome, experiment, measurements


@dataclass(frozen=True)
class Archive:
    """`runs` has a line for each experiment, planned or finished; `rows` and `curves` its `key`."""

    recipe: str | None
    scale: str | None
    runs: Lines
    rows: Lines
    curves: Lines

    @classmethod
    def read(cls, folder: Path) -> "Archive | None":
        """Read the archive in a folder; return None if there is none."""
        if not os.path.lexists(folder / KEPT):  # a link that leads nowhere is damage
            if all(path.exists() for path in cls.files(folder)[1:]):
                raise StoreError(f"{folder} is damaged: it has tables and no {KEPT}")
            return None
        try:
            about = read_json(folder / KEPT)
            check_records("study", [about], KEPT)
            for name in _TABLES:
                if sha256(read(folder / f"{name}.parquet")) != about["sha256"].get(name):
                    raise Damaged(f"{name}.parquet does not agree with its checksum")
            tables = {name: read_parquet(folder / f"{name}.parquet") for name in _TABLES}
            _check_tables(**tables)
            return cls(about["recipe"], about["scale"], **tables)
        except Damaged as error:
            raise StoreError(f"{folder} is damaged: {error}") from error

    def write(self, folder: Path) -> None:
        """Replace the archive in a folder once the new tables are complete.

        `study.json` is written last: without it there is no archive.
        """
        try:
            checksums = self._write_tables(folder)
        except OSError as error:
            raise StoreError(f"{folder} cannot be written: {error.strerror}") from error
        about = {"recipe": self.recipe, "scale": self.scale, "sha256": checksums}
        write_json(folder / KEPT, about)

    def _write_tables(self, folder: Path) -> dict[str, str]:
        """Replace the tables once all are complete; return their checksums."""
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as temporary:
            tables = {name: Path(temporary) / f"{name}.parquet" for name in _TABLES}
            for name, path in tables.items():
                write_parquet(_table(getattr(self, name), _FLOAT[name]), path)
            checksums = {name: sha256(read(path)) for name, path in tables.items()}
            (folder / KEPT).unlink(missing_ok=True)
            for path in tables.values():
                path.replace(folder / path.name)
        return checksums

    @staticmethod
    def files(folder: Path) -> list[Path]:
        return [folder / KEPT, *(folder / f"{name}.parquet" for name in _TABLES)]

    def entries(self, folder: Path) -> Iterator[Entry]:
        """Yield the outcome, the experiment and the data of each run, as run folders would."""
        rows, curves = _by_key(self.rows), _by_key(self.curves)
        for line in self.runs:
            outcome = {name: line[name] for name in OUTCOME}
            outcome["folder"] = str(folder / line["folder"])
            verdict, provenance = (json.loads(line[name] or "null") for name in FACTS)
            key = str(line["key"])
            data = RunData(rows[key], curves[key], verdict, provenance) if provenance else None
            yield outcome, experiment_of(line), data

    def damaged(self) -> list[str]:
        """Return the reason why each damaged run has no measurements."""
        return [str(line["reason"]) for line in self.runs if line["status"] == DAMAGED]

    @property
    def about(self) -> str:
        if not self.recipe:
            return "runs without a sweep"
        return f"runs of {self.recipe} at scale {self.scale}"


def keep(folders: Sequence[Path], out: Path) -> Archive:
    """Archive the runs of all folders into `out`, in place of an archive that is there.

    A folder may be an archive itself, even `out`: runs of one sweep on several machines become one
    study, and runs made one by one join the sweep that plans them.
    """
    duckdb_name(out)
    try:
        used = out.exists() and any(out.iterdir() if out.is_dir() else [out])
        if used and not (out / KEPT).exists():
            raise InvalidInput(f"out={str(out)!r} must be a new folder, or one with a kept study")
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {error.strerror}") from error
    archives = [_collect(folder) for folder in folders]
    first = archives[0]
    for folder, archive in zip(folders, archives, strict=True):
        if not _belongs(archive, first):
            problem = f"has {archive.about}, and must not be mixed with {first.about}"
            raise InvalidInput(f"DIR={str(folder)!r} {problem}")
    joined = _join(archives)
    joined.write(out)
    return joined


def experiment_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return key and fields of a line of `runs`; a field that an experiment lacks is None there."""
    others = {n: v for n, v in line.items() if n not in (*OUTCOME, *FACTS) and v is not None}
    return {"key": line["key"], **others}


def _check_tables(runs: Lines, rows: Lines, curves: Lines) -> None:
    """Raise Damaged, which names table and field, unless the tables have what readers need."""
    check_records("line", runs, "runs.parquet")
    finished = [line for line in runs if line["provenance"]]
    planned = [experiment_of(line) for line in runs if line["key"] is not None]
    check_records("experiment", planned, "runs.parquet")
    for name in FACTS:
        facts = [_parse_fact(line[name], name) for line in finished if line[name]]
        check_records(name, facts, f"runs.parquet: {name}")
    keys = {line["key"] for line in finished}
    for kind, lines, name in (("rows", rows, "rows.parquet"), ("curve", curves, "curves.parquet")):
        check_records(kind, lines, name)
        if unknown := [line for line in lines if line.get("key") not in keys]:
            raise Damaged(f"{name} has key={unknown[0].get('key')!r}, which no finished run has")


def _parse_fact(text: str, name: str) -> dict[str, Any]:
    try:
        fact = json.loads(text)
        canonical_json(fact).encode()
    except (ValueError, RecursionError) as error:
        raise Damaged(f"runs.parquet: {name} is not JSON") from error
    if not isinstance(fact, dict):
        raise Damaged(f"runs.parquet: {name} is not a record")
    return fact


def _collect(folder: Path) -> Archive:
    from mecheval.results.plan import Plan  # which reads archives
    from mecheval.results.table import Results

    results, plan = Results(folder), Plan.read(folder)
    if not results.runs():
        raise InvalidInput(f"DIR={str(folder)!r} has no runs")
    if plan:
        plan.check_runs(results)
    recipe, scale = (plan.recipe, plan.scale) if plan else (None, None)
    facts, lines = results.facts(), []
    for state in plan.states(results) if plan else results.runs():
        known = facts.get(state["key"], {})
        texts = {name: canonical_json(known[name]) if known.get(name) else None for name in FACTS}
        lines.append({**state, "folder": Path(state["folder"]).name, **texts})
    return Archive(recipe, scale, lines, results.measured("rows"), results.measured("curve"))


def _belongs(archive: Archive, first: Archive) -> bool:
    if archive.recipe is not None:
        return (archive.recipe, archive.scale) == (first.recipe, first.scale)
    planned = {line["key"] for line in first.runs}
    return first.recipe is None or {line["key"] for line in archive.runs} <= planned


def _join(archives: Sequence[Archive]) -> Archive:
    """Take each run once: from the first archive in which it is finished, if there is one."""
    from mecheval.results.plan import FINISHED

    owner: dict[str, Archive] = {}
    lines: dict[str, dict[str, Any]] = {}
    for archive in archives:
        for line in archive.runs:
            name = line["key"] or line["folder"]  # a damaged run has no key
            better = line["status"] in FINISHED
            if name not in lines or (better and lines[name]["status"] not in FINISHED):
                owner[name], lines[name] = archive, line
    first = archives[0]
    joined = Archive(first.recipe, first.scale, list(lines.values()), [], [])
    for archive in archives:
        joined.rows.extend(row for row in archive.rows if owner[row["key"]] is archive)
        joined.curves.extend(row for row in archive.curves if owner[row["key"]] is archive)
    return joined


def _by_key(lines: Sequence[Mapping[str, Any]]) -> defaultdict[str, Lines]:
    groups: defaultdict[str, Lines] = defaultdict(list)
    for line in lines:
        groups[line["key"]].append({name: line[name] for name in line if name != "key"})
    return groups


def _table(lines: Lines, real: str) -> "DataFrame":
    """Give each column one type: integers stay integers where values are missing."""
    from pandas import DataFrame

    names = list(dict.fromkeys(["key", *(name for line in lines for name in line)]))
    cells = [[line.get(name) for name in names] for line in lines]
    table = DataFrame(cells, columns=names, dtype=object)
    types = {name: {type(value) for value in table[name]} - {type(None)} for name in names}
    return table.astype({name: _dtype(types[name], real) for name in names})


def _dtype(types: set[type], real: str) -> str:
    if types == {bool}:
        return "boolean"
    if types == {int}:
        return "Int64"
    return real if types and types <= {int, float} else "string"
