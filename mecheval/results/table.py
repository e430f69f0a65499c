"""Many runs as tables: `runs`, `rows` (every measurement) and `curves`, with the fields of each experiment.

They are in folders of their own, or kept without them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.results.archive import OUTCOME, Kept, KeptRun
from mecheval.runs.checkpoint import newest_step
from mecheval.runs.files import Damaged, read_json
from mecheval.runs.finished import CHECKSUMS, NEEDED, PARTIAL, Run
from mecheval.runs.pending import ERROR, FAILED, in_use

if TYPE_CHECKING:
    from pandas import DataFrame

# a measurement, from what says least to what says most: a narrow terminal has room for the end
MEASURED = ("step", "n", "layer", "low", "high", "corrupted", "condition", "split", "site", "role", "metric", "value")
COLUMNS = {  # beside the fields of the experiments; a table without rows has these
    "runs": OUTCOME,
    "rows": ("key", "status", *MEASURED),
    "curves": ("key", "status", "step", "loss", "train_loss", "gradient_norm", "learning_rate"),
}
TABLES = tuple(COLUMNS)
Found = tuple[dict[str, Any], dict[str, Any], Run | KeptRun | None]  # how it ended, its experiment, what it measured


@dataclass(frozen=True)
class Results:
    """The runs in a folder: finished, on their way, killed or damaged. None is left out."""

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        if not self.folder.is_dir():
            raise InvalidInput(f"DIR={str(self.folder)!r} must be a folder with runs")

    def runs(self) -> list[dict[str, Any]]:
        """One row for each run: key, status, steps, reason, folder and the fields of its experiment."""
        return [outcome | experiment for outcome, experiment, _ in self._found]

    def rows(self) -> list[dict[str, Any]]:
        """Every measurement of every finished run."""
        return [
            _run_columns(*found) | {name: row[name] for name in MEASURED}
            for *found, run in self._found
            if run
            for row in run.row_records
        ]

    def curves(self) -> list[dict[str, Any]]:
        """Every evaluation of every finished run."""
        return [_run_columns(*found) | row for *found, run in self._found if run for row in run.curve]

    def measured(self, what: str) -> list[dict[str, Any]]:
        """Return `row_records` or `curve` of every finished run, with its key alone."""
        return [{"key": outcome["key"], **row} for outcome, _, run in self._found if run for row in getattr(run, what)]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Verdict and provenance of every finished run, by its key."""
        return {
            outcome["key"]: {"verdict": run.verdict_record, "provenance": run.provenance}
            for outcome, _, run in self._found
            if run
        }

    def df(self, table: str = "rows") -> "DataFrame":
        """One of the tables as a pandas DataFrame."""
        from pandas import DataFrame

        if table not in TABLES:
            raise InvalidInput(f"table={table!r} must be one of {', '.join(TABLES)}")
        found = getattr(self, table)()
        return DataFrame(found, columns=None if found else list(COLUMNS[table]))

    def sql(self, query: str) -> "DataFrame":
        """The answer to a question about the tables, in SQL."""
        import duckdb

        with duckdb.connect(config={"enable_external_access": "false"}) as connection:
            for table in TABLES:
                connection.register(table, self.df(table))
            try:
                answer = connection.execute(query)
            except duckdb.Error as error:
                raise InvalidInput(f"sql={query!r} is refused: {str(error).splitlines()[0]}") from error
            if answer is None:
                raise InvalidInput(f"sql={query!r} must be a question, as in 'select count(*) from runs'")
            return answer.df()

    @cached_property
    def _found(self) -> list[Found]:
        kept = Kept.read(self.folder)
        return list(kept.found(self.folder) if kept else self._read())

    def _read(self) -> Iterator[Found]:
        for folder in sorted(self.folder.iterdir()):
            if folder.name.endswith(PARTIAL):
                yield _on_its_way(folder)
            elif any((folder / name).exists() for name in (CHECKSUMS, *NEEDED)):
                yield _finished(folder)


def _finished(folder: Path) -> Found:
    run = Run(folder)
    try:
        outcome = {"key": run.key, "status": run.status, "steps": run.outcome["steps"]}
        outcome |= {"reason": run.outcome.get("reason"), "folder": str(folder)}
        _ = run.row_records, run.curve, run.verdict_record, run.provenance  # damage shows now
        return outcome, run.record, run
    except StoreError as error:
        return {"key": None, "status": "damaged", "steps": None, "reason": str(error), "folder": str(folder)}, {}, None


def _on_its_way(folder: Path) -> Found:
    experiment: dict[str, Any] = {}
    status, reason, steps = "damaged", None, 0
    try:
        status = "running" if in_use(folder) else "killed"
        steps = newest_step(folder / "checkpoints")
        experiment = read_json(folder / "experiment.json")
        if status == "killed" and (folder / ERROR).exists():
            note = read_json(folder / ERROR)
            status = note["status"] if note.get("status") in FAILED else "error"
            reason = note.get("reason")
    except (Damaged, OSError) as error:
        reason = str(error)
    key = experiment.get("key")
    return {"key": key, "status": status, "steps": steps, "reason": reason, "folder": str(folder)}, experiment, None


def _run_columns(outcome: dict[str, Any], experiment: dict[str, Any]) -> dict[str, Any]:
    return {"key": outcome["key"], "status": outcome["status"], **experiment}
