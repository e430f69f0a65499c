"""A finished run as a model again."""

from pathlib import Path

from mecheval.core.errors import StoreError
from mecheval.runs.experiment import Experiment
from mecheval.models.build import Model, build_model
from mecheval.runs.finished import Run


def trained(folder: str | Path) -> tuple[Model, Experiment, Run]:
    """The model of a run folder, with what it was trained on; StoreError if the folder is no whole, done run."""
    run = Run(Path(folder))
    weights = run.weights()
    experiment = Experiment.of({name: value for name, value in run.experiment.items() if name != "key"})
    model = build_model(experiment.model, experiment.task.vocab_size, experiment.seed)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise StoreError(
            f"{run.folder}: its weights are not those of {experiment.model.architecture}: {error}"
        ) from error
    return model, experiment, run
