"""The death of a process, as far as a test within one can play it."""

from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """The end of a process: nothing of ours handles it."""


def dying(step: Callable[..., Any], when: str) -> Callable[..., Any]:
    """The step, at which the process dies: `before` it is done, or `after`."""

    def run(*arguments: Any, **options: Any) -> Any:
        if when == "after":
            step(*arguments, **options)
        raise Killed

    return run
