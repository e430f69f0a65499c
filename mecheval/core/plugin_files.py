"""Runs third-party Python files, each once unless it was changed, and keeps their checksums."""

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from mecheval.core.errors import InvalidInput, describe_error
from mecheval.core.spec import digest

_checksums: dict[str, str] = {}
_running: list[Path] = []  # the innermost file comes last


def load_file(path: str | Path) -> ModuleType:
    """Run a Python file, once unless it was changed, and return its module."""
    file = Path(path)
    if file.suffix == ".py" and not os.path.lexists(file):
        raise InvalidInput(f"no such file: {path}")
    if file.suffix != ".py" or not file.is_file():
        raise InvalidInput(f"plugin={str(path)!r} must be a Python file, file.py")
    try:
        name = f"mecheval_plugin_{digest(str(file.resolve()))[:16]}"
        checksum = digest(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:  # of the content, or of the name
        raise InvalidInput(f"plugin={str(path)!r} cannot be read: {error}") from error
    module = sys.modules.get(name)
    if module and vars(module)["__checksum__"] == checksum:
        _checksums.setdefault(file.name, checksum)
        return module
    _checksums[file.name] = checksum
    return _run_file(file, name, checksum)


def running_plugin() -> Path | None:
    """Return the file that is being run, if any: it must not start work that runs it again."""
    return _running[-1] if _running else None


def checksums() -> dict[str, str]:
    """Return the checksum of each loaded file by its name; a run is tied to them."""
    return dict(_checksums)


@contextmanager
def isolated_plugins(known: Mapping[str, str]) -> Iterator[None]:
    """Forget the loaded files within the block, as if in a new process.

    `known` are the checksums, by name, of classes that are in no file.
    """
    before = checksums()
    _checksums.clear()
    _checksums.update(known)
    try:
        yield
    finally:
        _checksums.clear()
        _checksums.update(before)


def _run_file(file: Path, name: str, checksum: str) -> ModuleType:
    module_spec = importlib.util.spec_from_file_location(name, file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    vars(module)["__checksum__"] = checksum
    before, sys.modules[name] = sys.modules.get(name), module  # dataclasses look their module up
    _running.append(file)
    try:
        module_spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if before:
            sys.modules[name] = before
        if isinstance(error, KeyboardInterrupt):
            raise
        place = f"{file}{_line(error, str(module_spec.origin))}"
        if isinstance(error, InvalidInput):
            raise error.within(place) from error
        raise InvalidInput(f"{place}: {describe_error(error)}") from error
    finally:
        _running.pop()
    return module


def _line(error: BaseException, file: str) -> str:
    """Return `:12`, the last line of the file that was reached."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    return f":{lines[-1]}" if lines else ""
