"""What the tests of cards share: strangers' files, and cards at a scale at which nothing is learned."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mecheval import Card, card, plugins
from mecheval.models.registries import mixers, models
from mecheval.tasks import tasks
from support.sweep_runs import Inline
from support.tiny_scale import MICRO

THIRD_PARTY = Path(__file__).parents[1] / "cards" / "third_party"
MEAN = f"{THIRD_PARTY / 'bad.py'}:Mean"
SOUND = {
    "GatedRecurrence": "gated.py",
    "Window": "window.py",
    "Lstm": "lstm.py",
    "Private": "private.py",
    "Hybrid": "hybrid.py",
}


class Counted(Inline):
    """Counts what it is given to do."""

    started: list[str] = []  # noqa: RUF012, of all of them together

    def start(self, job):
        self.started.append(job.name)
        super().start(job)


@contextmanager
def alone() -> Iterator[list[str]]:
    """As in a process of its own, with workers that work in it; yields the names of what they begin."""
    with pytest.MonkeyPatch.context() as patch:
        for registry in (tasks, mixers, models):
            registry.names()
            patch.setattr(registry, "_targets", dict(registry._targets))
        patch.setattr(plugins, "_checksums", {})
        patch.setattr(Counted, "started", [])
        patch.setattr("mecheval.sweeps.local.Local", Counted)
        yield Counted.started


def made(subject, out, scale=MICRO) -> tuple[Card, list[str]]:
    """A card, and the runs that it took."""
    with alone() as started:
        return card(subject, scale, out, workers=1), list(started)
