"""A run of an experiment: opened, resumed or, if it is finished, read.

The same experiment gives the same bytes, however often it is stopped and resumed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mecheval.core.errors import MechevalError, RunFailed, describe_error
from mecheval.models.check_model import check_third_party
from mecheval.plugins import defined_classes
from mecheval.runs.experiment import Experiment, Settings
from mecheval.runs.finished import Run
from mecheval.runs.fit import prepared
from mecheval.runs.pending import PendingRun, check_same
from mecheval.runs.progress import run_progress
from mecheval.runs.provenance import made_by
from mecheval.runs.session import Session, Watcher


def run(
    experiment: Experiment,
    out: str | Path,
    settings: Settings = Settings(),  # noqa: B008, it is frozen
    watchers: Sequence[Watcher] = (),
    progress: bool | None = None,
    until: int | None = None,
) -> Run:
    """Return the run of an experiment in a folder of `out`: train it, resume it or read it.

    Parameters
    ----------
    experiment
        What to train and measure.
    out
        The folder of run folders; the run is in `out/experiment.name`.
    settings
        Device, threads and time between checkpoints.
    watchers
        Objects that follow the run, for example loggers.
    progress
        Show a line that updates: in a notebook unless it is False, in a terminal if it is True;
        elsewhere nothing is printed.
    until
        Training that is not over at this step is saved there, and Paused is raised.

    Returns
    -------
    Run
        The finished run, done or diverged.

    Examples
    --------
    >>> from mecheval import EvalConfig, Experiment, ModelConfig, Recall, TrainConfig, run
    >>> experiment = Experiment(
    ...     task=Recall(pairs=2, vocab=8),
    ...     model=ModelConfig("attention", d_model=8),
    ...     train=TrainConfig(documents=0, steps=4),
    ...     eval=EvalConfig(documents=16, every=2, grid_documents=16),
    ... )
    >>> finished = run(experiment, "runs")
    >>> finished.status, finished.outcome["steps"]
    ('done', 4)
    >>> run(experiment, "runs").folder == finished.folder  # a finished run is read, not trained
    True
    """
    watchers = [*watchers, *run_progress(progress)]
    classes = defined_classes(experiment.model)
    checksums = {name: checksum for name, (checksum, _) in classes.items()}
    plugins = {**checksums, **settings.plugins}
    made = made_by(settings.device, settings.threads, plugins, experiment.model.packages)
    pending = PendingRun(Path(out) / experiment.name)
    if finished := pending.finished:
        return _check_finished(finished, experiment, made)
    with prepared(settings):
        if experiment.model.third_party:
            check_third_party(experiment.model)
        with pending.claim():
            if finished := pending.finished or pending.recover():
                return _check_finished(finished, experiment, made)
            pending.begin(experiment.record(), made)
            with pending.recording_stop(experiment.train.total):
                session = Session(experiment, pending, settings, watchers, until)
                return _complete(session, made)


def _complete(session: Session, made: Mapping[str, Any]) -> Run:
    """Complete a run; record an unexpected error in its folder."""
    try:
        return session.complete(made)
    except MechevalError:
        raise
    except Exception as error:
        reason = f"step {session.training.step}: {describe_error(error)}"
        session.pending.record_error({"reason": reason})
        raise RunFailed(f"{session.pending.folder}: {reason}") from error


def _check_finished(finished: Run, experiment: Experiment, made: Mapping[str, Any]) -> Run:
    check_same(finished.folder, finished.record, experiment.record())
    check_same(finished.folder, finished.provenance["made_by"], made)
    finished.verify()
    return finished
