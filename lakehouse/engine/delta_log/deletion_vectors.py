"""The rows that deletion vectors hide, as the files of the vectors tell them.

Source: PROTOCOL.md, "Deletion Vector Format" and "Deletion Vector File Storage Format".
"""

import zlib
from collections.abc import Iterable, Mapping

import numpy as np
from pyroaring import BitMap64

from lakehouse.core.delta.deletion_vectors import vector_offset, vector_path
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.delta.snapshot import DataFile
from lakehouse.core.errors import Broken, Refused
from lakehouse.engine.store import Store

type_of_places = np.ndarray[tuple[int], np.dtype[np.uint64]]

_VERSION = b"\x01"
_MAGIC = (1681511377).to_bytes(4, "little")  # a bitmap follows in the portable format of 64 bits
_WORD = 4


def hidden_rows(
    store: Store, table: str, files: Iterable[DataFile]
) -> Mapping[str, type_of_places]:
    """For the id of each deletion vector of these files the places of the rows that it hides, counted from 0, sorted.

    Raises:
        Refused: a vector stands in the log itself or outside the table's folder, or the log does not tell where in its file.
        Broken: a vector is damaged, or hides another number of rows than the log says.
    """
    counts = {
        file.deletion_vector: file.deleted_row_count
        for file in files
        if file.deletion_vector is not None
    }
    vectors_of: dict[str, list[tuple[str, int]]] = {}
    for vector in counts:
        path, offset = vector_path(vector), vector_offset(vector)
        name = None if path is None else name_in_table(path)
        if name is None or offset is None:
            raise Refused(
                f"{table}: deletion vector {vector} has no place in a file of the table's folder, and cannot be read here"
            )
        vectors_of.setdefault(f"{table}/{name}", []).append((vector, offset))
    hidden: dict[str, type_of_places] = {}
    for content, vectors in zip(
        store.read_many(list(vectors_of)), vectors_of.values(), strict=True
    ):
        for vector, offset in vectors:
            places = _places(content, offset, counts[vector])
            if places is None:
                raise Broken(f"{table}: deletion vector {vector} is damaged: restore its file")
            hidden[vector] = places
    return hidden


def _places(content: bytes, offset: int, count: int) -> type_of_places | None:
    """The places that the vector at `offset` hides; `None` where it is damaged, or hides another number of rows than `count`."""
    start = offset + _WORD
    end = start + int.from_bytes(content[offset:start], "big")
    data = content[start:end]
    if not content.startswith(_VERSION) or not data.startswith(_MAGIC):
        return None
    if zlib.crc32(data) != int.from_bytes(content[end : end + _WORD], "big"):
        return None
    bitmap = BitMap64.deserialize(data.removeprefix(_MAGIC))
    return np.asarray(bitmap.to_array(), np.uint64) if len(bitmap) == count else None
