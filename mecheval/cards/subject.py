"""Whose card it is: a class in a file, a name with options, or a class that is in no file."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from mecheval.core.errors import CheckFailed, InvalidInput
from mecheval.core.spec import Spec, canonical_json, digest
from mecheval.models.config import ModelConfig
from mecheval.models.registries import mixers
from mecheval.plugins import (
    checksums,
    isolated_plugins,
    load_plugin,
    register_class,
    register_from_text,
    running_plugin,
)
from mecheval.runs.experiment import Experiment


@dataclass(frozen=True)
class Subject:
    """`architecture` is what experiments call it, `plugins` are what a worker runs first. `known` is the checksum of a
    class that is in no file: no other process can have it, so that it is trained in this one."""

    architecture: str
    plugins: tuple[str, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, what: str | type[Any], plugins: Sequence[str] = ()) -> "Subject":
        """From `file.py:Class`, a name with options, or a class. Refused where it cannot be named or built."""
        if file := running_plugin():
            raise InvalidInput(
                f"card(…) in {file} must stand below \"if __name__ == '__main__':\", since each worker runs the file"
            )
        text = what if isinstance(what, str) else _in_file(what)
        for path in plugins:
            load_plugin(path)
        if text is None:
            assert isinstance(what, type)
            register_class(what)
            return cls(_shortest(what.__name__), tuple(plugins), {what.__name__: _checksum(what)})
        return cls(_shortest(register_from_text(mixers, text)), (*plugins, *_own_file(text)))

    @property
    def here(self) -> bool:
        """Whether only this process can train it."""
        return bool(self.known)

    @property
    def folder(self) -> str:
        """Of its runs: another for other options, and for a file or class that was changed."""
        name = Spec.parse(self.architecture).name
        with isolated_plugins(self.known):
            for path in self.plugins:
                load_plugin(path)
            made = {"architecture": self.architecture, "made": checksums()}
        plain = self.architecture == name and not made["made"]
        return name if plain else f"{name}-{digest(canonical_json(made))[:8]}"

    def check(self, experiment: Experiment) -> None:
        """Before anything is trained: what breaks its promises would make every number false."""
        from mecheval.models.build import build_model
        from mecheval.models.check import check_architecture
        from mecheval.models.check_model import check_whole

        try:
            check_architecture(self.architecture, experiment.model.d_model)
            check_whole(experiment.model)
        except CheckFailed as error:
            raise InvalidInput(str(error).splitlines()) from error
        try:
            build_model(experiment.model, experiment.task.vocab_size)
        except Exception as error:  # a stranger's code, longer than it was checked at
            size = f"d_model={experiment.model.d_model} and max_len={experiment.model.max_len}"
            raise InvalidInput(f"{self.architecture} must be built with {size}; it raised {error!r}") from error


def _shortest(text: str) -> str:
    return ModelConfig(architecture=text).architecture


def _own_file(text: str) -> tuple[str, ...]:
    """The file and the class that a worker registers, if there is a file; its options come with the experiment."""
    path, found, rest = text.partition(".py:")
    return (f"{Path(path).resolve()}.py:{rest.partition(':')[0]}",) if found else ()


def _in_file(cls: type[Any]) -> str | None:
    """`file.py:Class`, where a file by itself defines the class; a module of a package does not run by itself."""
    try:
        file = inspect.getsourcefile(cls)
    except (TypeError, OSError):  # a notebook, or text that was executed
        return None
    alone = "." not in cls.__module__ and cls.__qualname__ == cls.__name__
    return f"{file}:{cls.__name__}" if file and alone and Path(file).is_file() else None


def _checksum(cls: type[Any]) -> str:
    """Of what a class and those beside it that it inherits from do, since there is no text of them: changed in a
    notebook, it is another."""
    parts = [part for base in cls.__mro__ if base.__module__ == cls.__module__ for part in vars(base).values()]
    codes = [part.__code__ for part in parts if inspect.isfunction(part)]
    return digest(canonical_json([text for code in codes for text in _texts(code)]))


def _texts(code: CodeType) -> Iterator[str]:
    yield from (code.co_code.hex(), *code.co_names)
    for constant in code.co_consts:
        yield from _texts(constant) if inspect.iscode(constant) else [repr(constant)]
