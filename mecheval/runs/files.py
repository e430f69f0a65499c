"""Atomic writes, and reading files that may be broken or hostile.

A file is written under another name, synced and renamed, so it is either old or new. Nothing is
read through a link; tensors are parsed only after their checksum agrees.
"""

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.core.spec import canonical_json

if TYPE_CHECKING:
    from torch import Tensor

TEMPORARY = ".tmp"
# Windows knows neither FIFOs nor O_NOFOLLOW, and would read text
READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
LARGEST_INPUT = 4_000_000  # bytes of a file that a user names; a page of benchmarks has 100,000


class Damaged(Exception):
    """A file does not have the content that was written."""


def write(path: Path, content: bytes) -> None:
    """Write the whole content, or leave the file as it was."""
    check_name(path)
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        temporary.unlink(missing_ok=True)  # left by a kill, or a link that leads out of the folder
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"{path} cannot be written: {reason}; the old file is kept") from error


def check_name(path: Path) -> None:
    """Refuse a path without a name, such as an empty one."""
    if not path.name:
        raise InvalidInput(f"{str(path)!r} is not the name of a file; give one")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON that carries the checksum of its own content."""
    text = canonical_json(value)
    record = {"content": value, "sha256": sha256(text.encode())}
    write(path, canonical_json(record).encode() + b"\n")


def read(path: Path | str) -> bytes:
    """Return the content of a regular file; raise Damaged for a link or anything else."""
    try:
        return _read_regular(path, follow=False)
    except OSError as error:
        raise Damaged(f"{Path(path).name} cannot be read: {error.strerror}") from error


def read_input(path: Path, option: str) -> str:
    """Return the text of a file that a user names; refuse pipes, devices and large files."""
    try:
        return _read_regular(path, most=LARGEST_INPUT).decode()
    except (OSError, UnicodeDecodeError, Damaged) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"{option}={str(path)!r} cannot be read: {reason}") from error


def _read_regular(path: Path | str, follow: bool = True, most: int | None = None) -> bytes:
    if not (follow or hasattr(os, "O_NOFOLLOW")) and Path(path).is_symlink():
        raise Damaged(f"{Path(path).name} is a link")
    descriptor = os.open(path, READ if follow else READ | NO_LINK)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise Damaged(f"{Path(path).name} is not a regular file")
        if most is not None and facts.st_size > most:
            raise Damaged(f"it has {facts.st_size:,} bytes; at most {most:,} are allowed")
        with FileIO(descriptor, closefd=False) as file:  # a buffer would cost more than it saves
            return file.readall()
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any]:
    """Return what `write_json` wrote; raise Damaged if a bit of it has changed."""
    return parse_json(read(path), path.name)


def parse_json(text: bytes, name: str) -> dict[str, Any]:
    """Return the content of a file that `write_json` wrote; `name` is for the error message."""
    try:
        record = json.loads(text)
        content, expected = record["content"], record["sha256"]
        checksum = sha256(canonical_json(content).encode())
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Damaged(f"{name} is not what was written") from error
    if not isinstance(content, dict) or checksum != expected:
        raise Damaged(f"{name} does not match its checksum")
    return content


def parse_lines(text: bytes, name: str) -> list[dict[str, Any]]:
    """Return the records of a JSON lines file; `name` is for the error message."""
    try:
        lines = text.splitlines()
        # at once: twice as fast; rejects NaN and half characters
        records = from_json(b"[" + b",".join(lines) + b"]", allow_inf_nan=False)
        if len(records) != len(lines) or not all(type(record) is dict for record in records):
            raise ValueError(name)
        _check_finite(records)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{name} is not what was written") from error
    return records


def _check_finite(records: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError for a number such as 1e999, which is parsed as infinity."""
    values = [value for record in records for value in record.values()]
    total = sum([value for value in values if type(value) is float])
    if not math.isfinite(total) or not {list, dict}.isdisjoint(map(type, values)):
        canonical_json(records)  # looks at every number, and inside of values


def pack_tensors(tensors: "Mapping[str, Tensor]") -> bytes:
    """Return tensors in the safetensors format: the same bytes for the same tensors."""
    from safetensors.torch import save

    ordered = sorted(tensors.items())
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in ordered})


def unpack_tensors(content: bytes) -> "dict[str, Tensor]":
    """Return the tensors of `pack_tensors`; nothing in the format can run code."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(content)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:  # KeyError: the dtype
        raise Damaged(f"not a safetensors file: {error}") from error


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def remove(path: Path) -> None:
    """Remove a file, or a folder with everything in it; links are removed, not followed."""
    try:
        if path.is_dir() and not path.is_symlink():
            for inner in path.iterdir():
                remove(inner)
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be removed: {error.strerror}") from error


def sync(folder: Path) -> None:
    """Flush the names in a folder to disk; Windows opens no folder, and does so by itself."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
