"""A shelf of cards, made once."""

from functools import cache

import pytest
from support.card_runs import SOUND, THIRD_PARTY, made


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """Where the cards are."""
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="session")
def of(shelf):
    """The card of a stranger, or of whatever a text names."""

    @cache
    def named(name):
        return made(f"{THIRD_PARTY / SOUND[name]}:{name}" if name in SOUND else name, shelf)[0]

    return named
