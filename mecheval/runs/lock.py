"""Locks a folder for one process; the lock ends with that process, also where it is killed.

With `flock` (Linux, macOS) the folder itself is locked and nothing is written. Windows can neither
lock a folder nor rename one in which a file is open, so there a file beside the folder is locked.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from mecheval.core.errors import StoreError
from mecheval.runs.files import sync

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"  # ending of the file beside the folder
Release = Callable[[], object]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create and lock a folder; StoreError if it is locked. The lock ends with the process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync(folder.parent)
        release = _acquire(folder)
    except OSError as error:
        raise StoreError(f"{folder} cannot be used: {error.strerror}") from error
    try:
        yield
    finally:
        release()


def in_use(folder: Path) -> bool:
    """Tell whether a process has locked the folder."""
    release = _lock_folder(folder, shared=True) if fcntl else _lock_beside(folder, create=False)
    if release:
        release()
    return release is None


def _acquire(folder: Path) -> Release:
    for _ in range(10):  # `in_use` may hold the lock for a moment
        if release := _lock_folder(folder) if fcntl else _lock_beside(folder):
            return release
        time.sleep(0.01)
    raise StoreError(f"{folder} is in use by another process; wait for it or use another folder")


def _lock_folder(folder: Path, shared: bool = False) -> Release | None:
    """Lock a folder and return how to release it, or None if another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        if shared:  # a file system without locks: nobody can have locked it
            return lambda: None
        problem = f"{folder} cannot be locked: {error.strerror}"
        raise StoreError(f"{problem}; use a folder on another file system") from error
    return partial(os.close, descriptor)


def _lock_beside(folder: Path, create: bool = True) -> Release | None:
    """Do as `_lock_folder`, with a file beside the folder, which is removed where that is safe."""
    from filelock import FileLock, Timeout

    if folder.is_symlink() or not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))
    path = folder.with_name(folder.name + LOCK)
    if not create and not path.exists():
        return lambda: None
    lock = FileLock(path, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock.release
