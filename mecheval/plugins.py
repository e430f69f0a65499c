"""The doors for a stranger's task, mixer or model: `file.py:Class`, `--plugin file.py`, or an entry point.

In a file, `@register_task("name")`, `@register_mixer("name")` and, for a whole model, `@register_model("name")`; in a
package, entry points of the groups `mecheval.tasks`, `mecheval.mixers` and `mecheval.models`. Both lead to
`Registry.add`, as for the built-ins.
"""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from mecheval.core.errors import InvalidInput
from mecheval.core.options import did_you_mean
from mecheval.core.registry import Registry
from mecheval.core.spec import Spec, digest
from mecheval.models.config import ModelConfig
from mecheval.models.registries import architectures, mixers, models
from mecheval.tasks import tasks
from mecheval.tasks.task import Task

CHECKED_WIDTH = 16  # channels of a mixer that is examined
_checksums: dict[str, str] = {}
_running: list[Path] = []  # files whose first line is behind them and whose last is not
Decorator = Callable[[type[Any]], type[Any]]


def register_task(name: str) -> Decorator:
    """Makes a class a task that can be named."""
    return _registers(tasks, name)


def register_mixer(name: str) -> Decorator:
    """Makes a class built as `Class(d_model, max_len, **options)` a mixer that can be named."""
    return _registers(mixers, name)


def register_model(name: str) -> Decorator:
    """Makes a class built as `Class(vocab_size, d_model, layers, max_len, **options)`, any `nn.Module` from tokens to
    logits, a model that can be named."""
    return _registers(models, name)


def register_class(cls: type[Any]) -> None:
    """Makes a class what it looks like, a task, a mixer or a model, by its own name."""
    _add(_registry_of(cls), cls.__name__, cls)


def load_plugin(path: str | Path) -> ModuleType:
    """Runs a file, once unless it was changed; what it registers can be named from then on. Given `file.py:Class`, the
    class can be named, too, by its own name."""
    if ".py:" in str(path):
        cls, _ = _class_in_file(str(path))
        register_class(cls)
        return sys.modules[cls.__module__]
    file = Path(path)
    if file.suffix != ".py" or not file.is_file():
        raise InvalidInput(f"plugin={str(path)!r} must be a Python file, file.py")
    name = f"mecheval_plugin_{digest(str(file.resolve()))[:16]}"
    try:
        checksum = digest(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"plugin={str(path)!r} cannot be read: {error}") from error
    module = sys.modules.get(name)
    if module and vars(module)["__checksum__"] == checksum:
        _checksums.setdefault(file.name, checksum)
        return module
    _checksums[file.name] = checksum
    return _run(file, name, checksum)


def _run(file: Path, name: str, checksum: str) -> ModuleType:
    module_spec = importlib.util.spec_from_file_location(name, file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    vars(module)["__checksum__"] = checksum
    before, sys.modules[name] = sys.modules.get(name), module  # dataclasses look their module up
    _running.append(file)
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if before:
            sys.modules[name] = before
        place = f"{file}{_line(error, str(module_spec.origin))}"
        if isinstance(error, InvalidInput):
            raise error.within(place) from error
        raise InvalidInput(f"{place}: must run; it raised {type(error).__name__}: {error}") from error
    finally:
        _running.pop()
    return module


def _line(error: BaseException, file: str) -> str:
    """`:12`, the last line of the file that was reached."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    return f":{lines[-1]}" if lines else ""


def running() -> Path | None:
    """The file that is being run now, if one is: it must not begin work that runs it again."""
    return _running[-1] if _running else None


@contextmanager
def apart(known: Mapping[str, str]) -> Iterator[None]:
    """As in a process that has run no file yet, which a worker is: it runs those that it is told of and no others.

    `known` are checksums of what is in no file, by name.
    """
    before = dict(_checksums)
    _checksums.clear()
    _checksums.update(known)
    try:
        yield
    finally:
        _checksums.clear()
        _checksums.update(before)


def build_task(text: str) -> Task:
    """The task that a text names: "recall:pairs=8", a preset, "file.py:Class:option=1"."""
    return cast(Task, _build(tasks, text))


def registered(registry: Registry, text: str) -> str:
    """A text in which a class of a file is named by itself: it is registered by its own name first. A whole model goes
    where a mixer goes."""
    if ".py:" not in text:
        return text
    cls, spec = _class_in_file(text)
    home = _registry_of(cls)
    if (home is tasks) != (registry is tasks):
        raise InvalidInput(f"{text!r} must be a {registry.kind}; it is a {home.kind}")
    try:
        _add(home, spec.name, cls)
    except InvalidInput as error:
        raise InvalidInput(f"{text!r} must have another name: there is a {home.kind} {spec.name!r} already") from error
    return str(spec)


def checksums() -> dict[str, str]:
    """Of the files that were run, by their names: a run that was made with others is another run."""
    return dict(_checksums)


def is_model(text: str) -> bool:
    """Whether a text names an architecture, a mixer or a whole model rather than a task."""
    name = text.partition(":")[0]
    return name in (*architectures.names(), *mixers.names(), *models.names())


def check_named(text: str) -> None:
    """Examines what a text names, a task, a mixer or a whole model; raises CheckFailed."""
    cls, spec = _class_in_file(text) if ".py:" in text else (None, Spec.parse(text))
    named = next((home for home in (mixers, models) if spec.name in home.names()), tasks)
    home = named if cls is None else _registry_of(cls)
    if home is tasks:
        from mecheval.tasks.check import check_task

        check_task(build_task(text))
    elif home is models:
        config = ModelConfig(architecture=registered(models, text), d_model=CHECKED_WIDTH)
        from mecheval.models.check_model import check_whole

        check_whole(config)
    else:
        options = mixers.check(spec, cls, d_model=CHECKED_WIDTH)
        from mecheval.models.check import check_mixer

        check_mixer(cls or mixers.get(spec.name), CHECKED_WIDTH, **options)


def _build(registry: Registry, text: str, **given: Any) -> Any:
    if ".py:" not in text:
        return registry.build(text, **given)
    cls, spec = _class_in_file(text)
    return registry.build(spec, cls, **given)


def _class_in_file(text: str) -> tuple[type[Any], Spec]:
    path, _, rest = text.partition(".py:")
    module = load_plugin(f"{path}.py")
    spec = Spec.parse(rest)
    cls = getattr(module, spec.name, None)
    if not isinstance(cls, type):
        own = {name: value for name, value in vars(module).items() if isinstance(value, type)}
        classes = [name for name, value in own.items() if value.__module__ == module.__name__]
        raise InvalidInput(f"{path}.py has no class {spec.name!r}{did_you_mean(spec.name, classes)}")
    return cls, spec


def _registry_of(cls: type[Any]) -> Registry:
    """A task has documents, and a model by itself has to know how many symbols there are."""
    if hasattr(cls, "documents"):
        return tasks
    return models if "vocab_size" in inspect.signature(cls).parameters else mixers


def _registers(registry: Registry, name: str) -> Decorator:
    def register(cls: type[Any]) -> type[Any]:
        _add(registry, name, cls)
        return cls

    return register


def _add(registry: Registry, name: str, cls: type[Any]) -> None:
    """Not by the name of another kind of model, which would be found in its place."""
    kinds = [kind for kind in (architectures, mixers, models) if kind is not registry]
    if registry is not tasks and (taken := [kind.kind for kind in kinds if name in kind.names()]):
        raise InvalidInput(f"name={name!r} is taken: there is a {taken[0]} of that name already")
    registry.add(name, cls)
