"""The cards that several tests read."""

from support.card_runs import of, shelf  # noqa: F401
