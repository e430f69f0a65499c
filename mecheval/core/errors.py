"""Errors written for people, each with the exit code of the command it ends."""

import errno
import signal
from collections.abc import Iterable

EXIT_CODES = {  # every code of every command; docs/resume.md has the same table
    0: "done, or diverged, which is a result",
    1: "a run failed, a check failed, or damaged runs were left out",
    2: "bad input; nothing was written",
    3: "a place cannot be read or written: locked, full, read-only, damaged or another's",
    129: "stopped because the terminal was closed (SIGHUP); everything is saved",
    130: "stopped by Ctrl-C or SIGTERM; everything is saved",
}
_NO_MEMORY = (  # how torch, the dynamic loader and numba say it
    *("not enough memory", "cannot allocate memory", "can't allocate memory", "out of memory"),
    *("failed to map segment from shared object", "std::bad_alloc", "unable to allocate"),
)


class MechevalError(Exception):
    """An error that is reported in one line, without a traceback."""

    exit_code = 1


class InvalidInput(MechevalError):
    """Invalid user input; lists every problem, one line each. Nothing was written."""

    exit_code = 2

    def __init__(self, problems: str | Iterable[str]) -> None:
        lines = (problems,) if isinstance(problems, str) else problems
        self.problems = tuple(" ".join(line.splitlines()) for line in lines)
        super().__init__("\n".join(self.problems))

    def within(self, place: str) -> "InvalidInput":
        """Return the same problems, each line prefixed with the place they are in."""
        return InvalidInput(f"{place}: {problem}" for problem in self.problems)


class StoreError(MechevalError):
    """A place that is locked, full, read-only, damaged or not ours. Rerun the command to resume."""

    exit_code = 3


class RunFailed(MechevalError):
    """A run that ended with an error that is not the user's."""


class DamagedRuns(MechevalError):
    """Damaged runs were left out of an answer that is complete for all others."""


class DamagedRunWarning(UserWarning):
    """Names a damaged run, which no table of measurements has."""


class Interrupted(MechevalError):
    """A signal asked to stop; everything is saved."""

    exit_code = 130

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        if number == getattr(signal, "SIGHUP", None):
            self.exit_code = 129


class CheckFailed(MechevalError):
    """A plug-in that breaks its contract; lists every failed check, one line each."""

    def __init__(self, what: str, failures: Iterable[str]) -> None:
        self.failures = tuple(failures)
        super().__init__("\n".join(f"{what}: {failure}" for failure in self.failures))


class InterventionError(MechevalError):
    """An intervention without effect or with values that are not finite: its result is void."""


def expected(error: BaseException) -> tuple[str, int] | None:
    """Return the message and the exit code of an error that is no fault of this package."""
    if isinstance(error, MechevalError):
        return str(error), error.exit_code
    if is_out_of_memory(error):
        return describe_error(error), MechevalError.exit_code
    if isinstance(error, BrokenPipeError):  # the reader of the output is gone: nothing to say
        return "", MechevalError.exit_code
    if isinstance(error, OSError):
        place = error.filename or "a file"
        return f"{place} cannot be used: {error.strerror or error}", StoreError.exit_code
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object[:60]!r} is not valid UTF-8; rename it", InvalidInput.exit_code
    if not isinstance(error, Exception):
        return f"a plug-in raised {describe_error(error)}", MechevalError.exit_code
    return None


def describe_error(error: BaseException) -> str:
    """Return the type and message of an unexpected error; say it if memory ran out."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if is_out_of_memory(error):
        return f"out of memory ({text}); reduce train.batch or model.d_model"
    return text


def is_out_of_memory(error: BaseException | None) -> bool:
    """Tell if memory ran out, also where a library could not be loaded for want of it."""
    while error is not None:
        text = str(error).lower()
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        if any(words in text for words in _NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False
