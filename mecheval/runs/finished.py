"""A finished run: a folder that is complete and unchanged, or refused.

experiment.json      what determines the run             curve.jsonl              one line for each evaluation on dev
provenance.json      where, when and with what it ran    rows.jsonl               one line for each measurement
status.json          done or diverged, and why           weights.safetensors      the trained model
checksums.json       of all the others                   optimiser.safetensors    what training would go on from
verdict.json         by which mechanism it recalls
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import StoreError
from mecheval.interventions.emergence import crossings
from mecheval.runs.files import Damaged, parse_json, read, read_json, sha256
from mecheval.core.spec import canonical_json

if TYPE_CHECKING:
    from torch import Tensor

CHECKSUMS = "checksums.json"
PARTIAL = ".partial"
NEEDED = ("experiment.json", "provenance.json", "status.json", "curve.jsonl", "rows.jsonl")
NAME = re.compile(r"[a-z_]+\.(json|jsonl|safetensors)")  # of a file of a run: nothing that leads out of the folder
SUMMARY = ("key", "status", "reason", "folder", "steps", "metrics", "verdict", "restored", "emerged")
SHOWN = ("likelihood", "share")  # of what is restored


@dataclass(frozen=True)
class Run:
    """Every file is compared with its checksum when it is read."""

    folder: Path

    @property
    def status(self) -> str:
        return str(self.outcome["status"])

    @property
    def key(self) -> str:
        return str(self.outcome["key"])

    @cached_property
    def outcome(self) -> dict[str, Any]:
        """Status, key, steps, and the reason of a divergence."""
        return self._json("status.json", "status", "key", "steps")

    @cached_property
    def experiment(self) -> dict[str, Any]:
        return self._json("experiment.json")

    @cached_property
    def provenance(self) -> dict[str, Any]:
        return self._json("provenance.json", "made_by")

    @cached_property
    def curve(self) -> list[dict[str, Any]]:
        return self._lines("curve.jsonl")

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return self._lines("rows.jsonl", "split", "metric", "value", "n", "low", "high")

    @cached_property
    def verdict(self) -> dict[str, Any] | None:
        """By which mechanism the model recalls; None where that was not asked or cannot be said."""
        return self._json("verdict.json", "mechanism") if "verdict.json" in self._checksums else None

    def weights(self) -> "dict[str, Tensor]":
        """Of the trained model; a diverged run has none."""
        if self.status != "done":
            raise StoreError(f"{self.folder} has no weights: the run is {self.status}")
        from mecheval.runs.tensors import unpacked

        try:
            return unpacked(self._read("weights.safetensors"))
        except Damaged as error:
            raise StoreError(f"{self.folder} is damaged: {error}") from error

    def summary(self) -> dict[str, Any]:
        """What `mecheval run --json` prints."""
        try:
            metrics, restored = _arranged(self.rows, self.outcome["steps"])
            emerged = crossings(self.rows)
        except (KeyError, TypeError) as error:
            raise StoreError(f"{self.folder} is damaged: rows.jsonl is not what was written") from error
        found = {**self.outcome, "folder": str(self.folder), "metrics": metrics if self.rows else {}}
        found |= {"verdict": self.verdict, "restored": restored} if self.rows else {}
        found |= {"emerged": emerged} if emerged else {}
        return {name: found[name] for name in SUMMARY if name in found}

    def verify(self) -> None:
        """Reads everything."""
        self.files()

    def files(self) -> dict[str, bytes]:
        """The content of all, the checksums last."""
        found = {name: self._read(name) for name in dict.fromkeys((*NEEDED, *self._checksums))}
        return {**found, CHECKSUMS: (self.folder / CHECKSUMS).read_bytes()}

    @cached_property
    def _checksums(self) -> dict[str, str]:
        try:
            if self.folder.is_symlink() or not self.folder.is_dir():
                raise Damaged("it is no folder")
            return read_json(self.folder / CHECKSUMS)
        except Damaged as error:
            raise StoreError(f"{self.folder} is no whole run: {error}") from error

    def _read(self, name: str) -> bytes:
        try:
            if name not in self._checksums or not NAME.fullmatch(name):
                raise Damaged(f"{name} does not belong to it")
            content = read(self.folder / name)
            if sha256(content) != self._checksums[name]:
                raise Damaged(f"{name} does not agree with its checksum")
        except Damaged as error:
            raise StoreError(f"{self.folder} is damaged: {error}") from error
        return content

    def _json(self, name: str, *needed: str) -> dict[str, Any]:
        content = self._read(name)
        return self._whole(name, lambda: [parse_json(content, name)], needed)[0]

    def _lines(self, name: str, *needed: str) -> list[dict[str, Any]]:
        content = self._read(name)
        return self._whole(name, lambda: _parse_lines(content, name), needed)

    def _whole(
        self, name: str, parse: Callable[[], list[dict[str, Any]]], needed: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Who can change a file can change its checksum, too: that alone says nothing."""
        try:
            records = parse()
            for record in records:
                if missing := [field for field in needed if field not in record]:
                    raise Damaged(f"{name} has no {', '.join(missing)}")
        except Damaged as error:
            raise StoreError(f"{self.folder} is damaged: {error}") from error
        return records


def _arranged(rows: Sequence[Mapping[str, Any]], last: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the model does, by split and metric; what was restored at the end, by site, role and metric."""
    metrics: dict[str, Any] = {"unseen": {}, "dev": {}}
    homes = {"test": metrics, "test_unseen": metrics["unseen"], "dev": metrics["dev"]}
    restored: dict[str, Any] = {}
    splits = {row["split"] for row in rows if row.get("corrupted") is not None and row["step"] == last}
    end = ("test" if "test" in splits else "dev", last)  # where the verdict comes from
    for row in rows:
        numbers = {name: row[name] for name in ("value", "n", "low", "high")}
        if row.get("corrupted") is None:
            homes[row["split"]][row["metric"]] = numbers
        elif (row["split"], row["step"]) == end and row["condition"] == "restored" and row["metric"] in SHOWN:
            restored.setdefault(row["site"], {}).setdefault(row["role"], {})[row["metric"]] = numbers
    return metrics, restored


def _parse_lines(text: bytes, name: str) -> list[dict[str, Any]]:
    try:
        records = [json.loads(line) for line in text.splitlines()]
        canonical_json(records)  # refuses what is no number; all at once, for a call takes longer than a line
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{name} is not what was written") from error
    if not all(isinstance(record, dict) for record in records):
        raise Damaged(f"{name} is not what was written")
    return records
