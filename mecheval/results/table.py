"""Many runs as tables: `runs`, `rows` (every measurement) and `curves`, with experiment fields.

They are read from run folders or from an archive.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import DamagedRunWarning, InvalidInput
from mecheval.results.archive import DAMAGED, OUTCOME, Archive, Entry, RunData
from mecheval.results.columns import meaning_of, plain_names, uses_dotted_names
from mecheval.results.folders import read_folders
from mecheval.results.frames import joined

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
        frame = DataFrame(self.runs()) if table == "runs" else self._joined(table)
        if frame.empty:
            frame = DataFrame(columns=list(COLUMNS[table]))
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

    def _joined(self, table: str) -> "DataFrame":
        runs = [run for run, _ in self._finished]
        if table == "rows":
            return joined(runs, [data.rows for _, data in self._finished], MEASURED)
        return joined(runs, [data.curve for _, data in self._finished])

    @cached_property
    def _entries(self) -> list[Entry]:
        archive = Archive.read(self.folder)
        return list(archive.entries(self.folder) if archive else read_folders(self.folder))

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
