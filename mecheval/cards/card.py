"""`card(MyMixer)`: trains what is not trained yet, looks inside, and says on one page how a mixer recalls."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.cards.experiments import baselines
from mecheval.cards.subject import Subject
from mecheval.cards.work import Part, carry_out_all, home, parts, to_run
from mecheval.core.spec import Spec
from mecheval.runs.experiment import Experiment
from mecheval.runs.files import Damaged, read_json, write, write_json
from mecheval.sweeps.agenda import cores
from mecheval.sweeps.recipe import Scale, get_scale
from mecheval.terminal.sweep_view import board

if TYPE_CHECKING:
    from pandas import DataFrame

    from mecheval.report.study import Study

COLUMNS = ["task", "architecture", "accuracy", "low", "high", "n", "seeds"]  # of the table of verdicts
COLUMNS += ["mechanism", "confidence", "agree", "judged"]
FILE = "card.json"
CHOICE = "The learning rate is chosen on dev, reported on test."


@dataclass(frozen=True)
class Card:
    """What is known about how one mixer recalls. `facts` are all of it, as `to_dict` gives them."""

    study: "Study"
    facts: Mapping[str, Any]
    folder: Path

    @property
    def verdicts(self) -> "DataFrame":
        """A line for each task and architecture, the subject's first."""
        from pandas import DataFrame

        return DataFrame([_verdict(line) for line in self.facts["lines"]], columns=COLUMNS)

    @property
    def failures(self) -> list[str]:
        """A line for each run that failed: neither done nor diverged."""
        return [
            f"{run['status']} · {run['task']} · {run['model.architecture']} · rate {run['train.lr']:g} · "
            f"seed {run['seed']}: {run['reason'] or 'its process is gone'}"
            for run in self.facts["unfinished"]
            if run["outcome"] == "failed"
        ]

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

    def write(self) -> tuple[Path, Path]:
        """`card.html` and `card.md` in the subject's folder; they are not drawn again if they say the same."""
        paths = self.folder / "card.html", self.folder / "card.md"
        if not (all(path.exists() for path in paths) and _kept(self.folder) == self.facts):
            write(paths[0], self.html.encode())
            write(paths[1], self.markdown.encode())
            write_json(self.folder / FILE, self.facts)
        return paths

    def _repr_html_(self) -> str:
        """In a notebook: the page in a frame of its own, so that neither disturbs the other."""
        from html import escape

        return f'<iframe srcdoc="{escape(self.html)}" style="width: 100%; height: 48rem; border: 0"></iframe>'

    def __repr__(self) -> str:
        names = [line["mechanism"] or ("no verdict" if line["accuracy"] else line["state"]) for line in self._own]
        said = [f"{Spec.parse(line['task']).name}: {name}" for line, name in zip(self._own, names, strict=True)]
        return f"Card({self.facts['architecture']!r}, {self.facts['scale']!r}, {', '.join(said)})"

    @property
    def _own(self) -> list[Mapping[str, Any]]:
        return [line for line in self.facts["lines"] if line["architecture"] == self.facts["architecture"]]


def card(
    subject: str | type[Any],
    scale: str | Scale = "quick",
    out: str | Path = "runs",
    workers: int | None = None,
    plugins: Sequence[str] = (),
) -> Card:
    """The card of a mixer: a class, `file.py:Class`, or the name of a mixer or an architecture, with options.

    Its runs and those of the baselines are kept below `out`: what is there is not trained again. A class that is in no
    file, as one of a notebook is, is trained in this process, one run after another; others by so many workers.
    """
    who, size, found = prepared(subject, scale, out, workers, plugins)
    count = workers or cores()
    with board(1 if who.here else count) as watch:
        carry_out_all(found, watch)
    made = _made(who, size, found, home(who, size, Path(out)))
    made.write()
    return made


def prepared(
    subject: str | type[Any], scale: str | Scale, out: str | Path, workers: int | None, plugins: Sequence[str] = ()
) -> tuple[Subject, Scale, list[Part]]:
    """Whose card, how large, and which runs it takes. Nothing is written yet, and what cannot be trusted is refused;
    where nothing is to be run, it was examined before."""
    size = get_scale(scale) if isinstance(scale, str) else scale
    who = Subject.of(subject, plugins)
    found = parts(who, size, Path(out), workers if workers is not None else cores())
    if to_run(found):
        who.check(found[0].agenda.experiments[0])
    return who, size, found


def _made(who: Subject, scale: Scale, found: Sequence[Part], folder: Path) -> Card:
    from mecheval.cards import facts, sentences
    from mecheval.cards.caveats import Evidence, caveats
    from mecheval.cards.measured import examined
    from mecheval.report import labels as names
    from mecheval.report.study import Study

    study = Study.joined([Study.read(part.agenda.folder) for part in found])
    order = [who.architecture, *baselines(who.architecture)]
    folder.mkdir(exist_ok=True)
    inside = examined(facts.best_runs(study, who.architecture), _one_of_each(found, order), folder)
    lines = facts.lines(study, order)
    own = [line for line in lines if line.architecture == who.architecture]
    others = [line for line in lines if line.architecture != who.architecture]
    emerged = facts.emerged(study, who.architecture)
    cells = {line.task: [cell for cell in inside.cells if cell["task"] == line.task and line.solved] for line in own}
    run = found[0].agenda.experiments[0]
    said = {
        "architecture": who.architecture,
        "shown": names.architecture(who.architecture),
        "scale": scale.name,
        "d_model": run.model.d_model,
        "layers": run.model.layers,
        "baselines": order[1:],
        "in_this_process": who.here,
        "choice": CHOICE,
        "summary": [sentences.did(line) for line in own],
        "lines": [{**asdict(line), "solved": line.solved} for line in lines],
        "where": {task: sentences.located(rows) for task, rows in cells.items()},
        "convolution": {task: sentences.convolved(rows) for task, rows in cells.items()},
        "emerged": {"said": sentences.emerged(emerged), "seeds": [asdict(one) for one in emerged]},
        **inside.to_dict(),
        "cells": [cell for rows in cells.values() for cell in rows],
        "unfinished": facts.unfinished(study),
        "caveats": caveats(Evidence(study, own, others, inside.cells, inside.costs)),
        "folder": str(folder),
    }
    return Card(study, json.loads(json.dumps(said)), folder)


def _one_of_each(found: Sequence[Part], order: Sequence[str]) -> list[Experiment]:
    """An experiment of each architecture, on the same task."""
    every = [experiment for part in found for experiment in part.agenda.experiments]
    return [next(one for one in every if one.model.architecture == name) for name in order]


def _verdict(line: Mapping[str, Any]) -> dict[str, Any]:
    numbers = line["accuracy"] or {}
    return {**line, **numbers, "accuracy": numbers.get("value")}


def _kept(folder: Path) -> dict[str, Any] | None:
    """The facts of the card that is there."""
    try:
        return read_json(folder / FILE)
    except Damaged:
        return None
