"""Many runs as tables: `runs`, `rows` (every measurement) and `curves`, with experiment fields.

They are read from run folders or from an archive.
"""

import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import DamagedRunWarning, InvalidInput, StoreError
from mecheval.results.archive import DAMAGED, OUTCOME, Archive, Entry, RunData
from mecheval.results.columns import meaning_of, plain_names, uses_dotted_names
from mecheval.runs.checkpoint import newest_step
from mecheval.runs.files import Damaged, read_json
from mecheval.runs.finished import CHECKSUMS, NEEDED, PARTIAL, Run
from mecheval.runs.lock import in_use
from mecheval.runs.pending import ERROR, FAILED, STOPPED
from mecheval.runs.records import check_records

if TYPE_CHECKING:
    from pandas import DataFrame

# columns of a measurement, the least important first: a narrow terminal shows the end
MEASURED = (
    *("step", "n", "layer", "low", "high", "corrupted", "condition", "split"),
    *("site", "role", "metric", "value"),
)
COLUMNS: dict[str, tuple[str, ...]] = {  # beside experiment fields; an empty table has only these
    "runs": OUTCOME,
    "rows": ("key", "status", *MEASURED),
    "curves": ("key", "status", "step", "loss", "train_loss", "gradient_norm", "learning_rate"),
}
TABLES = tuple(COLUMNS)


@dataclass(frozen=True)
class Results:
    """All runs in a folder: finished, running, stopped, killed or damaged.

    Parameters
    ----------
    folder
        A folder with runs, or an archive.

    Examples
    --------
    >>> from pathlib import Path
    >>> from mecheval import EvalConfig, Experiment, ModelConfig, Recall, Results, TrainConfig, run
    >>> experiment = Experiment(
    ...     task=Recall(pairs=2, vocab=8),
    ...     model=ModelConfig("attention", d_model=8),
    ...     train=TrainConfig(documents=0, steps=4),
    ...     eval=EvalConfig(documents=16, every=2, grid_documents=16),
    ... )
    >>> _ = run(experiment, "measured")
    >>> results = Results(Path("measured"))
    >>> query = "select architecture, lr, n from rows where metric = 'loss' and split = 'test'"
    >>> results.sql(query).values.tolist()
    [['attention', 0.001, 16]]
    >>> len(results.df("curves"))
    2
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        if not self.folder.is_dir():
            raise InvalidInput(f"DIR={str(self.folder)!r} must be a folder with runs")

    def damaged(self) -> list[str]:
        """Return a line for each damaged run: its folder and the reason. No table has its rows."""
        return [str(run["reason"]) for run in self.runs() if run["status"] == DAMAGED]

    def runs(self) -> list[dict[str, Any]]:
        """Return key, status, steps, reason, folder and experiment fields of each run."""
        return [outcome | experiment for outcome, experiment, _ in self._entries]

    def rows(self) -> list[dict[str, Any]]:
        """Return every measurement of every finished run."""
        rows = []
        for run, data in self._finished:
            rows += [run | {name: row[name] for name in MEASURED} for row in data.rows]
        return rows

    def curves(self) -> list[dict[str, Any]]:
        """Return every evaluation of every finished run."""
        return [run | row for run, data in self._finished for row in data.curve]

    def measured(self, name: str) -> list[dict[str, Any]]:
        """Return the `rows` or the `curve` of every finished run, with its key alone."""
        lines = []
        for run, data in self._finished:
            lines += [{"key": run["key"], **row} for row in getattr(data, name)]
        return lines

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return verdict and provenance of every finished run, by its key."""
        facts = {}
        for run, data in self._finished:
            facts[run["key"]] = {"verdict": data.verdict, "provenance": data.provenance}
        return facts

    def df(self, table: str = "rows", dotted: bool = False) -> "DataFrame":
        """Return `runs`, `rows` or `curves` as a pandas DataFrame.

        A field of the experiment has a plain name, such as `architecture` and `lr`; with `dotted`
        its name is that of the experiment, `model.architecture` and `train.lr`.
        """
        from pandas import DataFrame

        if table not in TABLES:
            raise InvalidInput(f"table={table!r} must be one of {', '.join(TABLES)}")
        lines = getattr(self, table)()
        frame = DataFrame(lines, columns=None if lines else list(COLUMNS[table]))
        return frame if dotted else frame.rename(columns=plain_names(frame.columns))

    def columns(self) -> list[dict[str, str]]:
        """Return table, name and meaning of every column that these runs have."""
        lines = []
        for table in TABLES:
            for column in self.df(table).columns:
                meaning = meaning_of(table, column)
                lines.append({"table": table, "column": column, "meaning": meaning})
        return lines

    def sql(self, query: str) -> "DataFrame":
        """Return the answer to an SQL query over the tables `runs`, `rows` and `curves`."""
        import duckdb

        with duckdb.connect(config={"enable_external_access": "false"}) as connection:
            for table in TABLES:
                frame = self.df(table)
                if uses_dotted_names(query):
                    dotted = self.df(table, dotted=True)
                    frame = frame.assign(**{n: dotted[n] for n in plain_names(dotted.columns)})
                connection.register(table, frame)
            try:
                answer = connection.execute(query)
            except duckdb.Error as error:
                # DuckDB's hints come before the line that points into the query
                problem = " ".join(str(error).partition("LINE ")[0].split())
                raise InvalidInput(f"sql={query!r} is refused: {problem}") from error
            if answer is None:
                example = "'select count(*) from runs'"
                raise InvalidInput(f"sql={query!r} must be a query, as in {example}")
            return answer.df()

    @cached_property
    def _entries(self) -> list[Entry]:
        archive = Archive.read(self.folder)
        return list(archive.entries(self.folder) if archive else self._read())

    def _read(self) -> Iterator[Entry]:
        # checksums of large files are most of the work, and are computed outside Python's lock
        with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 8)) as threads:
            for entry in threads.map(_read_run, sorted(self.folder.iterdir())):
                if entry:
                    yield entry

    @cached_property
    def _finished(self) -> list[tuple[dict[str, Any], RunData]]:
        """The fields and the data of every finished run; a damaged one is left out and named."""
        for line in self.damaged():
            warnings.warn(line, DamagedRunWarning, stacklevel=4)
        finished = []
        for outcome, experiment, data in self._entries:
            if data:
                run = {"key": outcome["key"], "status": outcome["status"], **experiment}
                finished.append((run, data))
        return finished


def _read_run(folder: Path) -> Entry | None:
    """Read a finished or a pending run; return None for anything else."""
    if folder.name.endswith(PARTIAL):
        entry = _read_pending(folder)
        if os.path.lexists(folder):
            return entry
        folder = folder.with_name(folder.name.removesuffix(PARTIAL))  # it was finished meanwhile
    if any(os.path.lexists(folder / name) for name in (CHECKSUMS, *NEEDED)):
        return _read_finished(folder)
    return None


def _read_finished(folder: Path) -> Entry:
    run = Run(folder)
    try:  # damage must show now, not when a table is built
        data = RunData(run.row_records, run.curve, run.verdict_record, run.provenance)
        ended = (run.key, run.status, run.outcome["steps"], run.outcome.get("reason"))
        if run.record["key"] != run.key:
            raise StoreError(f"{folder} is damaged: status.json and experiment.json differ in key")
        run.verify(known=(*NEEDED, "verdict.json"))
        return _outcome(folder, *ended), run.record, data
    except StoreError as error:
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
