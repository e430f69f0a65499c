"""mecheval tells how a sequence-model architecture recalls, not only whether.

The names below are the public ones. They are imported when first used, so that importing mecheval costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mecheval.cards.card import Card, card
    from mecheval.errors import CheckFailed, InvalidInput, MechevalError, StoreError
    from mecheval.experiment import Experiment, Settings
    from mecheval.interventions.interchange import interchange
    from mecheval.interventions.scores import register_metric
    from mecheval.metrics.measurement import Measurement
    from mecheval.metrics.mechanism import verdict
    from mecheval.models.check import check_mixer
    from mecheval.models.check_model import check_model
    from mecheval.models.config import ModelConfig
    from mecheval.models.foreign import Foreign
    from mecheval.models.language_model import LanguageModel
    from mecheval.models.site import Site, patch, record, sites
    from mecheval.plugins import build_task, load_plugin, register_mixer, register_model, register_task
    from mecheval.report.contrasts import compare
    from mecheval.results.run import Run
    from mecheval.results.store import Results
    from mecheval.runner import fit, run
    from mecheval.spec import Spec
    from mecheval.tasks.batch import Corrupted, Documents
    from mecheval.tasks.check import check_task
    from mecheval.tasks.grammar import Grammar
    from mecheval.tasks.honesty import describe
    from mecheval.tasks.recall import Recall
    from mecheval.tasks.records import sample
    from mecheval.tasks.task import Task
    from mecheval.tasks.treecall import Treecall

_HOMES = {
    "cards.card": ["Card", "card"],
    "errors": ["CheckFailed", "InvalidInput", "MechevalError", "StoreError"],
    "experiment": ["Experiment", "Settings"],
    "interventions.interchange": ["interchange"],
    "interventions.scores": ["register_metric"],
    "metrics.measurement": ["Measurement"],
    "metrics.mechanism": ["verdict"],
    "models.check": ["check_mixer"],
    "models.check_model": ["check_model"],
    "models.config": ["ModelConfig"],
    "models.foreign": ["Foreign"],
    "models.language_model": ["LanguageModel"],
    "models.site": ["Site", "patch", "record", "sites"],
    "plugins": ["build_task", "load_plugin", "register_mixer", "register_model", "register_task"],
    "report.contrasts": ["compare"],
    "results.run": ["Run"],
    "results.store": ["Results"],
    "runner": ["fit", "run"],
    "spec": ["Spec"],
    "tasks.batch": ["Corrupted", "Documents"],
    "tasks.check": ["check_task"],
    "tasks.grammar": ["Grammar"],
    "tasks.honesty": ["describe"],
    "tasks.recall": ["Recall"],
    "tasks.records": ["sample"],
    "tasks.task": ["Task"],
    "tasks.treecall": ["Treecall"],
}
__all__ = [
    "Card",
    "CheckFailed",
    "Corrupted",
    "Documents",
    "Experiment",
    "Foreign",
    "Grammar",
    "InvalidInput",
    "LanguageModel",
    "Measurement",
    "MechevalError",
    "ModelConfig",
    "Recall",
    "Results",
    "Run",
    "Settings",
    "Site",
    "Spec",
    "StoreError",
    "Task",
    "Treecall",
    "build_task",
    "card",
    "check_mixer",
    "check_model",
    "check_task",
    "compare",
    "describe",
    "fit",
    "interchange",
    "load_plugin",
    "patch",
    "record",
    "register_metric",
    "register_mixer",
    "register_model",
    "register_task",
    "run",
    "sample",
    "sites",
    "verdict",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"mecheval.{home}"), name)
    raise AttributeError(f"module 'mecheval' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
