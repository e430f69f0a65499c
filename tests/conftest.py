"""Checks the shapes and types of every annotation; set up before mecheval is imported."""

from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

PACKAGE = Path(__file__).parents[1] / "mecheval"


def checked_modules() -> list[str]:
    """Return all modules but the kernels: numba cannot compile a wrapped function."""
    # a package would bring all that is below it, so its modules are named one by one
    files = [file for file in PACKAGE.rglob("*.py") if file.name != "__init__.py"]
    paths = [file.relative_to(PACKAGE.parent) for file in files if "kernels" not in file.parts]
    return [".".join(path.with_suffix("").parts) for path in paths]


import support.typecheck  # noqa: E402, F401

install_import_hook(checked_modules(), "support.typecheck.checked")


@pytest.fixture
def own_names(monkeypatch):
    """Remove after the test what it registers."""
    from mecheval.metrics.registry import metrics
    from mecheval.models.registries import mixers, models
    from mecheval.runs.loggers import loggers
    from mecheval.sweeps.recipe import recipes
    from mecheval.tasks import tasks
    from mecheval.tasks.corruption import corruptions

    for registry in (tasks, mixers, models, metrics, loggers, recipes, corruptions):
        registry.names()
        monkeypatch.setattr(registry, "_targets", dict(registry._targets))


@pytest.fixture(autouse=True)
def no_file_was_loaded(monkeypatch):
    """Begin each test without loaded plug-in files, since workers refuse runs made with others."""
    from mecheval import plugins
    from mecheval.core import plugin_files

    monkeypatch.setattr(plugin_files, "_checksums", {})
    monkeypatch.setattr(plugins, "_defined", {})
