"""Run folders as they are found: finished, running, stopped, killed or damaged."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mecheval.core.errors import StoreError
from mecheval.results.archive import DAMAGED, OUTCOME, Entry, RunData
from mecheval.runs.checked import CHECKSUMS, NEEDED
from mecheval.runs.checkpoint import newest_step
from mecheval.runs.files import Damaged, read_json
from mecheval.runs.finished import PARTIAL, Run
from mecheval.runs.lock import in_use
from mecheval.runs.pending import ERROR, FAILED, STOPPED
from mecheval.runs.records import check_records


def read_folders(folder: Path) -> Iterator[Entry]:
    """Read every run in a folder; every file of a finished one is compared with its checksum."""
    found = [run for path in sorted(folder.iterdir()) if (run := _read_run(path))]
    # the other files are large, and their checksums are computed outside Python's lock
    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 8)) as threads:
        yield from threads.map(_verify, found)


def read_run(folder: Path) -> Entry:
    """Read a finished run and compare its files with their checksums."""
    return _verify(_read_finished(folder))


def _read_run(folder: Path) -> tuple[Entry, Run | None] | None:
    """Read a finished or a pending run; return None for anything else."""
    if folder.name.endswith(PARTIAL):
        entry = _read_pending(folder)
        if os.path.lexists(folder):
            return entry, None
        folder = folder.with_name(folder.name.removesuffix(PARTIAL))  # it was finished meanwhile
    if any(os.path.lexists(folder / name) for name in (CHECKSUMS, *NEEDED)):
        return _read_finished(folder)
    return None


def _read_finished(folder: Path) -> tuple[Entry, Run | None]:
    """Read the records of a run; return the run too if it has other files to verify."""
    run = Run(folder)
    try:  # damage must show now, not when a table is built
        data = RunData(run.row_records, run.curve, run.verdict_record, run.provenance)
        ended = (run.key, run.status, run.outcome["steps"], run.outcome.get("reason"))
        if run.record["key"] != run.key:
            raise StoreError(f"{folder} is damaged: status.json and experiment.json differ in key")
        return (_outcome(folder, *ended), run.record, data), run
    except StoreError as error:
        return _damaged(folder, error), None


def _verify(found: tuple[Entry, Run | None]) -> Entry:
    entry, run = found
    if run is None:
        return entry
    try:
        run.verify(known=(*NEEDED, "verdict.json"))
        return entry
    except StoreError as error:
        return _damaged(run.folder, error)


def _damaged(folder: Path, error: StoreError) -> Entry:
    return _outcome(folder, None, DAMAGED, None, str(error)), {}, None


def _read_pending(folder: Path) -> Entry:
    experiment: dict[str, Any] = {}
    status, reason, steps = DAMAGED, None, 0
    try:
        status = "running" if in_use(folder) else "killed"
        steps = newest_step(folder / "checkpoints")
        experiment = _read_checked(folder, "experiment")
        if status == "killed" and (folder / ERROR).exists():
            error = _read_checked(folder, "error")
            status = error["status"] if error.get("status") in (*FAILED, STOPPED) else "error"
            reason = error["reason"]
    except (Damaged, OSError) as problem:
        reason = f"{folder} is damaged: {problem}"
    return _outcome(folder, experiment.get("key"), status, steps, reason), experiment, None


def _read_checked(folder: Path, kind: str) -> dict[str, Any]:
    name = f"{kind}.json"
    record = read_json(folder / name)
    check_records(kind, [record], name)
    return record


def _outcome(folder: Path, *ended: str | int | None) -> dict[str, Any]:
    """Return the columns of OUTCOME; bytes of a name that are not UTF-8 become question marks."""
    texts = (*ended, str(folder))
    values = [v.encode(errors="replace").decode() if isinstance(v, str) else v for v in texts]
    return dict(zip(OUTCOME, values, strict=True))
