"""Loads third-party tasks, mixers and models: `file.py:Class`, `--plugin file.py` or entry points.

A file registers them with `@register_task("name")`, `@register_mixer("name")` and, for a whole
model, `@register_model("name")`; a package with entry points of the groups `mecheval.tasks`,
`mecheval.mixers` and `mecheval.models`. Both end in `Registry.add`, like the built-ins.
"""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from mecheval.core.definition import class_checksum, place_of
from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.core.plugin_files import load_file
from mecheval.core.registry import Registry
from mecheval.core.spec import Spec
from mecheval.models.config import ModelConfig, build_architecture
from mecheval.models.registries import architectures, mixers, models
from mecheval.tasks import tasks
from mecheval.tasks.task import Task

_defined: dict[str, tuple[str, str]] = {}  # checksum and place of a class, by its name
Decorator = Callable[[type[Any]], type[Any]]


def register_task(name: str) -> Decorator:
    """Return a decorator that registers a class as a task.

    Parameters
    ----------
    name
        The name in specs.

    Returns
    -------
    decorator
        It takes the class: see docs/add-a-task.md.

    Examples
    --------
    >>> from mecheval import Recall, build_task, register_task
    >>> @register_task("short_recall")
    ... class ShortRecall(Recall):
    ...     "Associative Recall of another name."
    >>> build_task("short_recall:pairs=2").max_len
    7
    """
    return _decorator(tasks, name)


def register_mixer(name: str) -> Decorator:
    """Return a decorator that registers a class as a mixer.

    It is built as `Class(d_model, max_len, **options)`.

    Parameters
    ----------
    name
        The name in specs.

    Returns
    -------
    decorator
        It takes the class.

    Examples
    --------
    >>> from torch import nn
    >>> from mecheval import ModelConfig, register_mixer
    >>> @register_mixer("scale")
    ... class Scale(nn.Module):
    ...     def __init__(self, d_model: int, max_len: int, gain: float = 1.0):
    ...         super().__init__()
    ...         self.gain = nn.Parameter(gain * nn.init.ones_(nn.Linear(1, d_model).bias.data))
    ...     def forward(self, x):
    ...         return self.gain * x
    >>> ModelConfig("scale:gain=2.0").architecture
    'scale:gain=2.0'
    """
    return _decorator(mixers, name)


def register_model(name: str) -> Decorator:
    """Return a decorator that registers an `nn.Module` from tokens to logits as a model.

    It is built as `Class(vocab_size, d_model, layers, max_len, **options)`.

    Parameters
    ----------
    name
        The name in specs.

    Returns
    -------
    decorator
        It takes the class.

    Examples
    --------
    >>> from torch import nn
    >>> from mecheval import ModelConfig, register_model
    >>> @register_model("unigram")
    ... class Unigram(nn.Module):
    ...     def __init__(self, vocab_size: int, d_model: int, layers: int, max_len: int):
    ...         super().__init__()
    ...         self.embedding = nn.Embedding(vocab_size, d_model)
    ...         self.head = nn.Linear(d_model, vocab_size)
    ...     def forward(self, tokens):
    ...         return self.head(self.embedding(tokens))
    >>> ModelConfig("unigram").architecture
    'unigram'
    """
    return _decorator(models, name)


def register_class(cls: type[Any]) -> None:
    """Register a class by its own name; its signature tells a task, a mixer and a model apart."""
    _add(registry_of(cls), cls.__name__, cls)


def register_object(cls: type[Any]) -> str:
    """Register a class that was given as such, and return its name in specs.

    It is known by the name that it is registered by, else by its own. A run records its checksum
    and where it was defined.
    """
    names = [registry.name_of(cls) for registry in (architectures, mixers, models)]
    name = next((name for name in names if name), cls.__name__)
    if not any(names):
        if registry_of(cls) is tasks:
            raise InvalidInput(f"{name} must be a mixer or a model; it is a task")
        register_class(cls)
    if not cls.__module__.startswith("mecheval."):
        _defined[name] = class_checksum(cls), place_of(cls)
    return name


