"""The death of a process, as far as a test within one can play it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Killed(BaseException):
    """The end of a process: nothing of ours handles it."""


def dying(step: Callable[..., Any], when: str) -> Callable[..., Any]:
    """The step, at which the process dies: `before` it is done, or `after`."""

    def run(*arguments: Any, **options: Any) -> Any:
        if when == "after":
            step(*arguments, **options)
        raise Killed

    return run


@contextmanager
def killed_at(owner: Any, name: str, when: str) -> Iterator[None]:
    """A process that dies `before` or `after` this step of its; what is done in the block comes to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, dying(getattr(owner, name), when))
        with pytest.raises(Killed):
            yield
