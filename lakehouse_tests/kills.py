"""The death of a process, as far as a test within one can play it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
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


WRITES = ("put", "put_if_absent", "copy", "delete", "delete_each")


class DyingStore:
    """A store whose process dies before, or after, the n-th write from now on."""

    def __init__(self, store: Any, write: int, when: str) -> None:
        self._store, self._left, self._when = store, write, when
        self.has_died = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in WRITES:
            return real

        def write(*arguments: Any, **options: Any) -> Any:
            if self.has_died:
                raise Killed
            self._left -= 1
            self.has_died = self._left == 0
            if self.has_died and self._when == "before":
                raise Killed
            result = real(*arguments, **options)
            if self.has_died:
                raise Killed
            return result

        return write


def dies_before_and_after_every_write(
    begin: Callable[[], Any], operation: Callable[[Any], Any]
) -> Iterator[Any]:
    """Yields a lake in which `operation` died, for each of its writes and each moment.

    `begin` makes a new lake each time. Ends when the operation has no further write.
    """
    write = 0
    while True:
        write += 1
        for when in ("before", "after"):
            lake = begin()
            dying_store = DyingStore(lake.store, write, when)
            try:
                operation(replace(lake, store=dying_store))
            except Killed:
                yield lake
            if not dying_store.has_died:
                assert write > 1, "the operation has written nothing"
                return
