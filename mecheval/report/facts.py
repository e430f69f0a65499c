"""Facts beside the numbers: how the data sets are made up, the provenance of runs, failures."""

from collections.abc import Iterable, Sequence
from typing import Any

from mecheval.core.errors import MechevalError
from mecheval.core.spec import canonical_json
from mecheval.report.study import OUTCOMES, Study
from mecheval.tasks import dataset_stats as data
from mecheval.tasks import tasks

MOST = data.TRAIN  # documents drawn for the statistics: as many as the paper trained on
TASKS = 6


def counts(*studies: Study) -> dict[str, int]:
    """Count the runs of all studies by outcome; a run in several studies counts in each."""
    return {name: sum(study.counts[name] for study in studies) for name in OUTCOMES}


def honesty(*studies: Study) -> list[dict[str, Any]]:
    """Describe the data set of each task, on the documents of its first run.

    They are drawn again, since documents are a function of seed and task.
    """
    records = []
    for task, run in _first_runs(studies).items():
        train = _training_documents(run)
        sizes = {"train": min(train, MOST), "evaluation": int(run["eval.documents"])}
        stats, problem = None, None
        try:
            stats = data.describe(tasks.build(task), seed=int(run["seed"]), **sizes)
        except MechevalError as error:  # a third-party task that is not registered here
            problem = str(error)
        record = {"task": task, "seed": run["seed"], "facts": stats, "problem": problem}
        records.append({**record, "of": train})
    return records


def _first_runs(studies: Sequence[Study]) -> dict[str, dict[str, Any]]:
    """Return the first run of each of the first few tasks of each study, by task."""
    runs: dict[str, dict[str, Any]] = {}
    for study in studies:
        first = study.runs.dropna(subset=["task"]).drop_duplicates("task")[:TASKS]
        for run in first.to_dict("records"):
            runs.setdefault(run["task"], run)
    return runs


def _training_documents(run: dict[str, Any]) -> int:
    """Return the size of the training set, or all documents drawn where they are always fresh."""
    return int(run["train.documents"] or run["train.steps"] * run["train.batch"])


def provenance(*studies: Study) -> dict[str, str]:
    """List versions, machines, times and memory of all runs, each run once."""
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for study in studies:
        for key, facts in study.facts.items():
            entries[key, canonical_json(facts["provenance"])] = facts["provenance"]
    every = list(entries.values())
    versions = [entry["made_by"] for entry in every]
    names = sorted({name for version in versions for name in version} - {"plugins"})
    lines = {n.replace("_", " "): _values(version.get(n) for version in versions) for n in names}
    plugins = [item for version in versions for item in version.get("plugins", {}).items()]
    if plugins:
        lines["plug-ins"] = _values(f"{name} {str(checksum)[:12]}" for name, checksum in plugins)
    for name in ("python", "system", "processor", "cores", "commit"):
        lines[name] = _values(entry.get(name) for entry in every)
    if every:
        minutes = sum(entry.get("cpu_seconds") or 0 for entry in every) / 60
        most = max(entry.get("peak_memory_bytes") or 0 for entry in every)  # not on Windows
        lines["started"] = min(str(entry.get("started") or "–") for entry in every)
        lines["finished"] = max(str(entry.get("finished") or "–") for entry in every)
        lines["CPU time of all runs"] = f"{minutes:.1f} minutes"
        lines["peak memory of a run"] = f"{most / 1e6:.0f} MB" if most else "–"
    return lines


def _values(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None)) or "–"


def unfinished(study: Study) -> list[dict[str, Any]]:
    """Return every run that is not done, with its reason."""
    return study.runs[study.runs["outcome"] != "done"].to_dict("records")
