"""What surrounds the numbers: how honest the data are, who made the runs, and what came to nothing."""

from collections.abc import Iterable, Sequence
from typing import Any

from mecheval.core.errors import MechevalError
from mecheval.core.spec import canonical_json
from mecheval.report.study import OUTCOMES, Study
from mecheval.tasks import dataset_stats as data
from mecheval.tasks import tasks

MOST = data.TRAIN  # documents that are drawn to be looked at: as many as the paper trained on
TASKS = 6


def counts(*studies: Study) -> dict[str, int]:
    """Runs of all by outcome; one that several studies have counts in each."""
    return {name: sum(study.counts[name] for study in studies) for name in OUTCOMES}


def honesty(*studies: Study) -> list[dict[str, Any]]:
    """Of each task, on the documents of its first run; drawn now, since documents are a function of seed and task."""
    found = []
    for task, run in _first_runs(studies).items():
        train = _training_documents(run)
        try:
            wanted = {"seed": int(run["seed"]), "train": min(train, MOST), "evaluation": int(run["eval.documents"])}
            seen: Any = data.describe(tasks.build(task), **wanted)
            problem = None
        except MechevalError as error:  # a stranger's task that is not here
            seen, problem = None, str(error)
        found.append({"task": task, "seed": run["seed"], "facts": seen, "problem": problem, "of": train})
    return found


def _first_runs(studies: Sequence[Study]) -> dict[str, dict[str, Any]]:
    """By their tasks, of which each study has its say about the first few."""
    found: dict[str, dict[str, Any]] = {}
    for study in studies:
        for run in study.runs.dropna(subset=["task"]).drop_duplicates("task")[:TASKS].to_dict("records"):
            found.setdefault(run["task"], run)
    return found


def _training_documents(run: dict[str, Any]) -> int:
    """Those of the training set, or all that are ever drawn where they are always fresh."""
    if run["train.documents"]:
        return int(run["train.documents"])
    return int(run["train.steps"] * run["train.batch"])


def provenance(*studies: Study) -> dict[str, str]:
    """With what, where and when: every value that there was. A run that was taken over by a study is one run."""
    every = [(key, entry["provenance"]) for study in studies for key, entry in study.facts.items()]
    found = list({(key, canonical_json(entry)): entry for key, entry in every}.values())
    made = [entry["made_by"] for entry in found]
    names = sorted({name for entry in made for name in entry} - {"plugins"})
    shown = {name.replace("_", " "): _values(entry.get(name) for entry in made) for name in names}
    plugins = [f"{name} {checksum[:12]}" for entry in made for name, checksum in entry.get("plugins", {}).items()]
    shown |= {"plug-ins": _values(plugins)} if plugins else {}
    for name in ("python", "system", "processor", "cores", "commit"):
        shown[name] = _values(entry.get(name) for entry in found)
    if found:
        shown["started"] = min(str(entry.get("started")) for entry in found)
        shown["finished"] = max(str(entry.get("finished")) for entry in found)
        shown["CPU time of all runs"] = f"{sum(entry.get('cpu_seconds', 0) for entry in found) / 60:.1f} minutes"
        shown["peak memory of a run"] = f"{max(entry.get('peak_memory_bytes', 0) for entry in found) / 1e6:.0f} MB"
    return shown


def _values(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None)) or "–"


def unfinished(study: Study) -> list[dict[str, Any]]:
    """Every run that is not done, with its reason."""
    return study.runs[study.runs["outcome"] != "done"].to_dict("records")
