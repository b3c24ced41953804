"""Ctrl-C where Python, or what it runs, would drop it: while modules are imported that are written in C, and in the ends of objects.

Some such modules drop whatever is raised while they are made (Cython's views of memory do, and so pandas, pyarrow and numpy), and Python
drops what is raised in `__del__`: an interrupt that comes then is lost, and the command goes on as if nobody had asked it to end. So it
waits for their end.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def late_interrupts() -> Iterator[None]:
    """An interrupt (SIGINT, SIGTERM) that comes within the `with` is raised at its end, by whoever handled it before."""
    if threading.current_thread() is not threading.main_thread():
        yield  # interrupts are raised in the main thread alone
        return
    came: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)
        for number in came[:1]:
            signal.raise_signal(number)
