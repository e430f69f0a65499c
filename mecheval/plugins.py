"""The doors for a stranger's task or mixer: `file.py:Class`, `--plugin file.py`, or an entry point.

In a file, `@register_task("name")` and `@register_mixer("name")`; in a package, entry points of the groups
`mecheval.tasks` and `mecheval.mixers`. Both lead to `Registry.add`, as for the built-ins.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from mecheval.errors import InvalidInput
from mecheval.models.named import architectures, mixers
from mecheval.registry import Registry
from mecheval.spec import Spec, digest
from mecheval.tasks import tasks
from mecheval.tasks.task import Task

CHECKED_WIDTH = 16  # channels of a mixer that is examined
_checksums: dict[str, str] = {}
Decorator = Callable[[type[Any]], type[Any]]


def register_task(name: str) -> Decorator:
    """Makes a class a task that can be named."""
    return _registers(tasks, name)


def register_mixer(name: str) -> Decorator:
    """Makes a class built as `Class(d_model, max_len, **options)` a mixer that can be named."""
    return _registers(mixers, name)


def load_plugin(path: str | Path) -> ModuleType:
    """Runs a file, once; what it registers can be named from then on."""
    file = Path(path)
    if file.suffix != ".py" or not file.is_file():
        raise InvalidInput(f"plugin={str(path)!r} must be a Python file, file.py")
    name = f"mecheval_plugin_{digest(str(file.resolve()))[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # dataclasses look their module up
    _checksums[file.name] = digest(file.read_text(encoding="utf-8"))
    try:
        module_spec.loader.exec_module(module)
    except InvalidInput:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InvalidInput(f"plugin={str(path)!r} must run; it raised {type(error).__name__}: {error}") from error
    return module


def build_task(text: str) -> Task:
    """The task that a text names: "recall:pairs=8", a preset, "file.py:Class:option=1"."""
    return cast(Task, _build(tasks, text))


def registered(registry: Registry, text: str) -> str:
    """A text in which a class of a file is named by itself: it is registered by its own name first."""
    if ".py:" not in text:
        return text
    cls, spec = _class_in_file(text)
    if spec.name not in registry.names():
        registry.add(spec.name, cls)
    elif registry.get(spec.name) is not cls:
        raise InvalidInput(f"{text!r} must have another name: there is a {registry.kind} {spec.name!r} already")
    return str(spec)


def checksums() -> dict[str, str]:
    """Of the files that were run, by their names: a run that was made with others is another run."""
    return dict(_checksums)


def is_model(text: str) -> bool:
    """Whether a text names an architecture or a mixer rather than a task."""
    name = text.partition(":")[0]
    return name in (*architectures.names(), *mixers.names())


def check_named(text: str) -> None:
    """Examines what a text names, a task or a mixer; raises CheckFailed."""
    cls, spec = _class_in_file(text) if ".py:" in text else (None, Spec.parse(text))
    is_mixer = spec.name in mixers.names() if cls is None else not hasattr(cls, "documents")
    if not is_mixer:
        from mecheval.tasks.check import check_task

        check_task(build_task(text))
        return
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
        raise InvalidInput(f"{path}.py has no class {spec.name!r}")
    return cls, spec


def _registers(registry: Registry, name: str) -> Decorator:
    def register(cls: type[Any]) -> type[Any]:
        registry.add(name, cls)
        return cls

    return register
