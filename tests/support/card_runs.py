"""Third-party files and cards for tests, at a scale at which nothing is learned."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from mecheval import Card, card
from mecheval.core import plugin_files
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
    """Records the names of the runs that it starts."""

    started: list[str] = []  # noqa: RUF012, shared by all instances

    def start(self, job):
        self.started.append(job.name)
        super().start(job)


@contextmanager
def alone() -> Iterator[list[str]]:
    """Behave as a fresh process whose workers run in it; yield the names of the runs they start."""
    with pytest.MonkeyPatch.context() as patch:
        for registry in (tasks, mixers, models):
            registry.names()
            patch.setattr(registry, "_targets", dict(registry._targets))
        patch.setattr(plugin_files, "_checksums", {})
        patch.setattr(Counted, "started", [])
        patch.setattr("mecheval.sweeps.local.Local", Counted)
        yield Counted.started


def made(subject, out, scale=MICRO) -> tuple[Card, list[str]]:
    """Make a card; return it with the names of the runs that were trained."""
    with alone() as started:
        return card(subject, scale, out, workers=1), list(started)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """Return the folder of all cards."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="session")
def of(shelf):
    """Return a function that makes the card of a third-party mixer or of any named one, once."""

    @cache
    def named(name):
        return made(f"{THIRD_PARTY / SOUND[name]}:{name}" if name in SOUND else name, shelf)[0]

    return named
