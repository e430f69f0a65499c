"""A run and an experiment as short texts, small tables and a training curve, for notebooks."""

from typing import TYPE_CHECKING, Any

from mecheval.core.errors import MechevalError
from mecheval.core.notebook import html_table, short
from mecheval.core.options import format_value
from mecheval.metrics.statistics import proportion_interval
from mecheval.runs.experiment import Experiment, fields_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mecheval.runs.finished import Run

DEV, TRAIN, BAND = "#1f6fb4", "#9a9a9a", 0.18


def experiment_text(experiment: Experiment) -> str:
    """Return task, architecture and the fields that were changed."""
    names = f"{experiment.task_spec!r}, {experiment.model.architecture!r}"
    others = [f"{name}={value}" for name, value in _changed(experiment).items()]
    return short(f"Experiment({', '.join([names, *others])})")


def experiment_html(experiment: Experiment) -> str:
    """Return every field with its value and meaning; changed ones are marked."""
    known, changed = fields_of(), _changed(experiment)
    lines = []
    for name, value in experiment.fields().items():
        mark = "changed" if name in changed else ""
        lines.append([name, format_value(value), mark, known[name].summary])
    return html_table(experiment.name, ["field", "value", "", "meaning"], lines)


def run_text(run: "Run") -> str:
    """Return folder, status, steps and accuracy; the folder alone if it cannot be read."""
    facts = [repr(str(run.folder))]
    try:
        facts += [run.status, f"{run.outcome['steps']} steps"]
        facts += [f"{name} {text}" for name, text in _scores(run)[:1]]
    except MechevalError as error:
        facts.append(type(error).__name__)
    return short(f"Run({', '.join(facts)})")


def run_html(run: "Run") -> str:
    """Return what a run is of, its scores with their intervals, and its verdict."""
    try:
        lines: list[list[Any]] = [["status", f"{run.status} after {run.outcome['steps']} steps"]]
        if run.outcome.get("reason"):
            lines.append(["reason", run.outcome["reason"]])
        lines += [[f"{name} on test", text] for name, text in _scores(run)]
        if run.verdict:
            lines.append(["verdict", str(run.verdict)])
        title = f"{run.record.get('task')} · {run.record.get('model.architecture')}"
    except MechevalError as error:
        title, lines = "Run", [["problem", str(error)]]
    return html_table(title, (), [*lines, ["folder", str(run.folder)]])


def run_figure(run: "Run") -> "Figure":
    """Draw loss and accuracy on dev during training, accuracy with its 95 % interval."""
    from mecheval.core.plots import INK, Picture, styled

    steps = [row["step"] for row in run.curve]
    with styled():
        figure = Picture(figsize=(7.2, 2.6), layout="constrained", facecolor="white")
        left, right = figure.subplots(1, 2)
        title = f"{run.record.get('task')} · {run.record.get('model.architecture')}"
        figure.suptitle(f"{title} · {run.status}", fontsize=10, color=INK)
        for name, label, colour in (("train_loss", "training", TRAIN), ("loss", "dev", DEV)):
            left.plot(steps, [row.get(name) for row in run.curve], color=colour, label=label)
        left.set(xlabel="step", ylabel="loss")
        left.legend()
        scored = [row for row in run.curve if "accuracy" in row]  # a diverged run has no scores
        n = int(run.record.get("eval.documents", 0))
        if scored and n:
            at = [row["step"] for row in scored]
            bounds = [proportion_interval(round(row["accuracy"] * n), n) for row in scored]
            low, high = zip(*bounds, strict=True)
            right.fill_between(at, low, high, color=DEV, alpha=BAND, linewidth=0)
            right.plot(at, [row["accuracy"] for row in scored], color=DEV)
        right.set(xlabel="step", ylabel=f"accuracy on dev, n={n}", ylim=(0, 1.02))
        return figure


def _scores(run: "Run") -> list[tuple[str, str]]:
    """Return the scores on test with their intervals, the accuracy first."""
    scores = {row.metric: row for row in run.rows if row.split == "test" and not row.corrupted}
    texts = []
    for name in ("accuracy", "likelihood", "loss"):
        if row := scores.get(name):
            unit = ".3f" if name == "loss" else ".1%"
            between = f"[{row.low:{unit}}, {row.high:{unit}}]"
            texts.append((name, f"{row.value:{unit}} {between} (n={row.n})"))
    return texts


def _changed(experiment: Experiment) -> dict[str, Any]:
    known = fields_of()
    skipped = ("task", "model.architecture")
    fields = experiment.fields().items()
    return {n: v for n, v in fields if n not in skipped and v != known[n].default}
