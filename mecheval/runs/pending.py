"""A run on its way: a folder with a lock, an experiment and checkpoints, renamed when everything is in it."""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mecheval.core.errors import StoreError
from mecheval.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from mecheval.runs.files import Damaged, read, read_json, remove, sha256, sync, write, write_json
from mecheval.runs.finished import CHECKSUMS, NAME, PARTIAL, Run
from mecheval.core.spec import canonical_json

ERROR, PROGRESS = "error.json", "progress.json"
FAILED = ("error", "killed", "timeout")


@dataclass(frozen=True)
class Workplace:
    """`final` is where the run will be; until then it is in `folder`."""

    final: Path

    @property
    def folder(self) -> Path:
        return self.final.with_name(self.final.name + PARTIAL)

    @property
    def finished(self) -> Run | None:
        return Run(self.final) if os.path.lexists(self.final) else None

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """The folder, locked; another process that comes is turned away. The lock goes with the process."""
        with locked(self.folder):
            try:
                yield
            finally:
                if self.finished and self.folder.is_dir():  # another process was quicker: ours is empty
                    with suppress(OSError):
                        self.folder.rmdir()

    def recovered(self) -> Run | None:
        """The run, if everything was written when its process was killed: then only the new name is missing."""
        try:
            Run(self.folder).verify()
        except StoreError:
            return None
        return self._renamed()

    def begin(self, experiment: Mapping[str, Any], made_by: Mapping[str, Any]) -> None:
        """Says whose folder this is, or refuses one that is another's."""
        for name, mine in (("experiment.json", experiment), ("made_by.json", made_by)):
            path = self.folder / name
            if not os.path.lexists(path):
                write_json(path, mine)
                continue
            try:
                theirs = read_json(path)
            except Damaged as error:
                raise StoreError(f"{self.folder} is damaged: {error}; remove it to start again") from error
            refuse_differences(self.folder, theirs, mine)
        remove(self.folder / ERROR)
        checkpoints = self.folder / "checkpoints"
        if checkpoints.is_symlink():
            raise StoreError(f"{checkpoints} is a link; remove it to start again")
        try:
            checkpoints.mkdir(exist_ok=True)
            sync(self.folder)
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be used: {error.strerror}") from error

    def save(self, checkpoint: Checkpoint) -> None:
        save_checkpoint(self.folder / "checkpoints", checkpoint)

    def load(self) -> tuple[Checkpoint | None, list[str]]:
        return load_checkpoint(self.folder / "checkpoints")

    def note(self, status: Mapping[str, Any]) -> None:
        """The error it ended in; the same command tries again."""
        write_json(self.folder / ERROR, status)

    def fail(self, experiment: Mapping[str, Any], made_by: Mapping[str, Any], status: str, reason: str) -> None:
        """Keeps why there is no run, for a process that could not say it."""
        with self.claimed():
            if not self.finished:
                self.begin(experiment, made_by)
                self.note({"status": status, "reason": reason})

    def receive(self, files: Mapping[str, bytes]) -> Run:
        """The run that another machine made, from the content of its files."""
        if strange := [name for name in files if not NAME.fullmatch(name)]:
            raise StoreError(f"{self.folder} cannot be filled: {strange[0]!r} is no file of a run")
        with self.claimed():
            if found := self.finished:
                return found
            for name, content in files.items():
                write(self.folder / name, content)
            if not (found := self.recovered()):
                raise StoreError(f"{self.folder} cannot be filled: what came is no whole run")
            return found

    def finish(
        self,
        records: Mapping[str, Mapping[str, Any]],
        tables: Mapping[str, Sequence[Mapping[str, Any]]],
        files: Mapping[str, bytes],
    ) -> Run:
        """Writes what is to be kept and renames the folder, once everything is on the disk."""
        for name, record in records.items():
            write_json(self.folder / f"{name}.json", record)
        for name, rows in tables.items():
            write(self.folder / f"{name}.jsonl", "".join(canonical_json(row) + "\n" for row in rows).encode())
        for name, content in files.items():
            write(self.folder / name, content)
        kept = [*(f"{name}.json" for name in ("experiment", *records)), *(f"{name}.jsonl" for name in tables), *files]
        try:
            checksums = {name: sha256(read(self.folder / name)) for name in sorted(kept)}
        except Damaged as error:
            raise StoreError(f"{self.folder} is damaged: {error}") from error
        write_json(self.folder / CHECKSUMS, checksums)
        return self._renamed()

    def _renamed(self) -> Run:
        kept = {*read_json(self.folder / CHECKSUMS), CHECKSUMS}
        for path in self.folder.iterdir():
            if path.name not in kept:
                remove(path)
        try:
            self.folder.rename(self.final)
            sync(self.final.parent)
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be renamed to {self.final}: {error.strerror}") from error
        return Run(self.final)


def refuse_differences(folder: Path, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    names = sorted(name for name in {*theirs, *mine} if theirs.get(name) != mine.get(name))
    if names:
        found = ", ".join(f"{name} was {theirs.get(name)!r} and is {mine.get(name)!r}" for name in names)
        raise StoreError(f"{folder} was made by another: {found}; remove it or take another folder")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder, made if it is not there; StoreError if another process has it. The lock goes with the process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync(folder.parent)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise StoreError(f"{folder} cannot be used: {error.strerror}") from error
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def in_use(folder: Path) -> bool:
    """Whether a process works there now."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lock(descriptor: int, folder: Path) -> None:
    for _ in range(10):  # somebody may only be looking, which takes no time: see `in_use`
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            time.sleep(0.01)
    raise StoreError(f"{folder} is in use by another process; wait for it or take another folder")
