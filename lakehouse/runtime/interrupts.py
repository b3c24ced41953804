"""Delays Ctrl-C during code that would swallow it.

Cython modules (pandas, pyarrow, numpy) drop exceptions that are raised during their import, and
Python drops exceptions in `__del__`. The command would then continue as if Ctrl-C had not been
pressed.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def late_interrupts() -> Iterator[None]:
    """Delays SIGINT and SIGTERM until the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python raises interrupts in the main thread only
        return
    received: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
        for number in received[:1]:
            signal.raise_signal(number)
