"""An experiment: everything that determines a run.

Its fields have dotted names, the same in overrides, files and results:

task                  seed                     train.documents   train.epochs     eval.documents
model.architecture    model.init.linear        train.steps       train.batch      eval.every
model.d_model         model.init.embedding     train.lr          train.schedule
model.layers          model.max_len            train.warmup      train.stop       eval.grid…
                                               train.bucket
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Annotated, Any, Literal

from mecheval.core.errors import InvalidInput
from mecheval.core.options import (
    REQUIRED,
    Field,
    Option,
    did_you_mean,
    format_value,
    options_of,
    validate,
)
from mecheval.core.spec import Scalar, Spec, canonical_json, digest
from mecheval.interventions.grid import EvalConfig
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.tasks import tasks
from mecheval.tasks.task import Task
from mecheval.training.config import TrainConfig

SECTIONS: Mapping[str, Callable[..., Any]] = {
    "model": ModelConfig,
    "train": TrainConfig,
    "eval": EvalConfig,
}
Seed = Annotated[int, Field(ge=0, lt=2**32, description="seed of documents and initial weights")]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that determines a run; `of` takes the same fields by their dotted names.

    Parameters
    ----------
    task
        A task, as `Recall(pairs=4)`.
    model
        The model's configuration.
    train
        The settings of training.
    eval
        The documents and the grid of the evaluation.
    seed
        Seed of documents and initial weights.

    Examples
    --------
    >>> from mecheval import Experiment, ModelConfig, Recall, TrainConfig
    >>> parts = {"model": ModelConfig("mamba"), "train": TrainConfig(lr=0.01)}
    >>> one = Experiment(task=Recall(pairs=4), **parts)
    >>> two = Experiment.of(
    ...     {"task": "recall:pairs=4", "model.architecture": "mamba", "train.lr": 0.01}
    ... )
    >>> one == two, one.name
    (True, 'recall-mamba-784e61e2bd10086b')
    """

    task: Task
    model: ModelConfig
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    seed: Seed = 0

    def __post_init__(self) -> None:
        validate(type(self), {"seed": self.seed}, given=("task", *SECTIONS))
        if self.task.max_len > self.model.max_len:
            longest = f"{self.task.max_len}, the longest document of {self.task_spec}"
            raise InvalidInput(f"model.max_len={self.model.max_len} must be at least {longest}")

    @cached_property
    def task_spec(self) -> str:
        """The task as text, without the options that are left at their defaults."""
        return str(tasks.spec_of(self.task))

    @classmethod
    def of(cls, fields: Mapping[str, Any], places: Mapping[str, str] | None = None) -> "Experiment":
        """Build an experiment from dotted names; report every wrong field at once.

        `places` tells where each field was written, for the error messages.
        """
        known = fields_of()
        parts: dict[str, dict[str, Any]] = {section: {} for section in ("", *SECTIONS)}
        problems = []
        for name, value in fields.items():
            if name in known:
                parts[_section(name)][known[name].name] = value
            else:
                hint = _settings_hint(name) or did_you_mean(name, known)
                problems.append(f"{name}={format_value(value)}: no such field{hint}")
        built: dict[str, Any] = parts.pop("")
        try:
            built["task"] = _build_task(built.get("task"))
        except InvalidInput as error:
            problems += error.problems
        for section, values in parts.items():
            try:
                if section == "model" and "architecture" not in values:
                    validate(ModelConfig, values)  # which says that it is missing
                built[section] = SECTIONS[section](**values)
            except InvalidInput as error:
                model = section == "model"
                of_section = _model_problems(values, error) if model else error.problems
                problems += [_dotted(section, problem) for problem in of_section]
        try:
            if not problems:
                return cls(**built)
            validate(cls, {"seed": fields.get("seed", 0)}, given=("task", *SECTIONS))
        except InvalidInput as error:
            problems += error.problems
        raise InvalidInput(_placed(problem, places or {}) for problem in problems)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Experiment":
        """Build the experiment whose `record` was kept."""
        return cls.of({name: value for name, value in record.items() if name != "key"})

    def record(self) -> dict[str, Scalar]:
        """Return the key and all fields: the content of `experiment.json`."""
        return {"key": self.key, **self.fields()}

    def fields(self) -> dict[str, Scalar]:
        """Return every field that has a value, by its dotted name."""
        parts = {"": self, "model": self.model, "train": self.train, "eval": self.eval}
        values: dict[str, Any] = {}
        for name, option in fields_of().items():
            values[name] = getattr(parts[_section(name)], option.name)
        values["task"] = self.task_spec
        return {name: value for name, value in values.items() if value is not None}

    def to_json(self) -> str:
        return canonical_json(self.fields())

    @cached_property
    def key(self) -> str:
        """The permanent name of this experiment. A new field with a default renames no old one."""
        return key_of(self.fields())

    @property
    def name(self) -> str:
        """The name of its folder: readable, and different for every experiment."""
        names = (Spec.parse(self.task_spec).name, Spec.parse(self.model.architecture).name)
        return "-".join((*names, self.key[:16]))

    def __repr__(self) -> str:
        from mecheval.runs.display import experiment_text

        return experiment_text(self)

    def _repr_html_(self) -> str:
        from mecheval.runs.display import experiment_html

        return experiment_html(self)


