"""What a folder of runs is meant to become: `sweep.json`, written before the first run.

With it anybody who has the folder knows which runs are missing; nobody needs the recipe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.results.archive import KEPT, Kept, experiment_of
from mecheval.results.table import Results
from mecheval.runs.files import Damaged, read_json, write_json
from mecheval.runs.finished import PARTIAL

PLAN = "sweep.json"
FINISHED = ("done", "diverged")


@dataclass(frozen=True)
class Plan:
    """`experiments` are the fields of each by their dotted names, with its `key`; `folders` where each run will be."""

    recipe: str
    scale: str
    experiments: tuple[Mapping[str, Any], ...]
    folders: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> "Plan | None":
        """None if the folder is of no sweep."""
        if kept := Kept.read(folder):
            return cls._kept(kept)
        if not (folder / PLAN).exists():
            return None
        try:
            found = read_json(folder / PLAN)
            return cls(found["recipe"], found["scale"], tuple(found["experiments"]), tuple(found["folders"]))
        except (Damaged, KeyError, TypeError) as error:
            raise StoreError(f"{folder / PLAN} is damaged: {error}") from error

    def must_fit(self, folder: Path) -> None:
        """A folder with runs of another recipe or scale, or of none, is refused."""
        if (folder / KEPT).exists():
            raise InvalidInput(f"DIR={str(folder)!r} is a kept study, and must be a folder for runs")
        there = Plan.read(folder)
        if there and (there.recipe, there.scale) != (self.recipe, self.scale):
            raise InvalidInput(
                f"DIR={str(folder)!r} has runs of {there.recipe} at scale {there.scale}, "
                f"and must not be mixed with {self.recipe} at scale {self.scale}"
            )
        if not there and folder.is_dir() and (runs := Results(folder).runs()):
            raise InvalidInput(f"DIR={str(folder)!r} has {len(runs)} runs of no sweep, and must be a folder of its own")

    def write(self, folder: Path) -> None:
        """Into a folder that is this sweep's."""
        self.must_fit(folder)
        if Plan.read(folder) != self:
            write_json(folder / PLAN, asdict(self))

    @classmethod
    def _kept(cls, kept: Kept) -> "Plan | None":
        if kept.recipe is None or kept.scale is None:
            return None
        experiments = tuple(experiment_of(run) for run in kept.runs)
        return cls(kept.recipe, kept.scale, experiments, tuple(run["folder"] for run in kept.runs))

    def states(self, results: Results) -> list[dict[str, Any]]:
        """Each planned experiment with its state: that of its run, damaged or not, or `waiting`."""
        found = {Path(run["folder"]).name.removesuffix(PARTIAL): run for run in results.runs()}
        none = {"status": "waiting", "steps": 0, "reason": None}
        return [{**none, "folder": str(results.folder / name), **found.get(name, {}), **experiment}
                for experiment, name in zip(self.experiments, self.folders, strict=True)]  # fmt: skip


def open_states(states: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What keeps a sweep partial: neither done nor diverged."""
    return [state for state in states if state["status"] not in FINISHED]
