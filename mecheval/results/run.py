"""A finished run: a folder that is complete and unchanged, or refused.

experiment.json      what determines the run             curve.jsonl              one line for each evaluation on dev
provenance.json      where, when and with what it ran    rows.jsonl               one line for each measurement
status.json          done or diverged, and why           weights.safetensors      the trained model
checksums.json       of all the others                   optimiser.safetensors    what training would go on from
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.errors import StoreError
from mecheval.results.files import Damaged, read, read_json, sha256

if TYPE_CHECKING:
    from torch import Tensor

CHECKSUMS = "checksums.json"
PARTIAL = ".partial"
SUMMARY = ("key", "status", "reason", "folder", "steps", "metrics")


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
        return self._json("status.json")

    @cached_property
    def experiment(self) -> dict[str, Any]:
        return self._json("experiment.json")

    @cached_property
    def provenance(self) -> dict[str, Any]:
        return self._json("provenance.json")

    @cached_property
    def curve(self) -> list[dict[str, Any]]:
        return self._lines("curve.jsonl")

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return self._lines("rows.jsonl")

    def weights(self) -> "dict[str, Tensor]":
        """Of the trained model; a diverged run has none."""
        if self.status != "done":
            raise StoreError(f"{self.folder} has no weights: the run is {self.status}")
        from mecheval.results.tensors import unpacked

        try:
            return unpacked(self._read("weights.safetensors"))
        except Damaged as error:
            raise StoreError(f"{self.folder} is damaged: {error}") from error

    def summary(self) -> dict[str, Any]:
        """What `mecheval run --json` prints."""
        metrics: dict[str, Any] = {"unseen": {}, "dev": {}}
        homes = {"test": metrics, "test_unseen": metrics["unseen"], "dev": metrics["dev"]}
        for row in self.rows:
            homes[row["split"]][row["metric"]] = {name: row[name] for name in ("value", "n", "low", "high")}
        outcome = {**self.outcome, "folder": str(self.folder), "metrics": metrics if self.rows else {}}
        return {name: outcome[name] for name in SUMMARY if name in outcome}

    def verify(self) -> None:
        """Reads everything."""
        for name in self._checksums:
            self._read(name)

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
            if Path(name).name != name or name not in self._checksums:
                raise Damaged(f"{name} does not belong to it")
            content = read(self.folder / name)
            if sha256(content) != self._checksums[name]:
                raise Damaged(f"{name} does not agree with its checksum")
        except Damaged as error:
            raise StoreError(f"{self.folder} is damaged: {error}") from error
        return content

    def _json(self, name: str) -> dict[str, Any]:
        content = json.loads(self._read(name))["content"]
        assert isinstance(content, dict)
        return content

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._read(name).splitlines()]
