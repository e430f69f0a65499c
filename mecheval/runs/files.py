"""Files that are old or new and never in between, and reading what may be broken or hostile.

A file is written under another name, synced and renamed. Nothing is read through a link; tensors are not parsed before
their checksum agrees.
"""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mecheval.core.errors import StoreError
from mecheval.core.spec import canonical_json

TEMPORARY = ".tmp"


class Damaged(Exception):
    """A file is not what was written."""


def write(path: Path, content: bytes) -> None:
    """The whole content, or what was there before."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        temporary.unlink(missing_ok=True)  # what is left of a killed process, or a link that leads out of the folder
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}; what was there before is kept"
        ) from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """JSON that carries the checksum of its own content."""
    text = canonical_json(value)
    write(path, canonical_json({"content": value, "sha256": sha256(text.encode())}).encode() + b"\n")


def read(path: Path) -> bytes:
    """The content of a plain file; Damaged if it is a link or anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Damaged(f"{path.name} is no plain file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror}") from error


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote; Damaged if a bit of it is different."""
    return parse_json(read(path), path.name)


def parse_json(text: bytes, name: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
        content, wanted = record["content"], record["sha256"]
        found = sha256(canonical_json(content).encode())
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Damaged(f"{name} is not what was written") from error
    if not isinstance(content, dict) or found != wanted:
        raise Damaged(f"{name} does not agree with its checksum")
    return content


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def remove(path: Path) -> None:
    """A file, or a folder with everything in it; links are removed, not followed."""
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
    """Makes new names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
