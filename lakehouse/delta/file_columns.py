"""The files of a table, as one object per file or as columns of many files."""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat
from operator import eq, itemgetter
from typing import Any, Generic, Protocol, TypeVar, cast, overload

_BUILT_AT_ONCE = 4096
_NO_VECTOR = (None, 0)

Item = TypeVar("Item")
PartitionValues = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data file of a table, as its `add` action describes it.

    Source: PROTOCOL.md, "Add File and Remove File".

    - `path`: relative to the table, URL-encoded.
    - `partition`: pairs of column and value as the log spells them, in the order of the table's
      partition columns.
    - `row_count`: physical rows; `None` if the log has no statistics.
    - `compacted`: whether a commit without data change wrote the file. False if that is unknown.
    """

    path: str
    size_bytes: int
    modified_ms: int
    partition: PartitionValues = ()
    row_count: int | None = None
    deletion_vector: str | None = None
    deleted_row_count: int = 0
    compacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """A removed file that may still be stored. Size and time are `None` if unknown."""

    path: str
    deleted_ms: int | None = None
    size_bytes: int | None = None


class Columns(Protocol[Item]):
    """Values of one kind, kept as one column per field."""

    def build(self, places: Sequence[int]) -> list[Item]:
        """Builds the values at these indices of the columns."""
        ...


class Rows(Sequence[Item], Generic[Item]):
    """A sequence of values that are stored in columns and built as objects on access.

    Ten million files take 3.5 GB as objects, and 1.3 GB as columns. `places` are the indices of the
    values in the columns. A slice shares the columns. The first iteration keeps the objects in
    memory, so that later iterations are faster.
    """

    __slots__ = ("_objects", "columns", "places")

    def __init__(self, columns: Columns[Item], places: Sequence[int]) -> None:
        self.columns = columns
        self.places = places
        self._objects: Sequence[Item] = ()

    @property
    def has_objects(self) -> bool:
        """Whether the objects are in memory."""
        return bool(self._objects)

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> "Rows[Item]": ...
    def __getitem__(self, place: int | slice) -> "Item | Rows[Item]":
        if isinstance(place, slice):
            return Rows(self.columns, self.places[place])
        return self.columns.build([self.places[place]])[0]

    def __iter__(self) -> Iterator[Item]:
        if not self._objects:
            starts = range(0, len(self.places), _BUILT_AT_ONCE)
            batches = (self.places[start : start + _BUILT_AT_ONCE] for start in starts)
            self._objects = tuple(chain.from_iterable(map(self.columns.build, batches)))
        return iter(self._objects)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        others = cast("Sequence[object]", other)
        return len(self) == len(others) and all(map(eq, self, others))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])


@dataclass(slots=True)
class Texts:
    """Concatenated texts in UTF-8. Text `n` is `data[bounds[n] : bounds[n + 1]]`."""

    data: bytearray = field(default_factory=bytearray)
    bounds: "array[int]" = field(default_factory=lambda: array("q", [0]))

    def append(self, text: str) -> None:
        """Adds a text."""
        self.data += text.encode(errors="surrogatepass")
        self.bounds.append(len(self.data))

    def __getitem__(self, place: int) -> str:
        text = self.data[self.bounds[place] : self.bounds[place + 1]]
        return text.decode(errors="surrogatepass")

    def at(self, places: Sequence[int]) -> list[str]:
        """The texts at these places."""
        bounds = self.bounds
        if _is_span(places):
            ends = bounds[places[0] : places[-1] + 2]
            begin = ends[0]
            text = str(self.data[begin : ends[-1]], "utf-8", "surrogatepass")
            # In ASCII text, the positions of bytes are also the positions of characters.
            if text.isascii():
                return [text[low - begin : high - begin] for low, high in pairwise(ends)]
        data = self.data
        return [
            data[bounds[place] : bounds[place + 1]].decode("utf-8", "surrogatepass")
            for place in places
        ]


def _is_span(places: Sequence[int]) -> bool:
    """Whether a range or an array has all places from first to last; false for other types."""
    if not places or places[-1] - places[0] + 1 != len(places):
        return False
    span = range(places[0], places[-1] + 1)
    return places == (array("q", span) if isinstance(places, array) else span)


def _picked(column: Sequence[Any], places: Sequence[int]) -> Iterable[Any]:
    """The values of a column at these places."""
    if isinstance(places, range) and places and places.step == 1:
        return column[places[0] : places[-1] + 1]
    return map(column.__getitem__, places)


def int_column() -> "array[int]":
    """An empty column of 64-bit integers. A negative size, time or row count means unknown."""
    return array("q")


@dataclass(slots=True, kw_only=True)
class FileColumns:
    """The columns of `DataFile`. `partitions[partition[n]]` is the partition of the n-th file.

    `vectors` maps the index of a file to the id of its deletion vector and the deleted row count.
    `compacted` holds the indices of the files whose `DataFile.compacted` is true.
    """

    path: Texts = field(default_factory=Texts)
    size_bytes: "array[int]" = field(default_factory=int_column)
    modified_ms: "array[int]" = field(default_factory=int_column)
    row_count: "array[int]" = field(default_factory=int_column)
    partition: "array[int]" = field(default_factory=lambda: array("I"))
    partitions: Sequence[PartitionValues] = ()
    vectors: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    compacted: set[int] = field(default_factory=set[int])

    def build(self, places: Sequence[int]) -> list[DataFile]:
        """See `Columns.build`."""
        # For a range, `_picked` slices a column, which is faster than single accesses.
        if _is_span(places):
            places = range(places[0], places[-1] + 1)
        vectors = [*map(self.vectors.get, places, repeat(_NO_VECTOR))]
        return made_of_columns(
            DataFile,
            len(places),
            path=self.path.at(places),
            size_bytes=_picked(self.size_bytes, places),
            modified_ms=_picked(self.modified_ms, places),
            partition=map(self.partitions.__getitem__, _picked(self.partition, places)),
            row_count=_known(self.row_count, places),
            deletion_vector=map(itemgetter(0), vectors),
            deleted_row_count=map(itemgetter(1), vectors),
            compacted=map(self.compacted.__contains__, places),
        )


@dataclass(slots=True, kw_only=True)
class TombstoneColumns:
    """The columns of `Tombstone`. `vectors` maps indices to the ids of deletion vectors."""

    path: Texts = field(default_factory=Texts)
    deleted_ms: "array[int]" = field(default_factory=int_column)
    size_bytes: "array[int]" = field(default_factory=int_column)
    vectors: dict[int, str] = field(default_factory=dict[int, str])

    def build(self, places: Sequence[int]) -> list[Tombstone]:
        """See `Columns.build`."""
        return made_of_columns(
            Tombstone,
            len(places),
            path=self.path.at(places),
            deleted_ms=_known(self.deleted_ms, places),
            size_bytes=_known(self.size_bytes, places),
        )


def _known(column: "array[int]", places: Sequence[int]) -> Sequence[int | None]:
    """The values of a column at these places; `None` for a negative number."""
    numbers = [*_picked(column, places)]
    if min(numbers, default=0) >= 0:
        return numbers
    return [None if number < 0 else number for number in numbers]


def made_of_columns(kind: type[Item], count: int, **columns: Iterable[object]) -> list[Item]:
    """`count` values of a dataclass, with each field taken from its column.

    The class must have slots and no `__post_init__`, and every field must be given. The result
    equals `[kind(a=a, b=b) for a, b in zip(...)]`, but takes a third of the time, because the
    constructor of a frozen dataclass calls a function for each field.
    """
    assert columns.keys() == set(kind.__slots__)  # type: ignore[attr-defined]
    assert not hasattr(kind, "__post_init__")
    values = list(map(object.__new__, repeat(kind, count)))
    for name, column in columns.items():
        put: Callable[[Item, object], None] = getattr(kind, name).__set__
        deque(map(put, values, column), maxlen=0)  # calls `put` for each value; faster than a loop
    return values


def columns_of(files: Sequence[DataFile]) -> FileColumns | None:
    """The columns of the files; `None` if the files have no columns, or are in memory as objects.

    Objects are faster.
    """
    if not isinstance(files, Rows) or files.has_objects:
        return None
    return cast("FileColumns", files.columns)


def places_of(files: Sequence[DataFile]) -> Sequence[int]:
    """The indices of files in the columns that `columns_of` returned for them."""
    return cast("Rows[DataFile]", files).places
