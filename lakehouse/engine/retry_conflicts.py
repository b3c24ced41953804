"""Repeats an operation whose commit conflicted with the commit of another writer."""

from collections.abc import Callable
from typing import TypeVar

from lakehouse.engine.clock import pause_about
from lakehouse.engine.spark.errors import is_conflict

_BACKOFF_SECONDS = (0.2, 0.8, 2.0)
_MOST_TRIES = len(_BACKOFF_SECONDS) + 1

T = TypeVar("T")


def retry_conflicts(work: Callable[[], T], *, tries: int = _MOST_TRIES) -> T:
    """The result of `work`, which is called again after a conflict, up to `tries` times in all.

    Callers may ask for fewer `tries`, as compactions do. Each call must read its facts again. The
    last conflict is raised unchanged. The caller turns it into one of our errors with
    `spark.errors.translated`.
    """
    for seconds in _BACKOFF_SECONDS[: tries - 1]:
        try:
            return work()
        except Exception as error:
            if not is_conflict(error):
                raise
        pause_about(seconds)  # lets the other writer finish
    return work()
