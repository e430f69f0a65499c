"""Tells where a class was defined, with a checksum of its code: one in a notebook has no file."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from mecheval.core.notebook import notebook_shell
from mecheval.core.spec import canonical_json, digest


def file_spec(cls: type[Any]) -> str | None:
    """Return `file.py:Class` if the file runs on its own, which a module of a package does not."""
    try:
        file = inspect.getsourcefile(cls)
    except (TypeError, OSError):  # defined in a notebook, or by `exec`
        return None
    codes = [
        inspect.unwrap(part).__code__ for part in vars(cls).values() if inspect.isfunction(part)
    ]
    if codes and all(code.co_filename.startswith("<") for code in codes):
        return None  # typed or executed where a script runs: the file of `__main__` is not its own
    standalone = "." not in cls.__module__ and cls.__qualname__ == cls.__name__
    return f"{file}:{cls.__name__}" if file and standalone and Path(file).is_file() else None


def place_of(cls: type[Any]) -> str:
    """Return in words where a class was defined."""
    if cls.__module__ != "__main__":
        return f"the module {cls.__module__}"
    return "a notebook" if notebook_shell() else "a script or the interpreter"


def class_checksum(cls: type[Any]) -> str:
    """Return the checksum of the bytecode of a class and of its bases in the same module.

    A class without a file has no source text; redefined in a notebook, it gets another checksum.
    """
    texts: list[str] = []
    for base in cls.__mro__:
        if base.__module__ == cls.__module__:
            for attribute in vars(base).values():
                if inspect.isfunction(attribute):
                    texts += _texts(attribute.__code__)
    return digest(canonical_json(texts))


def _texts(code: CodeType) -> Iterator[str]:
    yield from (code.co_code.hex(), *code.co_names)
    for constant in code.co_consts:
        yield from _texts(constant) if inspect.iscode(constant) else [repr(constant)]
