"""The plan of a sweep: `sweep.json` in its folder, written before the first run.

It says which runs are missing without the recipe.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.results.archive import KEPT, Archive, experiment_of
from mecheval.results.table import Results
from mecheval.runs.files import Damaged, read_json, write_json
from mecheval.runs.finished import FINISHED as FINISHED
from mecheval.runs.finished import PARTIAL
from mecheval.runs.records import check_plan

PLAN = "sweep.json"


@dataclass(frozen=True)
class Plan:
    """`experiments` are records as `Experiment.record` gives them, `folders` the runs' names."""

    recipe: str
    scale: str
    experiments: tuple[Mapping[str, Any], ...]
    folders: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> "Plan | None":
        """Read the plan of a sweep's folder or archive; return None if there is none."""
        if archive := Archive.read(folder):
            if archive.recipe is None or archive.scale is None:
                return None
            records = tuple(experiment_of(line) for line in archive.runs)
            names = tuple(line["folder"] for line in archive.runs)
            return cls(archive.recipe, archive.scale, records, names)
        if not os.path.lexists(folder / PLAN):
            return None
        try:
            plan = read_json(folder / PLAN)
            check_plan(plan, PLAN)
            records, names = tuple(plan["experiments"]), tuple(plan["folders"])
            return cls(plan["recipe"], plan["scale"], records, names)
        except Damaged as error:
            raise StoreError(f"{folder / PLAN} is damaged: {error}") from error

    @classmethod
    def require(cls, folder: Path) -> "Plan":
        """Read the plan of a folder; refuse one without."""
        if not folder.is_dir():
            raise InvalidInput(f"DIR={str(folder)!r} must be a folder with runs")
        if plan := cls.read(folder):
            return plan
        raise InvalidInput(f"DIR={str(folder)!r} must be the folder of a sweep; it has no {PLAN}")

    def check_folder(self, folder: Path) -> None:
        """Refuse a folder with runs of another recipe or scale, or without a plan."""
        name = f"DIR={str(folder)!r}"
        if (folder / KEPT).exists():
            raise InvalidInput(f"{name} is a kept study; choose a folder for runs")
        other = Plan.read(folder)
        if other and (other.recipe, other.scale) != (self.recipe, self.scale):
            raise InvalidInput(
                f"{name} has runs of {other.recipe} at scale {other.scale}, and must not be mixed "
                f"with {self.recipe} at scale {self.scale}"
            )
        if not other and folder.is_dir() and (runs := Results(folder).runs()):
            raise InvalidInput(f"{name} has {len(runs)} runs without a sweep; choose a new folder")

    def unplanned(self, results: Results) -> str | None:
        """Say which runs in the folder are not of this plan, or None if all are."""
        planned = {experiment["key"] for experiment in self.experiments}
        others = [r["folder"] for r in results.runs() if r["key"] and r["key"] not in planned]
        if not others:
            return None
        count = "1 run that is" if len(others) == 1 else f"{len(others)} runs that are"
        return (
            f"DIR={str(results.folder)!r} has {count} not of its sweep {self.recipe} at scale "
            f"{self.scale}, the first {Path(others[0]).name!r}; move such runs to another folder"
        )

    def check_runs(self, results: Results) -> None:
        """Refuse a folder with runs that are not of this plan: no table would have them."""
        if problem := self.unplanned(results):
            raise InvalidInput(problem)

    def write(self, folder: Path) -> None:
        """Write the plan into the folder of its sweep, if it is new or has changed."""
        self.check_folder(folder)
        if Plan.read(folder) != self:
            write_json(folder / PLAN, asdict(self))

    def states(self, results: Results) -> list[dict[str, Any]]:
        """Return a row for each planned experiment: the state of its run, or `waiting`."""
        runs = {Path(run["folder"]).name.removesuffix(PARTIAL): run for run in results.runs()}
        states = []
        for record, name in zip(self.experiments, self.folders, strict=True):
            state = {"status": "waiting", "steps": 0, "reason": None}
            state["folder"] = str(results.folder / name)
            states.append({**state, **runs.get(name, {}), **record})
        return states
