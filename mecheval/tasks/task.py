"""The interface of a task: a frozen configuration from which any document can be drawn."""

from typing import Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from mecheval.core.errors import InvalidInput
from mecheval.core.options import options_of, validate
from mecheval.core.spec import Spec
from mecheval.tasks.corruption import Kind, Role, Seed
from mecheval.tasks.documents import Corrupted, Documents
from mecheval.tasks.splits import Split

MAX_ATTEMPTS = 10_000
SPLITS: tuple[Split, ...] = get_args(Split)


@runtime_checkable
class Task(Protocol):
    """A frozen dataclass whose fields are its options; `check_task` validates one."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_len(self) -> int: ...

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        """Draw documents start … stop−1; each depends on (task, seed, split, its number) alone."""
        ...

    def corrupt(
        self, docs: Documents, role: Role, seed: Seed = 0, kind: Kind = "resample"
    ) -> Corrupted:
        """Corrupt the token at a role and recompute the answers."""
        ...

    def word(self, token: int) -> str:
        """Return a token as people read it."""
        ...


def spec_of(name: str, task: object) -> Spec:
    """Return the spec of a task without its defaults, so that a new option renames no old task."""
    options = options_of(type(task))
    values = {name: getattr(task, name) for name in options}
    return Spec(name, {n: value for n, value in values.items() if value != options[n].default})


def numbers(seed: Seed, split: Split, start: int, stop: int) -> Int64[ndarray, " n"]:
    """Return the numbers of the documents start … stop−1 after validating the request."""
    validate(numbers, {"seed": seed, "split": split, "start": start, "stop": stop})
    if not 0 <= start <= stop < 2**62:
        raise InvalidInput(f"documents {start} to {stop} must be 0 ≤ start ≤ stop")
    return np.arange(start, stop, dtype=np.int64)
