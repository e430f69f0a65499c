"""A finished run: a folder that is complete and unchanged, or refused.

experiment.json   what determines the run            curve.jsonl             a line per evaluation
provenance.json   where, when and with what it ran   rows.jsonl              a line per measurement
status.json       done or diverged, and why          weights.safetensors     the trained model
checksums.json    checksums of the other files       optimiser.safetensors   the optimiser's state
verdict.json      by which mechanism it recalls
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.interventions.emergence import crossings
from mecheval.metrics.measurement import Measurement
from mecheval.runs.checked import CheckedFolder, Record
from mecheval.runs.experiment import Experiment
from mecheval.runs.files import Damaged, unpack_tensors
from mecheval.runs.hints import hints
from mecheval.tasks.chance import Chance, known_chance
from mecheval.tasks.corruption import Kind, Role
from mecheval.tasks.splits import Split

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from transformers import PreTrainedModel

    from mecheval.interventions.grid import Condition, Grid
    from mecheval.interventions.verdict import Verdict
    from mecheval.models.build import Model

PARTIAL = ".partial"
FINISHED = ("done", "diverged")


@dataclass(frozen=True)
class Run(CheckedFolder):
    """A finished run. Every file is compared with its checksum when it is read.

    Parameters
    ----------
    folder
        The folder that `run` wrote.

    Examples
    --------
    >>> from mecheval import EvalConfig, Experiment, ModelConfig, Recall, Run, TrainConfig, run
    >>> experiment = Experiment(
    ...     task=Recall(pairs=2, vocab=8),
    ...     model=ModelConfig("attention", d_model=8),
    ...     train=TrainConfig(documents=0, steps=4),
    ...     eval=EvalConfig(documents=16, every=2, grid_documents=16),
    ... )
    >>> finished = Run(run(experiment, "runs").folder)
    >>> sorted({row.split for row in finished.rows})
    ['dev', 'test', 'test_unseen']
    >>> finished.intervene(documents=16).layers
    2
    >>> finished.to_frame().shape[1]
    12
    """

    @property
    def status(self) -> str:
        return str(self.outcome["status"])

    @property
    def key(self) -> str:
        return str(self.outcome["key"])

    @cached_property
    def outcome(self) -> Record:
        """Status, key, steps, and the reason of a divergence."""
        outcome = self._read_json("status.json")
        if outcome["status"] not in FINISHED:
            allowed = " or ".join(FINISHED)
            raise self._damaged(f"status.json has status={outcome['status']!r}; not {allowed}")
        return outcome

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment of the run; the plug-ins that it names must be registered."""
        try:
            return Experiment.from_record(self.record)
        except InvalidInput as error:
            raise InvalidInput([*error.problems, *hints(self.provenance, str(error))]) from error

    @cached_property
    def rows(self) -> list[Measurement]:
        """Every measurement of the run."""
        try:
            return [Measurement(**record) for record in self.row_records]
        except TypeError as error:  # a column of another version
            raise self._damaged(f"rows.jsonl: {error}") from error

    @cached_property
    def verdict(self) -> "Verdict | None":
        """The verdict on how the model recalls; None if the run has no suitable grid."""
        from mecheval.interventions.verdict import Verdict

        if not self.verdict_record:
            return None
        try:
            return Verdict.from_dict(self.verdict_record)
        except InvalidInput as error:
            raise self._damaged(error) from error

    @cached_property
    def chance(self) -> Chance | None:
        """The accuracies that need no recall; None if the task cannot be built here."""
        return known_chance(str(self.record.get("task")))

    @cached_property
    def curve(self) -> list[Record]:
        return self._read_lines("curve.jsonl")

    @cached_property
    def provenance(self) -> Record:
        return self._read_json("provenance.json")

    # the plain records, for readers of many runs
    @cached_property
    def record(self) -> Record:
        return self._read_json("experiment.json")

    @cached_property
    def row_records(self) -> list[Record]:
        return self._read_lines("rows.jsonl")

    @cached_property
    def verdict_record(self) -> Record | None:
        if "verdict.json" not in self._checksums:
            return None
        return self._read_json("verdict.json")

    def load_model(self) -> "Model":
        """Return the trained model; raise StoreError if the run diverged or is damaged."""
        from mecheval.models.build import build_model

        if self.status != "done":
            raise StoreError(f"{self.folder} has no weights: the run is {self.status}")
        content, experiment = self._read("weights.safetensors"), self.experiment
        model = build_model(experiment.model, experiment.task.vocab_size, experiment.seed)
        try:
            model.load_state_dict(unpack_tensors(content))
        except (Damaged, RuntimeError) as error:
            name = experiment.model.architecture
            raise self._damaged(f"its weights are not those of {name}: {error}") from error
        for name, weight in model.named_parameters():
            if not weight.isfinite().all():
                raise self._damaged(f"{name} in weights.safetensors is not finite")
        return model

    def intervene(
        self,
        sites: Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
        *,
        corrupt: Role = "key",
        kind: Kind = "resample",
        conditions: "Sequence[Condition]" = ("restored",),
        documents: int = 320,
        start: int = 0,
        split: Split = "test",
        progress: Callable[[int, int], None] | None = None,
    ) -> "Grid":
        """Put activations of clean documents into corrupt ones, at every site and role.

        By default the sites are those that a verdict needs and the roles those of the task.
        """
        from mecheval.interventions.grid_eval import grid_sites
        from mecheval.interventions.interchange import interchange

        model, task, seed = self.load_model(), self.experiment.task, self.experiment.seed
        if roles is None:
            roles = [r for r in task.documents(seed, split, 0, 1).roles if r != "bos"]
        return interchange(
            model,
            task,
            grid_sites(model, "short") if sites is None else sites,
            roles,
            corrupt=corrupt,
            kind=kind,
            conditions=conditions,
            documents=documents,
            start=start,
            seed=seed,
            split=split,
            progress=progress,
        )

    def to_transformers(self) -> "PreTrainedModel":
        """Return the trained model as a class of transformers: see `to_transformers`."""
        from mecheval.models.hf.export import to_transformers

        return to_transformers(self.load_model())

    @property
    def emerged(self) -> dict[str, dict[str, int]]:
        """The step since which half of the answer comes back, by site and role."""
        return crossings(self.row_records) if self.record.get("eval.grid_every") else {}

    def summary(self) -> Record:
        """Return what `mecheval run --json` prints."""
        from mecheval.runs.summary import summary

        return summary(self)

    def to_frame(self) -> "DataFrame":
        """Return every measurement as a pandas DataFrame; `DataFrame(run.curve)` is the curve."""
        from pandas import DataFrame

        return DataFrame(self.row_records, columns=[column.name for column in fields(Measurement)])

    def plot(self) -> "Figure":
        """Return the training curve as a matplotlib figure: loss, and accuracy on dev."""
        from mecheval.runs.display import run_figure

        return run_figure(self)

    def __repr__(self) -> str:
        from mecheval.runs.display import run_text

        return run_text(self)

    def _repr_html_(self) -> str:
        from mecheval.runs.display import run_html

        return run_html(self)
