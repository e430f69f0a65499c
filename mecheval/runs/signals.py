"""Requests to stop: Ctrl-C, SIGTERM, or SIGHUP when the terminal is closed."""

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none


@contextmanager
def on_stop(handler: Callable[[int], object]) -> Iterator[None]:
    """Call `handler` with the number of a stop signal. Only the main thread can receive signals.

    Where SIGHUP is ignored, as under `nohup`, it stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        handler(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) is not signal.SIG_IGN:
        numbers.append(HANGUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def stop_self() -> None:
    """Ask the main thread of this process to stop, from any thread."""
    if os.name == "nt":  # where `os.kill` ends a process at once
        _thread.interrupt_main(signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGTERM)
