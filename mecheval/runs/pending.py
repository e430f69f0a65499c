"""A pending run: a locked folder with an experiment and checkpoints, renamed when complete."""

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mecheval.core.errors import Interrupted, StoreError
from mecheval.core.spec import canonical_json
from mecheval.runs.checked import CHECKSUMS, NAME
from mecheval.runs.checkpoint import newest_step
from mecheval.runs.files import Damaged, read, read_json, remove, sha256, sync, write, write_json
from mecheval.runs.finished import PARTIAL, Run
from mecheval.runs.lock import locked

ERROR, PROGRESS = "error.json", "progress.json"
FAILED = ("error", "killed", "timeout")
STOPPED = "stopped"  # by a signal, or where it was asked to pause: not finished, not failed
Record = Mapping[str, Any]


@dataclass(frozen=True)
class PendingRun:
    """A run that is not finished: it will be in `final`, and until then it is in `folder`."""

    final: Path

    @property
    def folder(self) -> Path:
        return self.final.with_name(self.final.name + PARTIAL)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def finished(self) -> Run | None:
        return Run(self.final) if os.path.lexists(self.final) else None

    @contextmanager
    def claim(self) -> Iterator[None]:
        """Create and lock the folder; raise StoreError if another process has it."""
        with locked(self.folder):
            try:
                yield
            finally:
                # another process finished the run before we had the lock: our folder is empty
                if self.finished and self.folder.is_dir():
                    with suppress(OSError):
                        self.folder.rmdir()

    def recover(self) -> Run | None:
        """Finish a run whose process was killed when only the rename was missing."""
        try:
            files = Run(self.folder).files()
        except StoreError:
            return None
        return self._rename(files)

    def begin(self, experiment: Record, made_by: Record) -> None:
        """Write what the folder is for, or refuse one that is for something else."""
        for name, record in (("experiment.json", experiment), ("made_by.json", made_by)):
            path = self.folder / name
            if not os.path.lexists(path):
                write_json(path, record)
                continue
            try:
                written = read_json(path)
            except Damaged as error:
                message = f"{self.folder} is damaged: {error}; remove it to start again"
                raise StoreError(message) from error
            check_same(self.folder, written, record)
        remove(self.folder / ERROR)
        if self.checkpoints.is_symlink():
            raise StoreError(f"{self.checkpoints} is a link; remove it to start again")
        try:
            self.checkpoints.mkdir(exist_ok=True)
            sync(self.folder)
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be used: {error.strerror}") from error

    def record_error(self, error: Record) -> None:
        """Keep the error that ended this attempt; rerun the same command to try again."""
        write_json(self.folder / ERROR, error)

    @contextmanager
    def recording_stop(self, steps: int) -> Iterator[None]:
        """Record that this attempt, of so many steps, was stopped and can be resumed."""
        try:
            yield
        except (Interrupted, KeyboardInterrupt):
            with suppress(StoreError, OSError):  # a full disk must not hide the stop
                stopped = f"stopped at step {newest_step(self.checkpoints)} of {steps}"
                reason = f"{stopped}; rerun the same command to resume"
                self.record_error({"status": STOPPED, "reason": reason})
            raise

    def fail(self, experiment: Record, made_by: Record, status: str, reason: str) -> None:
        """Record why there is no run, for a process that could not do so itself."""
        with self.claim():
            if not self.finished:
                self.begin(experiment, made_by)
                self.record_error({"status": status, "reason": reason})

    def receive(self, files: Mapping[str, bytes]) -> Run:
        """Write a run that was made elsewhere, from the content of its files."""
        for name in files:
            if not NAME.fullmatch(name):
                raise StoreError(f"{self.folder} cannot be filled: {name!r} is not a file of a run")
        with self.claim():
            if run := self.finished:
                return run
            for name, content in files.items():
                write(self.folder / name, content)
            if run := self.recover():
                return run
        raise StoreError(f"{self.folder} cannot be filled: the files are not a complete run")

    def finish(
        self,
        records: Mapping[str, Record],
        tables: Mapping[str, Sequence[Record]],
        files: Mapping[str, bytes],
    ) -> Run:
        """Write everything that is kept, then rename the folder."""
        names = ["experiment.json", *files]
        for stem, record in records.items():
            names.append(f"{stem}.json")
            write_json(self.folder / names[-1], record)
        for stem, rows in tables.items():
            names.append(f"{stem}.jsonl")
            lines = "".join(canonical_json(row) + "\n" for row in rows)
            write(self.folder / names[-1], lines.encode())
        for name, content in files.items():
            write(self.folder / name, content)
        try:
            checksums = {name: sha256(read(self.folder / name)) for name in sorted(names)}
        except Damaged as error:
            raise StoreError(f"{self.folder} is damaged: {error}") from error
        write_json(self.folder / CHECKSUMS, checksums)
        run = self._rename({*checksums, CHECKSUMS})
        vars(run)["row_records"] = list(tables["rows"])  # not read back: they were just written
        return run

    def _rename(self, kept: Container[str]) -> Run:
        """Give the folder its final name, with nothing in it but the files of a run."""
        for path in self.folder.iterdir():
            if path.name not in kept:
                remove(path)
        try:
            self.folder.rename(self.final)
            sync(self.final.parent)
        except OSError as error:
            message = f"{self.folder} cannot be renamed to {self.final}: {error.strerror}"
            raise StoreError(message) from error
        return Run(self.final)


def check_same(folder: Path, before: Record, now: Record) -> None:
    """Raise StoreError if a folder's experiment or `made_by` differs from the one at hand."""
    differences = []
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            differences.append(f"{name} was {before.get(name)!r} and is {now.get(name)!r}")
    if differences:
        what = f"{folder} belongs to another run: {', '.join(differences)}"
        raise StoreError(f"{what}; remove it or use another folder")
