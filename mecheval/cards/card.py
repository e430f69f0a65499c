"""`card(MyMixer)`: train what is missing, measure, and write one page on how a mixer recalls."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mecheval.cards import experiments
from mecheval.cards.experiments import CardRuns
from mecheval.cards.search import RULE
from mecheval.cards.stages import Stage, plan_stages
from mecheval.cards.subject import Subject
from mecheval.core.notebook import short
from mecheval.core.spec import Spec
from mecheval.runs.experiment import Experiment
from mecheval.runs.files import Damaged, read_json, write, write_json
from mecheval.runs.progress import sweep_progress
from mecheval.sweeps.options import SweepOptions, cores
from mecheval.sweeps.recipe import Scale, get_scale
from mecheval.sweeps.sweep import Watch

if TYPE_CHECKING:
    from pandas import DataFrame

    from mecheval.report.study import Study

COLUMNS = ["task", "architecture", "accuracy", "low", "high", "n", "seeds"]
COLUMNS += ["mechanism", "confidence", "agree", "judged"]
CHOICE = "The learning rate is chosen on dev, reported on test."


@dataclass(frozen=True)
class Card:
    """A mechanism card: how one mixer recalls, as a page, as Markdown and as records (`facts`)."""

    study: "Study"
    facts: Mapping[str, Any]
    folder: Path

    @property
    def verdicts(self) -> "DataFrame":
        """Return a line for each task and architecture, the subject's first."""
        from pandas import DataFrame

        lines = []
        for line in self.facts["lines"]:
            accuracy = line["accuracy"] or {}
            lines.append({**line, **accuracy, "accuracy": accuracy.get("value")})
        return DataFrame(lines, columns=COLUMNS)

    @property
    def stage(self) -> str:
        """Return how complete the card is: `stage 1 of 5: AR, one seed`."""
        return "stage {number} of {of}: {name}".format(**self.facts["stage"])

    @property
    def failures(self) -> list[str]:
        """Return a line for each run that failed; a diverged run has not failed."""
        lines = []
        for run in self.facts["unfinished"]:
            if run["outcome"] == "failed":
                setting = f"rate {run['train.lr']:g} · seed {run['seed']}"
                name = f"{run['status']} · {run['task']} · {run['model.architecture']} · {setting}"
                lines.append(f"{name}: {run['reason'] or 'its process has disappeared'}")
        return lines

    @cached_property
    def html(self) -> str:
        from mecheval.cards.page import html

        return html(self.study, self.facts)

    @cached_property
    def markdown(self) -> str:
        from mecheval.cards.page import markdown

        return markdown(self.facts)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.facts)

    def to_frame(self) -> "DataFrame":
        """Return `verdicts`, by the name that every other object has for it."""
        return self.verdicts

    def write(self) -> tuple[Path, Path]:
        """Write `card.html` and `card.md` to the card's folder, unless they are up to date."""
        paths = self.folder / "card.html", self.folder / "card.md"
        if not (all(path.exists() for path in paths) and _read_facts(self.folder) == self.facts):
            write(paths[0], self.html.encode())
            write(paths[1], self.markdown.encode())
            write_json(self.folder / experiments.CARD, self.facts)
        return paths

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that it and a notebook keep their own styles."""
        from html import escape

        style = "width: 100%; height: 48rem; border: 0"
        return f'<iframe srcdoc="{escape(self.html)}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        verdicts = []
        for line in self.facts["lines"]:
            if line["architecture"] == self.facts["architecture"]:
                state = "no verdict" if line["accuracy"] else line["state"]
                verdicts.append(f"{Spec.parse(line['task']).name}: {line['mechanism'] or state}")
        verdicts += [] if self.facts["stage"]["last"] else [self.stage]
        name, scale = self.facts["architecture"], self.facts["scale"]
        return short(f"Card({name!r}, {scale!r}, {', '.join(verdicts)})")


def card(
    subject: str | type[Any],
    scale: str | Scale = "quick",
    out: str | Path = "runs",
    workers: int | None = None,
    plugins: Sequence[str] = (),
    watch: Watch | None = None,
    progress: bool | None = None,
    on_stage: Callable[[Card, float], None] = lambda card, seconds: None,
    device: Literal["cpu", "cuda", "mps"] = "cpu",
) -> Card:
    """Return the mechanism card of a mixer.

    It is made in stages: a first answer (AR, one seed, a short search for the rate) is written in
    minutes, then it is refined and written again after each stage.

    Parameters
    ----------
    subject
        A class, `file.py:Class`, or the name of a mixer or an architecture, with options. A class
        that is in no file, for example one defined in a notebook, is trained in this process.
    scale
        The size of its experiments.
    out
        The folder for its runs and those of the baselines; a finished run is not trained again.
    workers
        Number of processes that train.
    plugins
        Files that every worker imports first.
    watch
        Called with the runs of a stage while they are trained.
    progress
        Show a line that updates: in a notebook unless it is False, in a terminal if it is True.
    on_stage
        Called with each card and the seconds since the start.
    device
        Where the runs are trained: `cpu`, `cuda` or `mps`.

    Returns
    -------
    Card
        The card, which is also written to a folder below `out`.

    Examples
    --------
    >>> import torch
    >>> from mecheval import Scale, Size, card
    >>> class Mean(torch.nn.Module):
    ...     "Every token sees the mean of the tokens up to itself."
    ...     def __init__(self, d_model: int, max_len: int):
    ...         super().__init__()
    ...         self.out = torch.nn.Linear(d_model, d_model)
    ...
    ...     def forward(self, x):
    ...         count = torch.arange(1, x.shape[1] + 1, dtype=x.dtype, device=x.device)
    ...         return self.out(x.cumsum(1) / count[:, None])
    >>> fields = {"train.steps": 4, "train.batch": 8, "eval.every": 2}
    >>> fields |= {"eval.documents": 16, "eval.grid_documents": 8}
    >>> recall = Size(widths=(8,), rates=(0.01,), options={"pairs": 2, "vocab": 8}, fields=fields)
    >>> treecall = Size(widths=(8,), rates=(0.01,), options={"max_len": 32}, fields=fields)
    >>> tiny = Scale(name="tiny", recall=recall, treecall=treecall)  # to learn, leave it out
    >>> card(Mean, tiny, "cards")
    Card('Mean', 'tiny', recall: unsolved, treecall: unsolved)
    """
    start = time.monotonic()
    options = SweepOptions(workers=cores() if workers is None else workers, device=device)
    runs = prepare(subject, scale, out, options, plugins)
    planned = plan_stages(runs, watch or sweep_progress(progress))
    for number, stage in enumerate(planned, 1):
        if stage.work() or number == len(planned):
            result = _assemble(stage, number, planned)
            result.write()
            on_stage(result, time.monotonic() - start)
    return result


def prepare(
    subject: str | type[Any],
    scale: str | Scale,
    out: str | Path,
    options: SweepOptions,
    plugins: Sequence[str] = (),
) -> CardRuns:
    """Resolve and validate the subject and plan its runs; nothing is written yet.

    A subject whose runs are all finished was validated before.
    """
    options.check_device()
    size = get_scale(scale) if isinstance(scale, str) else scale
    mixer = Subject.of(subject, plugins)
    runs = CardRuns.plan(mixer, size, Path(out), options)
    if runs.ahead():
        mixer.check(runs.grid[0])
    return runs


def _assemble(stage: Stage, number: int, planned: Sequence[Stage]) -> Card:
    """Read the runs, measure what is not in them, and put everything into words."""
    runs = stage.runs
    from mecheval.cards import advice, facts, sentences
    from mecheval.cards.caveats import caveats
    from mecheval.cards.measure import load_or_measure
    from mecheval.models.config import build_architecture
    from mecheval.report import labels

    name, folder = runs.subject.architecture, runs.folder
    order = [name, *experiments.baselines(name)]
    study, stopped = facts.read_study(runs, stage.tasks)
    folder.mkdir(exist_ok=True)
    lines = facts.lines(study, order, stopped)
    subject_lines = [line for line in lines if line.architecture == name]
    baseline_lines = [line for line in lines if line.architecture != name]
    best = facts.best_runs(study, name)
    unsolved = [line.task for line in subject_lines if line.needs_diagnosis]
    shown = [one for one in order if one in {name, *(line.architecture for line in lines)}]
    measured = load_or_measure(best, _one_of_each(runs, shown), folder, unsolved)
    cells: dict[str, list[Any]] = {line.task: [] for line in subject_lines}
    solved = [line.task for line in subject_lines if line.solved]
    for cell in measured.cells:
        if cell["task"] in solved:
            cells[cell["task"]].append(cell)
    steps = facts.emergence_steps(study, name)
    model = runs.grid[0].model
    kinds = build_architecture(name).kinds(model.layers)
    shares = [cell for rows in cells.values() for cell in rows]
    coming = [one.name for one in planned[number:]]
    content = {
        "architecture": name,
        "shown": labels.architecture(name),
        "scale": runs.scale.name,
        "stage": {
            "number": number,
            "of": len(planned),
            "name": stage.name,
            "coming": coming,
            "last": not coming,
        },
        "d_model": model.d_model,
        "layers": model.layers,
        "baselines": shown[1:],
        "in_this_process": bool(runs.subject.checksums),
        "choice": CHOICE,
        "search": RULE if stopped else "",
        "summary": [sentences.summary(line) for line in subject_lines],
        "lines": [{**asdict(line), "solved": line.solved} for line in lines],
        "where": {task: sentences.location(rows, kinds) for task, rows in cells.items()},
        "convolution": {task: sentences.convolutions(rows, kinds) for task, rows in cells.items()},
        "above": sentences.above_all(shares),
        "emerged": {"said": sentences.emergence(steps), "seeds": [asdict(step) for step in steps]},
        **asdict(measured),
        "diagnoses": advice.with_advice(measured.diagnoses, subject_lines),
        "cells": shares,
        "stopped": [{**asdict(one), "reason": one.reason} for one in stopped.values()],
        "unfinished": facts.unfinished(study),
        "caveats": caveats(study, subject_lines, baseline_lines, measured.cells, measured.costs),
        "folder": str(folder),
    }
    return Card(study, json.loads(json.dumps(content)), folder)


def _one_of_each(runs: CardRuns, order: Sequence[str]) -> list[Experiment]:
    """Return the first experiment of each architecture: all are on the same task."""
    planned = [*runs.grid, *experiments.experiments(runs.scale, experiments.BASELINES)]
    first = {experiment.model.architecture: experiment for experiment in reversed(planned)}
    return [first[name] for name in order]


def _read_facts(folder: Path) -> dict[str, Any] | None:
    """Return the facts of the card in a folder, if it has one."""
    try:
        return read_json(folder / experiments.CARD)
    except Damaged:
        return None