def key_of(fields: Mapping[str, Any]) -> str:
    """Return the key of an experiment with these fields: those at their defaults do not count."""
    known = fields_of()
    changed = {name: value for name, value in fields.items() if value != known[name].default}
    return digest(canonical_json(changed))


def _build_task(text: object) -> Task:
    if not isinstance(text, str):
        written = "option 'task' is missing; it" if text is None else f"task={format_value(text)}"
        raise InvalidInput(f"{written} must be text, as in 'recall:pairs=8'")
    try:
        spec = Spec.parse(text)
        return _cached_task(str(spec), tasks.get(spec.name))
    except InvalidInput as error:
        raise error.within(f"task={text}") from error


@lru_cache(maxsize=64)  # drawing a grammar takes longer than all other checks of an experiment
def _cached_task(text: str, cls: Callable[..., Any]) -> Task:
    """Build a task once; `cls` is part of the key because a name may be registered anew."""
    return tasks.build(text)


def _model_problems(values: Mapping[str, Any], error: InvalidInput) -> list[str]:
    """Tell the problems of the model's fields from those of its architecture."""
    problems, text = _problems(validate, ModelConfig, values), values.get("architecture")
    if not isinstance(text, str):
        return problems
    of_architecture = _problems(build_architecture, text)
    if not problems and not of_architecture:  # an option of a mixer does not go with d_model
        of_architecture = list(error.problems)
    return problems + [f"architecture={text}: {problem}" for problem in of_architecture]


def _problems(check: Callable[..., object], *arguments: Any) -> list[str]:
    try:
        check(*arguments)
    except InvalidInput as error:
        return list(error.problems)
    return []


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a process. All but `save_every` can change bits and are fixed for a run.

    Parameters
    ----------
    device
        `cpu`, `cuda` or `mps`.
    threads
        Threads of torch; their number changes bits.
    save_every
        Seconds between checkpoints.
    plugins
        Checksums of imported files, by name: `load_plugin` and `--plugin` give them.

    Examples
    --------
    >>> from mecheval import Settings
    >>> Settings(threads=2).device
    'cpu'
    """

    device: Annotated[Literal["cpu", "cuda", "mps"], Field(description="torch device")] = "cpu"
    threads: Annotated[int, Field(ge=1, le=1024, description="torch threads")] = 1
    save_every: Annotated[float, Field(ge=0, description="seconds between checkpoints")] = 30.0
    plugins: Mapping[str, str] = field(default_factory=dict)  # checksums of the imported files

    def __post_init__(self) -> None:
        values = {name: value for name, value in vars(self).items() if name != "plugins"}
        validate(type(self), values, given=("plugins",))


@cache
def fields_of() -> Mapping[str, Option]:
    """Return every field by its dotted name; `init_linear` of a model is `model.init.linear`."""
    fields = {"task": Option("task", str, REQUIRED, "a task with options, or a preset")}
    for section, factory in SECTIONS.items():
        for name, option in options_of(factory).items():
            fields[f"{section}.{name.replace('init_', 'init.')}"] = option
    return {**fields, "seed": options_of(Experiment, given=("task", *SECTIONS))["seed"]}


def _section(name: str) -> str:
    return name.partition(".")[0] if "." in name else ""


def _settings_hint(name: str) -> str | None:
    """Return the option of the command line that a name belongs to, if it is one of Settings."""
    last = name.rpartition(".")[2]
    known = options_of(Settings, given=("plugins",))
    return f"; use --{last.replace('_', '-')}" if last in known else None


def _dotted(section: str, problem: str) -> str:
    """Put the field's dotted name in front of a problem of a section."""
    for name, option in fields_of().items():
        starts = (f"{option.name}=", f"option {option.name!r}")
        if _section(name) == section and problem.startswith(starts):
            return problem.replace(option.name, name, 1)
    return problem


def _placed(problem: str, places: Mapping[str, str]) -> str:
    """Put the place where a field was written in front of its problem."""
    for name, place in places.items():
        if problem.startswith((f"{name}=", f"{name}:")):
            return f"{place}: {problem}"
    return problem
