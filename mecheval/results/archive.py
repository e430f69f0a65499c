"""Archives: what runs measured, in three Parquet tables that are small enough for a repository.

study.json        recipe, scale, and the checksums of the tables
runs.parquet      every planned experiment, how it ended, its verdict and provenance
rows.parquet      every measurement
curves.parquet    every evaluation

Weights and checkpoints are not archived. Measured numbers have single precision. New tables are
written into a folder `next` and then take the place of the old ones, so that a process may be
killed at any time: while there is a folder `next`, what is in it counts.
"""

import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import StoreError
from mecheval.core.spec import canonical_json
from mecheval.results.parquet import Lines, read_parquet, write_parquet
from mecheval.runs.files import TEMPORARY, Damaged, read, read_json, remove, sha256, write_json
from mecheval.runs.records import check_identity, check_records

if TYPE_CHECKING:
    from pandas import DataFrame

    from mecheval.results.plan import Plan  # which reads archives

KEPT, NEXT = "study.json", "next"
DAMAGED, WAITING = "damaged", "waiting"
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
        about_it, *files = cls.files(folder)
        if not os.path.lexists(about_it):  # a link that leads nowhere is damage
            if all(path.exists() for path in files):
                raise StoreError(f"{folder} is damaged: it has tables and no {KEPT}")
            return None
        paths = dict(zip(_TABLES, files, strict=True))
        try:
            about = read_json(about_it)
            check_records("study", [about], KEPT)
            for name, path in paths.items():
                if sha256(read(path)) != about["sha256"].get(name):
                    raise Damaged(f"{name}.parquet does not agree with its checksum")
            tables = {name: read_parquet(path) for name, path in paths.items()}
            _check_tables(**tables)
            return cls(about["recipe"], about["scale"], **tables)
        except Damaged as error:
            raise StoreError(f"{folder} is damaged: {error}") from error

    @classmethod
    def planned(cls, plan: "Plan") -> "Archive":
        """Return the archive of a plan of which nothing has been run."""
        lines = []
        for record, name in zip(plan.experiments, plan.folders, strict=True):
            outcome = {"status": WAITING, "steps": 0, "reason": None, "folder": name}
            lines.append({**outcome, **record, **dict.fromkeys(FACTS)})
        return cls(plan.recipe, plan.scale, lines, [], [])

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "Archive":
        """Return an archive of runs without a plan."""
        archive = cls(None, None, [], [], [])
        for outcome, experiment, data in entries:
            facts = {name: getattr(data, name) for name in FACTS} if data else {}
            archive.runs.append(line_of({**outcome, **experiment}, facts))
            if data:
                archive.rows.extend({"key": outcome["key"], **row} for row in data.rows)
                archive.curves.extend({"key": outcome["key"], **row} for row in data.curve)
        return archive

    def write(self, folder: Path) -> None:
        """Replace the archive in a folder once the new tables are complete."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            settle(folder)
            self._write_next(folder)
            settle(folder)
        except OSError as error:
            raise StoreError(f"{folder} cannot be written: {error.strerror}") from error

    def _write_next(self, folder: Path) -> None:
        """Write all files into a folder of another name, and rename it when it is complete."""
        temporary = folder / f"{NEXT}{TEMPORARY}"
        remove(temporary)  # left by a kill
        temporary.mkdir()
        try:
            about, *tables = self.files(temporary)
            checksums = {}
            for name, path in zip(_TABLES, tables, strict=True):
                write_parquet(_table(getattr(self, name), _FLOAT[name]), path)
                checksums[name] = sha256(read(path))
            record = {"recipe": self.recipe, "scale": self.scale, "sha256": checksums}
            write_json(about, record)
            temporary.rename(folder / NEXT)
        finally:
            remove(temporary)

    @staticmethod
    def files(folder: Path) -> list[Path]:
        """Return the record and the tables: each from the folder `next` as long as it is there."""
        paths = []
        for name in (KEPT, *(f"{table}.parquet" for table in _TABLES)):
            new = folder / NEXT / name
            paths.append(new if os.path.lexists(new) else folder / name)
        return paths

    def finished(self) -> set[str]:
        """Return the keys of the runs that have ended and were measured."""
        return {str(line["key"]) for line in self.runs if line["provenance"]}

    def only(self, keys: Collection[str]) -> "Archive":
        """Return the finished runs with these keys, as runs without a plan."""
        found = self.finished() & set(keys)
        tables = ([line for line in table if line["key"] in found] for table in self._tables)
        return Archive(None, None, *tables)

    @property
    def _tables(self) -> tuple[Lines, ...]:
        return self.runs, self.rows, self.curves

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


def settle(folder: Path) -> None:
    """Put the files in `next` into their places, which a killed process had begun to do."""
    place = folder / NEXT
    if not place.is_dir():
        return
    about, *tables = Archive.files(folder)
    for path in (*tables, about):
        if path.parent == place:
            path.replace(folder / path.name)
    place.rmdir()


def experiment_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return key and fields of a line of `runs`; a field that an experiment lacks is None there."""
    others = {n: v for n, v in line.items() if n not in (*OUTCOME, *FACTS) and v is not None}
    return {"key": line["key"], **others}


def _check_tables(runs: Lines, rows: Lines, curves: Lines) -> None:
    """Raise Damaged, which names table and field, unless the tables have what readers need."""
    check_records("line", runs, "runs.parquet")
    check_identity("line", runs, "runs.parquet")
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
        check_identity(kind, lines, name)


def _parse_fact(text: str, name: str) -> dict[str, Any]:
    try:
        fact = json.loads(text)
        canonical_json(fact).encode()
    except (ValueError, RecursionError) as error:
        raise Damaged(f"runs.parquet: {name} is not JSON") from error
    if not isinstance(fact, dict):
        raise Damaged(f"runs.parquet: {name} is not a record")
    return fact


def line_of(state: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of `runs`: outcome, experiment, and the facts as text."""
    texts = {name: canonical_json(facts[name]) if facts.get(name) else None for name in FACTS}
    return {**state, "folder": Path(state["folder"]).name, **texts}


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
