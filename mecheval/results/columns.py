"""Names and meanings of the columns of `runs`, `rows` and `curves`.

An experiment's field has a plain column name: `model.architecture` is `architecture`, `train.lr` is
`lr`. Fields of `eval`, and names that two sections share, keep their section: `eval_documents`.
"""

import re
from collections.abc import Iterable

from mecheval.runs.experiment import fields_of

SHARED = ("documents", "steps")  # train and eval both have documents; runs have steps, too
DOTTED = re.compile(r'"((?:model|train|eval)\.[a-z_.]+)"')  # as SQL must write a dotted name
RUN = {
    "key": "the experiment's permanent name, a hash of its fields",
    "status": "done, diverged, running, …",
}
MEANINGS = {
    "runs": {
        **RUN,
        "steps": "training steps that were done",
        "reason": "why a run is not done",
        "folder": "the run's folder",
    },
    "rows": {
        **RUN,
        "step": "training step of the measurement",
        "n": "documents it is over",
        "layer": "block of the site",
        "low": "lower end of the 95 % interval over documents",
        "high": "upper end of the 95 % interval over documents",
        "corrupted": "role that was corrupted; empty for a score without an intervention",
        "condition": "clean, corrupt, restored, ablated or control",
        "split": "dev, test, or test_unseen: documents of test that were not trained on",
        "site": "place of the intervention in the model",
        "role": "token of the intervention",
        "metric": "accuracy, likelihood, loss, logit, kl, share or a registered metric",
        "value": "mean of the metric over the documents",
    },
    "curves": {
        **RUN,
        "step": "training step of the evaluation",
        "loss": "loss on dev",
        "train_loss": "mean loss on the batches since the line before",
        "gradient_norm": "norm of the gradient at the step",
        "learning_rate": "learning rate at the step",
        "accuracy": "accuracy on dev",
        "likelihood": "likelihood of the right answer on dev",
    },
}


def plain_name(name: str) -> str:
    """Return the column of a field: "model.init.linear" is "init_linear"."""
    section, _, rest = name.partition(".")
    if not rest:
        return name
    column = rest.replace(".", "_")
    return f"{section}_{column}" if section == "eval" or column in SHARED else column


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Return the column of each name that is not plain."""
    return {name: plain_name(name) for name in names if "." in name}


def uses_dotted_names(query: str) -> bool:
    """Tell if a query names a column as "model.architecture", which still works."""
    return DOTTED.search(query) is not None


def meaning_of(table: str, column: str) -> str:
    """Return what a column holds; nothing for one that is not known."""
    fields = {plain_name(name): option.summary for name, option in fields_of().items()}
    return {**fields, **MEANINGS[table]}.get(column, "")
