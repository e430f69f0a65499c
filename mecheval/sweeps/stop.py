"""Being told to stop: a signal becomes KeyboardInterrupt in the main thread, which no handler of errors takes."""

import signal
from contextlib import AbstractContextManager

from mecheval.runs.signals import on_stop


def interruptible() -> AbstractContextManager[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt."""
    return on_stop(_interrupt)


def _interrupt(number: int) -> None:
    raise KeyboardInterrupt(f"stopped by {signal.Signals(number).name}")
