"""Estimate how many draws of a task are accepted, in plain Python when the task is built."""

from typing import Protocol, runtime_checkable

from mecheval.tasks.philox import Stream, key_of
from mecheval.tasks.reference import Choices, PlainDocument
from mecheval.tasks.splits import Split

PROBES, NEEDED, PROBED_WORDS = 200, 4, 20_000  # as few as decide, in a fraction of a second
FEWEST, MOST_WORDS = 50, 2_000_000  # draws that tell none from a few, if in two seconds


@runtime_checkable
class Rejecting(Protocol):
    """A task some of whose draws are rejected."""

    @property
    def key(self) -> str: ...

    def reference(self, rng: Choices, split: Split) -> PlainDocument | None:
        """Attempt one document in plain Python."""
        ...


def acceptance(task: Rejecting) -> float:
    """Return the share of draws that gave a document, until there are a few."""
    key, accepted, drawn, words = key_of(task.key, "probe"), 0, 0, 0
    while accepted < NEEDED and drawn < PROBES:
        told = accepted or drawn >= FEWEST or words >= MOST_WORDS
        if words >= PROBED_WORDS and told:
            break
        rng = Stream(key, drawn)
        accepted += task.reference(rng, "train") is not None
        drawn, words = drawn + 1, words + rng.drawn
    return accepted / drawn