def defined_classes(config: ModelConfig) -> dict[str, tuple[str, str]]:
    """Return checksum and place of the classes of a model that were given as such, by name."""
    architecture = build_architecture(config.architecture)
    specs = [*architecture.mixers, *([architecture.whole] if architecture.whole else [])]
    return {spec.name: _defined[spec.name] for spec in specs if spec.name in _defined}


def plugin_files(task: Task, config: ModelConfig) -> dict[str, str]:
    """Return what `--plugin` takes for each part of a run that came from a file, by its name.

    A class with its own name may be in a file that does not register it: `file.py:Class`.
    """
    architecture = build_architecture(config.architecture)
    parts = [(tasks.name_of(type(task)), type(task))]
    parts += [(spec.name, mixers.get(spec.name)) for spec in architecture.mixers]
    if whole := architecture.whole:
        parts.append((whole.name, models.get(whole.name)))
    files = {}
    for name, target in parts:
        module = sys.modules.get(target.__module__)
        if name and module and "__checksum__" in vars(module):
            own = f":{name}" if name == target.__name__ else ""
            files[name] = f"{Path(str(module.__file__)).resolve()}{own}"
    return files


def register_from_text(registry: Registry, text: str) -> str:
    """Register the class of `file.py:Class:option=1` and return the spec "Class:option=1".

    Any other text is returned as it is. A whole model may stand for a mixer.
    """
    if ".py:" not in text:
        return text
    cls, spec = class_in_file(text)
    actual = registry_of(cls)
    if (actual is tasks) != (registry is tasks):
        raise InvalidInput(f"{text!r} must be a {registry.kind}; it is a {actual.kind}")
    _add(actual, spec.name, cls)
    return str(spec)


def load_plugin(path: str | Path) -> ModuleType:
    """Run a Python file, once unless it was changed; it may register tasks, mixers, metrics, …

    Given `file.py:Class`, also register the class by its own name.

    Parameters
    ----------
    path
        `file.py` or `file.py:Class`.

    Returns
    -------
    module
        The module that the file defines.

    Examples
    --------
    >>> from pathlib import Path
    >>> from mecheval import load_plugin
    >>> _ = Path("mine.py").write_text("width = 3")
    >>> load_plugin("mine.py").width
    3
    """
    if ".py:" in str(path):
        cls, _ = class_in_file(str(path))
        register_class(cls)
        return sys.modules[cls.__module__]
    return load_file(path)


def build_task(text: str) -> Task:
    """Build a task from text: "recall:pairs=8", a preset or "file.py:Class:option=1".

    Parameters
    ----------
    text
        A name with options, a preset, or a class in a file.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> from mecheval import build_task
    >>> build_task("recall:pairs=8").max_len
    19
    """
    cls, spec = class_in_file(text) if ".py:" in text else (None, text)
    return cast(Task, tasks.build(spec, cls))


def class_in_file(text: str) -> tuple[type[Any], Spec]:
    """Run the file of `file.py:Class:option=1`; return the class and "Class:option=1"."""
    path, _, rest = text.partition(".py:")
    module = load_file(f"{path}.py")
    spec = Spec.parse(rest)
    classes = {name: value for name, value in vars(module).items() if isinstance(value, type)}
    if spec.name not in classes:
        defined = [name for name, c in classes.items() if c.__module__ == module.__name__]
        hint = did_you_mean(spec.name, defined)
        raise InvalidInput(f"{path}.py has no class {spec.name!r}{hint}")
    return classes[spec.name], spec


def registry_of(cls: type[Any]) -> Registry:
    """Return the registry of a class: a task has documents, a whole model takes `vocab_size`."""
    if hasattr(cls, "documents"):
        return tasks
    return models if "vocab_size" in inspect.signature(cls).parameters else mixers


def _decorator(registry: Registry, name: str) -> Decorator:
    def register(cls: type[Any]) -> type[Any]:
        _add(registry, name, cls)
        return cls

    return register


def _add(registry: Registry, name: str, cls: type[Any]) -> None:
    """Add a class; architectures, mixers and models share their names."""
    for other in (architectures, mixers, models):
        if registry is not tasks and other is not registry and name in other.names():
            raise InvalidInput(f"name={name!r} is taken by another {other.kind}; rename yours")
    registry.add(name, cls)
