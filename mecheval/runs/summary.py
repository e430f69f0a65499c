"""The summary of a finished run: its outcome, scores, chance levels, verdict and grid."""

from typing import TYPE_CHECKING, Any

from mecheval.core.errors import StoreError
from mecheval.metrics.measurement import Measurement

if TYPE_CHECKING:
    from mecheval.runs.finished import Run

ORDER = ["key", "status", "reason", "folder", "steps", "metrics", "chance", "verdict", "sentence"]
ORDER += ["restored", "emerged"]
RESTORED_METRICS = ("likelihood", "share")  # in the summary of a grid


def summary(run: "Run") -> dict[str, Any]:
    """Return what `mecheval run --json` prints."""
    values = {**run.outcome, "folder": str(run.folder), "metrics": {}}
    if run.rows:
        values["metrics"], values["restored"] = _by_split(run), _by_site(run)
        values["chance"] = run.chance.to_dict() if run.chance else None
        values["verdict"] = run.verdict_record
        values["sentence"] = str(run.verdict) if run.verdict else None
    if run.emerged:
        values["emerged"] = run.emerged
    return {name: values[name] for name in ORDER if name in values}


def _by_split(run: "Run") -> dict[str, Any]:
    """Arrange the scores by split and metric; those on test are at the top."""
    metrics: dict[str, Any] = {"unseen": {}, "dev": {}}
    splits = {"test": metrics, "test_unseen": metrics["unseen"], "dev": metrics["dev"]}
    for row in run.rows:
        if row.corrupted is None and row.split not in splits:
            problem = f"rows.jsonl has the split {row.split!r}"
            raise StoreError(f"{run.folder} is damaged: {problem}")
        if row.corrupted is None:
            splits[row.split][row.metric] = _numbers(row)
    return metrics


def _by_site(run: "Run") -> dict[Any, Any]:
    """Arrange the restored likelihood of the last grid by site, role and metric."""
    grid = [row for row in run.rows if row.corrupted and row.step == run.outcome["steps"]]
    split = "test" if any(row.split == "test" for row in grid) else "dev"
    restored: dict[Any, Any] = {}
    for row in grid:
        if (row.split, row.condition) == (split, "restored") and row.metric in RESTORED_METRICS:
            roles = restored.setdefault(row.site, {})
            roles.setdefault(row.role, {})[row.metric] = _numbers(row)
    return restored


def _numbers(row: Measurement) -> dict[str, float]:
    return {"value": row.value, "n": row.n, "low": row.low, "high": row.high}
