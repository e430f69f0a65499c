"""Runs without their folders: what they measured, in three Parquet tables, small enough to stay beside a text.

study.json       recipe, scale, and the checksums of the others    rows.parquet      every measurement
runs.parquet     every planned experiment, how it ended, its       curves.parquet    every evaluation
                 verdict and provenance

Weights and checkpoints are left behind. Measured numbers have single precision.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mecheval.core.errors import StoreError
from mecheval.results.parquet import read_parquet, write_parquet
from mecheval.runs.files import Damaged, read, read_json, sha256, write_json

KEPT = "study.json"
OUTCOME = ("key", "status", "steps", "reason", "folder")
_REAL = {"runs": "Float64", "rows": "Float32", "curves": "Float32"}  # of each table
_TABLES = tuple(_REAL)
FACTS = ("verdict", "provenance")
Lines = list[dict[str, Any]]
Facts = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class KeptRun:
    """What is left of a finished run."""

    row_records: Lines
    curve: Lines
    verdict_record: dict[str, Any] | None
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """`runs` has a line for each experiment, planned or found; `rows` and `curves` name its run by `key`."""

    recipe: str | None
    scale: str | None
    runs: Lines
    rows: Lines
    curves: Lines

    @classmethod
    def read(cls, folder: Path) -> "Kept | None":
        """None if nothing is kept there."""
        if not (folder / KEPT).exists():
            return None
        try:
            about = read_json(folder / KEPT)
            for name in _TABLES:
                if sha256(read(folder / f"{name}.parquet")) != about["sha256"][name]:
                    raise Damaged(f"{name}.parquet does not agree with its checksum")
            tables = {name: read_parquet(folder / f"{name}.parquet") for name in _TABLES}
            return cls(about["recipe"], about["scale"], **tables)
        except (Damaged, KeyError, TypeError) as error:
            raise StoreError(f"{folder / KEPT} is damaged: {error}") from error

    def write(self, folder: Path) -> None:
        """What was there goes when the new tables are whole; `study.json` comes last: without it nothing counts."""
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as made:
            tables = {name: Path(made) / f"{name}.parquet" for name in _TABLES}
            for name, path in tables.items():
                write_parquet(_table(getattr(self, name), _REAL[name]), path)
            checksums = {name: sha256(read(path)) for name, path in tables.items()}
            (folder / KEPT).unlink(missing_ok=True)
            for path in tables.values():
                path.replace(folder / path.name)
        write_json(folder / KEPT, {"recipe": self.recipe, "scale": self.scale, "sha256": checksums})

    @staticmethod
    def files(folder: Path) -> list[Path]:
        return [folder / KEPT, *(folder / f"{name}.parquet" for name in _TABLES)]

    def found(self, folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any], KeptRun | None]]:
        """As if the folders were there: how each ended, its experiment, and what it measured."""
        rows, curves = _by_key(self.rows), _by_key(self.curves)
        for line in self.runs:
            outcome = {name: line[name] for name in OUTCOME} | {"folder": str(folder / line["folder"])}
            key, verdict, provenance = str(line["key"]), *(json.loads(line[name] or "null") for name in FACTS)
            run = KeptRun(rows[key], curves[key], verdict, provenance) if provenance else None
            yield outcome, experiment_of(line), run


def experiment_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """The key and the fields of a line of `runs`; what an experiment does not have is None in the table."""
    others = {name: value for name, value in line.items() if name not in (*OUTCOME, *FACTS)}
    return {"key": line["key"], **{name: value for name, value in others.items() if value is not None}}


def _by_key(lines: Sequence[Mapping[str, Any]]) -> defaultdict[str, Lines]:
    found: defaultdict[str, Lines] = defaultdict(list)
    for line in lines:
        found[line["key"]].append({name: value for name, value in line.items() if name != "key"})
    return found


def _table(lines: Lines, real: str) -> Any:
    """Each column of one kind: whole numbers stay whole beside nothing."""
    from pandas import DataFrame

    names = dict.fromkeys(["key", *(name for line in lines for name in line)])
    table = DataFrame([{name: line.get(name) for name in names} for line in lines], columns=list(names), dtype=object)
    return table.astype({name: _kind({type(value) for value in table[name]} - {type(None)}, real) for name in names})


def _kind(types: set[type], real: str) -> str:
    if types == {bool}:
        return "boolean"
    if types == {int}:
        return "Int64"
    return real if types and types <= {int, float} else "string"
