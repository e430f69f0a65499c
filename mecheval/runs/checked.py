"""A folder whose files are compared with their checksums when they are read."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mecheval.core.errors import StoreError
from mecheval.runs.files import Damaged, parse_json, parse_lines, read, read_json, sha256
from mecheval.runs.records import check_identity, check_records

CHECKSUMS = "checksums.json"
NEEDED = ("experiment.json", "provenance.json", "status.json", "curve.jsonl", "rows.jsonl")
NAME = re.compile(r"[a-z_]+\.(json|jsonl|safetensors)")  # no file name leads out of the folder
Record = dict[str, Any]
Parse = Callable[[bytes, str], list[Record]]


@dataclass(frozen=True)
class CheckedFolder:
    """The files that `checksums.json` in a folder names, and no others."""

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))  # people write Run("runs/…")

    def verify(self, known: Collection[str] = ()) -> None:
        """Compare every file with its checksum, except those that are `known` to be whole."""
        for name in dict.fromkeys((*NEEDED, *self._checksums)):
            if name not in known:
                self._read(name)

    def files(self) -> dict[str, bytes]:
        """Return the content of every file, the checksums last."""
        names = dict.fromkeys((*NEEDED, *self._checksums))
        contents = {name: self._read(name) for name in names}
        return {**contents, CHECKSUMS: (self.folder / CHECKSUMS).read_bytes()}

    @cached_property
    def _checksums(self) -> dict[str, str]:
        try:
            if self.folder.is_symlink() or not self.folder.is_dir():
                raise Damaged("it is not a folder")
            return read_json(self.folder / CHECKSUMS)
        except Damaged as error:
            raise StoreError(f"{self.folder} is not a complete run: {error}") from error

    def _damaged(self, problem: object) -> StoreError:
        return StoreError(f"{self.folder} is damaged: {problem}")

    def _read(self, name: str) -> bytes:
        try:
            if name not in self._checksums or not NAME.fullmatch(name):
                raise Damaged(f"{name} does not belong to it")
            content = read(f"{self.folder}/{name}")  # a Path would take as long as reading
            if sha256(content) != self._checksums[name]:
                raise Damaged(f"{name} does not match its checksum")
        except Damaged as error:
            raise self._damaged(error) from error
        return content

    def _read_json(self, name: str) -> Record:
        return self._parse(name, lambda content, name: [parse_json(content, name)])[0]

    def _read_lines(self, name: str) -> list[Record]:
        return self._parse(name, parse_lines)

    def _parse(self, name: str, parse: Parse) -> list[Record]:
        content = self._read(name)
        try:
            records = parse(content, name)
            check_records(name.partition(".")[0], records, name)
            check_identity(name.partition(".")[0], records, name)
        except Damaged as error:
            raise self._damaged(error) from error
        return records
