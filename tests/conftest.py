"""Switches on the shape and type checks of every annotation, before anything of mecheval is imported."""

from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

PACKAGE = Path(__file__).parents[1] / "mecheval"


def checked_modules() -> list[str]:
    """All but the compiled ones: numba cannot compile a function that is wrapped."""
    files = [file.relative_to(PACKAGE.parent) for file in PACKAGE.rglob("*.py") if "kernels" not in file.parts]
    # a package would bring all that is below it, so its modules are named one by one
    return [".".join(file.with_suffix("").parts) for file in files if file.name != "__init__.py"]


import support.typecheck  # noqa: E402, F401

install_import_hook(checked_modules(), "support.typecheck.checked")


@pytest.fixture
def own_names(monkeypatch):
    """What a test registers is gone after it."""
    from mecheval.models.registries import mixers, models
    from mecheval.sweeps.recipe import recipes
    from mecheval.tasks import tasks

    for registry in (tasks, mixers, models, recipes):
        registry.names()
        monkeypatch.setattr(registry, "_targets", dict(registry._targets))


@pytest.fixture(autouse=True)
def no_file_was_loaded(monkeypatch):
    """A process remembers the files it has run, and workers that have not run them refuse: each test begins anew."""
    from mecheval import plugins

    monkeypatch.setattr(plugins, "_checksums", {})
