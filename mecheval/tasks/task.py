"""What every task is: a frozen configuration from which document i can be drawn at any time."""

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
    """A frozen dataclass whose fields are its options. `check_task` examines one."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_len(self) -> int: ...

    def documents(self, seed: Seed, split: Split, start: int, stop: int) -> Documents:
        """Documents start … stop−1. Each depends on (task, seed, split, its number) alone."""
        ...

    def corrupt(self, docs: Documents, role: Role, seed: Seed, kind: Kind = "resample") -> Corrupted: ...

    def word(self, token: int) -> str:
        """A token as people read it."""
        ...


def spec_of(name: str, task: object) -> Spec:
    """The task as text, without what is left at its default: a new option with a default renames no old task."""
    options = options_of(type(task)).values()
    return Spec(name, {o.name: getattr(task, o.name) for o in options if getattr(task, o.name) != o.default})


def numbers(seed: Seed, split: Split, start: int, stop: int) -> Int64[ndarray, " n"]:
    """The documents asked for, as an array; refuses what names no documents."""
    validate(numbers, {"seed": seed, "split": split, "start": start, "stop": stop})
    if not 0 <= start <= stop < 2**62:
        raise InvalidInput(f"documents {start} to {stop} must be 0 ≤ start ≤ stop")
    return np.arange(start, stop, dtype=np.int64)
