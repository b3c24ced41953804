"""Random numbers by name: the same name and purpose always draw the same number."""

from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 2013
_WIDTH = 40
# Constants of splitmix64 (S. Vigna, public domain).
_STEP, _FIRST, _SECOND = (
    numpy.uint64(constant)
    for constant in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def draw(names: "NDArray[Any]", purpose: str) -> "NDArray[numpy.int64]":
    """A number from 0 to 2^62 - 1 per name (at most 40 ASCII bytes), independent per purpose."""
    padded = numpy.ascontiguousarray(names, dtype=f"S{_WIDTH}")
    if names.dtype.itemsize > _WIDTH:
        raise ValueError(f"names have up to {names.dtype.itemsize} bytes. Use at most {_WIDTH}.")
    state = numpy.full(len(names), crc32(f"{SEED} {purpose}".encode()), dtype=numpy.uint64)
    for word in padded.view("<u8").reshape(len(names), _WIDTH // 8).T:
        state = _mixed(state ^ word)
    return (state >> numpy.uint64(2)).astype(numpy.int64)


def _mixed(state: "NDArray[numpy.uint64]") -> "NDArray[numpy.uint64]":
    state = state + _STEP
    state = (state ^ (state >> numpy.uint64(30))) * _FIRST
    state = (state ^ (state >> numpy.uint64(27))) * _SECOND
    return state ^ (state >> numpy.uint64(31))
