"""Errors written for people, each with the exit code of the command it ends."""

from collections.abc import Iterable


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
    """A run folder that is locked, full, damaged or not ours. Rerun the same command to resume."""

    exit_code = 3


class RunFailed(MechevalError):
    """A run that ended with an error that is not the user's."""


class Interrupted(MechevalError):
    """Ctrl-C was pressed; everything is saved."""

    exit_code = 130


class Paused(Interrupted):
    """Training has reached the step at which it was asked to pause; everything is saved."""


class CheckFailed(MechevalError):
    """A plug-in that breaks its contract; lists every failed check, one line each."""

    def __init__(self, what: str, failures: Iterable[str]) -> None:
        self.failures = tuple(failures)
        super().__init__("\n".join(f"{what}: {failure}" for failure in self.failures))


class InterventionError(MechevalError):
    """An intervention without effect or with values that are not finite: its result is void."""
