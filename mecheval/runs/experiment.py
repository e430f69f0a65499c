"""Everything that determines a run. Its fields have dotted names, the same in overrides, files and results.

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

from pydantic import Field

from mecheval.core.errors import InvalidInput
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.core.options import Option, validate, did_you_mean, options_of, format_value
from mecheval.core.spec import Scalar, Spec, canonical_json, digest
from mecheval.tasks import tasks
from mecheval.tasks.task import Task
from mecheval.training.config import TrainConfig
from mecheval.interventions.config import EvalConfig

SECTIONS: Mapping[str, Callable[..., Any]] = {"model": ModelConfig, "train": TrainConfig, "eval": EvalConfig}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that determines a run; `of` takes the same fields by their dotted names."""

    task: Task
    model: ModelConfig
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

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
        """From dotted names. Every wrong field is reported at once, each with the place it was written in, if known."""
        known = fields_of()
        problems = [f"{n}={format_value(v)}: no such field{did_you_mean(n, known)}" for n, v in fields.items() if n not in known]
        parts: dict[str, dict[str, Any]] = {}
        for section in ("", *SECTIONS):
            own = {known[n].name: value for n, value in fields.items() if n in known and _section(n) == section}
            try:
                factory = SECTIONS.get(section, _texts)
                parts[section] = validate(factory, own)
            except InvalidInput as error:
                problems += [_dotted(section, problem) for problem in error.problems]
        for name, build in (("task", _task), ("model.architecture", build_architecture)):
            try:
                build(fields[name]) if isinstance(fields.get(name), str) else None
            except InvalidInput as error:
                problems += [f"{name}={fields[name]}: {problem}" for problem in error.problems]
        if not problems:
            try:
                sections = {name: factory(**parts[name]) for name, factory in SECTIONS.items()}
                return cls(task=_task(parts[""]["task"]), seed=parts[""]["seed"], **sections)
            except InvalidInput as error:  # of fields that are fine one by one
                problems += [p if p.startswith("model.") else f"model.architecture: {p}" for p in error.problems]
        raise InvalidInput(_placed(problem, places or {}) for problem in problems)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Experiment":
        """Build the experiment whose `record` was kept."""
        return cls.of({name: value for name, value in record.items() if name != "key"})

    def record(self) -> dict[str, Scalar]:
        """Return the key and all fields: the content of `experiment.json`."""
        return {"key": self.key, **self.fields()}

    def fields(self) -> dict[str, Scalar]:
        """Every field that is not left out, by its dotted name."""
        parts = {"": self, "model": self.model, "train": self.train, "eval": self.eval}
        found = {name: getattr(parts[_section(name)], option.name) for name, option in fields_of().items()}
        found["task"] = self.task_spec
        return {name: value for name, value in found.items() if value is not None}

    def to_json(self) -> str:
        return canonical_json(self.fields())

    @cached_property
    def key(self) -> str:
        """Names this experiment for ever. A new field with a default renames no old experiment."""
        known = fields_of()
        return digest(canonical_json({n: value for n, value in self.fields().items() if value != known[n].default}))

    @property
    def name(self) -> str:
        """Of its folder: readable, and another for every other experiment."""
        return f"{Spec.parse(self.task_spec).name}-{Spec.parse(self.model.architecture).name}-{self.key[:16]}"


def _texts(
    *,
    task: Annotated[str, Field(description="a task with options, or a preset")],
    seed: Annotated[int, Field(ge=0, lt=2**32, description="of documents, their order and the first weights")] = 0,
) -> None:
    """The fields of an experiment outside its sections, as people write them."""


def _task(text: str) -> Task:
    spec = Spec.parse(text)
    return _built(str(spec), tasks.get(spec.name)) if spec.name in tasks.names() else tasks.build(spec)


@lru_cache(maxsize=64)  # a grammar takes longer to draw than all other checks of an experiment
def _built(text: str, cls: Callable[..., Any]) -> Task:  # by its class, too: another may get the name
    return tasks.build(text)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an experiment is carried out. All but `save_every` can change bits, so a run keeps to those it began with."""

    device: Annotated[Literal["cpu", "cuda", "mps"], Field(description="where it is computed")] = "cpu"
    threads: Annotated[int, Field(ge=1, le=1024, description="torch threads")] = 1
    save_every: Annotated[float, Field(ge=0, description="seconds between checkpoints")] = 30.0
    plugins: Mapping[str, str] = field(default_factory=dict)  # checksums of files that were run first

    def __post_init__(self) -> None:
        validate(
            type(self), {name: value for name, value in vars(self).items() if name != "plugins"}, given=("plugins",)
        )


@cache
def fields_of() -> Mapping[str, Option]:
    """Every field by its dotted name; `init_linear` of a model is `model.init.linear`."""
    own = options_of(_texts)
    inner = {
        f"{section}.{name.replace('init_', 'init.')}": option
        for section, factory in SECTIONS.items()
        for name, option in options_of(factory).items()
    }
    return {"task": own["task"], **inner, "seed": own["seed"]}


def _section(name: str) -> str:
    return name.partition(".")[0] if "." in name else ""


def _dotted(section: str, problem: str) -> str:
    """A problem of a section, with the field's dotted name first."""
    for name, option in fields_of().items():
        if _section(name) == section and problem.startswith((f"{option.name}=", f"option {option.name!r}")):
            return problem.replace(option.name, name, 1)
    return problem


def _placed(problem: str, places: Mapping[str, str]) -> str:
    name = next((name for name in places if problem.startswith((f"{name}=", f"{name}:"))), None)
    return problem if name is None else f"{places[name]}: {problem}"
