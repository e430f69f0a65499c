"""A place for what numba compiles, where it can write neither to the package nor to the home."""

import atexit
import os
import shutil
import tempfile


def ensure_cache() -> None:
    """Give numba a private temporary folder if it has no other; workers inherit it.

    Only this user can write to the folder: numba runs what it finds there.
    """
    import numba

    try:
        numba.njit(cache=True)(_probe)
    except RuntimeError:  # numba: cannot cache function …: no locator available
        folder = tempfile.mkdtemp(prefix="mecheval-numba-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["NUMBA_CACHE_DIR"] = folder
        numba.config.CACHE_DIR = folder  # type: ignore[attr-defined]


def _probe() -> None: ...
