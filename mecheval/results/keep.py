"""Keep runs: archive what folders of runs and kept studies hold as one study."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.results.archive import KEPT, Archive, line_of, settle
from mecheval.results.parquet import duckdb_name
from mecheval.results.plan import FINISHED, Plan
from mecheval.results.table import Results


def keep(folders: Sequence[Path], out: Path) -> Archive:
    """Archive the runs of all folders into `out`, in place of an archive that is there.

    A folder may be an archive itself, even `out`: runs of one sweep on several machines become one
    study, and runs made one by one join the sweep that plans them.
    """
    duckdb_name(out)
    try:
        settle(out)
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
    joined = join(archives)
    joined.write(out)
    return joined


def _collect(folder: Path) -> Archive:
    results, plan = Results(folder), Plan.read(folder)
    if not results.runs():
        raise InvalidInput(f"DIR={str(folder)!r} has no runs")
    if plan:
        plan.check_runs(results)
    recipe, scale = (plan.recipe, plan.scale) if plan else (None, None)
    facts, lines = results.facts(), []
    for state in plan.states(results) if plan else results.runs():
        lines.append(line_of(state, facts.get(state["key"], {})))
    return Archive(recipe, scale, lines, results.measured("rows"), results.measured("curve"))


def _belongs(archive: Archive, first: Archive) -> bool:
    if archive.recipe is not None:
        return (archive.recipe, archive.scale) == (first.recipe, first.scale)
    planned = {line["key"] for line in first.runs}
    return first.recipe is None or {line["key"] for line in archive.runs} <= planned


def join(archives: Sequence[Archive]) -> Archive:
    """Take each run once: from the first archive in which it is finished, if there is one."""
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
