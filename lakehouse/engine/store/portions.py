"""Files in portions, of which one is in memory at once."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.ingest.batches import LandedFile

_F = TypeVar("_F", DataFile, LandedFile)


def in_portions(
    files: Iterable[_F], *, most_bytes: int, most_files: int | None = None
) -> Iterator[list[_F]]:
    """The files in their order, by so many bytes and files at most; one that is larger is a portion
    of its own.
    """
    portion, size_bytes = list[_F](), 0
    for file in files:
        if portion and (size_bytes + file.size_bytes > most_bytes or len(portion) == most_files):
            yield portion
            portion, size_bytes = [], 0
        portion.append(file)
        size_bytes += file.size_bytes
    if portion:
        yield portion
