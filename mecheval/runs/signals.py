"""Requests to stop, by Ctrl-C or by SIGTERM."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def on_stop(handler: Callable[[int], object]) -> Iterator[None]:
    """Call `handler` with the number of a stop signal. Only the main thread can receive signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        handler(number)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
