"""Errors a person reads, each with the exit code of the command it ends."""

from collections.abc import Iterable


class MechevalError(Exception):
    """Something went wrong that is worth one line, not a traceback."""

    exit_code = 1


class InvalidInput(MechevalError):
    """The input cannot be meant: one line for each wrong field, all at once. Nothing was written."""

    exit_code = 2

    def __init__(self, problems: str | Iterable[str]) -> None:
        lines = (problems,) if isinstance(problems, str) else problems
        self.problems = tuple(" ".join(line.splitlines()) for line in lines)  # whatever was typed, a line is a line
        super().__init__("\n".join(self.problems))

    def within(self, place: str) -> "InvalidInput":
        """The same problems, each line opening with where they are."""
        return InvalidInput(f"{place}: {problem}" for problem in self.problems)


class StoreError(MechevalError):
    """A run folder cannot be used now: locked, full, broken or another's. Nothing is lost; the same command goes on."""

    exit_code = 3


class RunFailed(MechevalError):
    """A run came to an end by an error that is not the user's."""


class Interrupted(MechevalError):
    """Ctrl-C: everything is saved."""

    exit_code = 130


class CheckFailed(MechevalError):
    """A plug-in does not keep its contract: one line for each broken promise."""

    def __init__(self, what: str, failures: Iterable[str]) -> None:
        self.failures = tuple(failures)
        super().__init__("\n".join(f"{what}: {failure}" for failure in self.failures))


class InterventionError(MechevalError):
    """An intervention had no effect or gave numbers that are not finite; its result would mean nothing."""
