"""Cards that several tests read, each made once."""

from functools import cache

import pytest
from support.card_runs import SOUND, THIRD_PARTY, made


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """Return the folder of all cards."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="session")
def of(shelf):
    """Return a function that makes the card of a third-party mixer or of any named one."""

    @cache
    def named(name):
        return made(f"{THIRD_PARTY / SOUND[name]}:{name}" if name in SOUND else name, shelf)[0]

    return named
