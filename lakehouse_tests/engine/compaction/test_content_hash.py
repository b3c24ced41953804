"""Sums of what data files hold: the same for the same rows however they are stored, another one for other rows."""

import io
import zlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from random import Random
from threading import Event
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakehouse.core.compaction.bins import Bin
from lakehouse.core.delta.snapshot import Column, DataFile, LogTail, Snapshot
from lakehouse.engine.compaction import content_hash
from lakehouse.engine.compaction.content_hash import ReadAhead, sums_of
from lakehouse_tests.memory_store import MemoryStore

STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integer": (pa.int64(), [0, 1, -1, 2**53, 2**53 + 1, None]),
    "short": (pa.int16(), [0, 1, -1, None]),
    "double": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf"), None]),
    "text": (
        pa.string(),
        ["", "None", "nan", "0", "é", "\x00", "a", "a\x00", "a\x00b", "a\x00c", None],
    ),
    "bytes": (pa.binary(), [b"", b"\x00", b"\x00\x00", None]),
    "truth": (pa.bool_(), [True, False, None]),
    "date": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(2026, 1, 1), None]),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), None],
    ),
    "decimal": (
        pa.decimal128(20, 2),
        [Decimal("0.00"), Decimal("-0.01"), Decimal("123456789012345678.90"), None],
    ),
    "list": (pa.list_(pa.int64()), [[], [None], [0], [1, 2], [2, 1], [1], None]),
    "struct": (STRUCT, [{"x": 1, "y": "a"}, {"x": None, "y": "a"}, {"x": None, "y": None}, None]),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        [[], [("a", 1)], [("a", None)], [("b", 1)], [("a", 1), ("b", 1)], None],
    ),
    "lists of structs": (
        pa.list_(STRUCT),
        [[], [None], [{"x": 1, "y": "a"}], [{"x": 1, "y": "a"}, {"x": 2, "y": "a"}], None],
    ),
}
VECTOR_FILE = f"bronze/t/deletion_vector_{UUID(int=0)}.bin"
kinds = pytest.mark.parametrize("kind", KINDS)


def sums(*files: pa.Table | bytes, **given: Any) -> Any:
    return sums_of(*stored(*files, **given))


def stored(
    *files: pa.Table | bytes,
    partitions: list[str] | None = None,
    features: frozenset[str] = frozenset(),
    **facts: Any,
) -> tuple[MemoryStore, Snapshot, list[DataFile]]:
    store, listed = MemoryStore(), list[DataFile]()
    for number, file in enumerate(files):
        data = file if isinstance(file, bytes) else _parquet(file)
        store.put(f"bronze/t/{number}%.parquet", data)
        partition = (("part", partitions[number]),) if partitions else ()
        of_file = {
            "path": f"{number}%25.parquet",
            "size_bytes": len(data),
            "modified_ms": 0,
            "partition": partition,
            **facts,
        }
        listed.append(DataFile(**of_file))
    log = LogTail(checkpoint_version=None, commit_count=0, commit_bytes=0)
    columns = (Column(name="part", type="int"),)
    snapshot = Snapshot(
        table="bronze/t",
        uri="/bronze/t",
        version=0,
        committed_ms=0,
        files=(),
        log=log,
        columns=columns,
        features=features,
    )
    return store, snapshot, listed


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def table(kind: str, values: list[Any]) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(len(values)), pa.int64()), "value": pa.array(values, KINDS[kind][0])}
    )


@kinds
def test_the_same_rows_in_another_order_and_in_other_files_have_the_same_sum(kind: str) -> None:
    rows = table(kind, KINDS[kind][1] * 3)
    again = rows.take([*reversed(range(len(rows)))])
    assert sums(rows) == sums(again.slice(0, 2), again.slice(2), again.slice(0, 0))
    assert sums(rows)[()][0] == len(rows)


@kinds
def test_another_value_in_one_row_has_another_sum(kind: str) -> None:
    values = KINDS[kind][1]
    different = {sums(table(kind, [value, values[0]]))[()] for value in values}
    assert len(different) == len(values)


@kinds
def test_a_value_that_takes_the_place_of_another_has_another_sum(kind: str) -> None:
    values = KINDS[kind][1]
    for one, other in pairwise(values):
        assert sums(table(kind, [one, other])) != sums(table(kind, [one, one]))


@kinds
def test_values_that_change_places_have_another_sum(kind: str) -> None:
    first, second = KINDS[kind][1][:2]
    assert sums(table(kind, [first, second])) != sums(table(kind, [second, first]))


def test_a_column_that_older_files_lack_is_null_there_and_its_name_counts() -> None:
    old, new = (
        pa.table({"id": [1, 2]}),
        pa.table({"id": [1, 2], "late": pa.array([None, None], pa.string())}),
    )
    assert sums(old) == sums(new) == sums(old.slice(0, 1), new.slice(1))
    assert (
        sums(pa.table({"a": [1], "b": [2]}))
        == sums(pa.table({"b": [2], "a": [1]}))
        != sums(pa.table({"a": [2], "b": [1]}))
    )


def test_each_partition_has_its_own_sum_however_its_value_is_spelled() -> None:
    rows = table("text", ["x", "y"])
    first, second = rows.slice(0, 1), rows.slice(1)
    assert sums(first, second, partitions=["1", "01"]) == sums(rows, partitions=["1"])
    assert sums(first, second, partitions=["1", "2"]) != sums(second, first, partitions=["1", "2"])


def test_moments_are_the_same_as_sparks_old_type_has_them() -> None:
    rows = pa.table({"at": pa.array([0, 10**15, -(10**15)], pa.timestamp("us"))})
    old = io.BytesIO()
    pq.write_table(rows, old, use_deprecated_int96_timestamps=True)
    assert sums(rows) == sums(old.getvalue())
    assert sums(rows) == sums(pa.table({"at": rows["at"].cast(pa.timestamp("ms"))}))
    assert sums(pa.table({"at": pa.array([1000], pa.timestamp("ms"))})) != sums(
        pa.table({"at": pa.array([1000], pa.timestamp("us"))})
    )


def test_numbers_of_two_types_are_two_things() -> None:
    kinds = (
        pa.int8(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(20, 0),
        pa.decimal128(21, 1),
    )
    found = [sums(pa.table({"v": pa.array([1]).cast(kind)}))[()] for kind in kinds]
    found += [sums(pa.table({"v": pa.array([text])}))[()] for text in ("1", b"1")]
    assert len(set(found)) == len(found)


@given(
    st.lists(st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=4), max_size=8),
    st.randoms(use_true_random=False),
)
def test_lists_of_any_length_count_by_their_rows(rows: list[list[int | None]], chance: Any) -> None:
    shuffled = chance.sample(rows, len(rows))
    kind = pa.list_(pa.int64())
    assert sums(pa.table({"v": pa.array(rows, kind)})) == sums(
        pa.table({"v": pa.array(shuffled, kind)})
    )


def test_partition_columns_count_by_the_log_whether_or_not_a_file_has_them() -> None:
    store, snapshot, files = stored(
        pa.table({"v": [1]}),
        pa.table({"v": [2]}),
        pa.table({"v": [1, 2], "part": [3, 3]}),
        partitions=["3"] * 3,
    )
    snapshot = replace(snapshot, partition_columns=("part",))
    assert sums_of(store, snapshot, files[:2]) == sums_of(store, snapshot, files[2:])


def test_what_arrow_cannot_tell_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table("text", ["x"])
    store, snapshot, (file,) = stored(rows)
    data, (id_,) = vector_file(bitmap_of([0]))
    store.put(VECTOR_FILE, data)
    with_vector = replace(file, deletion_vector=id_, deleted_row_count=1)
    for vector in ("u1", f"i{id_[1:]}", f"p/{VECTOR_FILE}@1", f"u{'0' * 20}", f"u{'1' * 20}@1"):
        assert sums_of(store, snapshot, [replace(with_vector, deletion_vector=vector)]) is None
    with_many = replace(
        with_vector, path="many.parquet", deleted_row_count=content_hash._MOST_DELETED_ROWS
    )
    with monkeypatch.context() as reading:
        reading.setattr(content_hash, "hidden_rows", lambda *_: pytest.fail("they are read"))
        assert sums_of(store, snapshot, [with_vector, with_many]) is None
    assert sums(rows, size_bytes=content_hash._MOST_BYTES + 1) is None
    assert sums(rows, b"no Parquet") is None
    assert sums(rows, path="gone.parquet") is None
    assert sums(rows, features=frozenset({"columnMapping"})) is None
    assert sums(pa.table({"v": pa.array([[1]], pa.large_list(pa.int64()))})) is None


def vector_file(*vectors: bytes) -> tuple[bytes, list[str]]:
    """A file of deletion vectors as PROTOCOL.md has it, and the id of each of them."""
    data, ids = b"\x01", list[str]()
    for bitmap in vectors:
        ids.append(f"u{'0' * 20}@{len(data)}")
        data += len(bitmap).to_bytes(4, "big") + bitmap + zlib.crc32(bitmap).to_bytes(4, "big")
    return data, ids


def bitmap_of(places: Iterable[int]) -> bytes:
    return (1681511377).to_bytes(4, "little") + BitMap64(places).serialize()


def sums_with_vectors(
    rows: pa.Table,
    hidden: list[list[int]],
    *,
    vectors: list[bytes] | None = None,
    counts: list[int] | None = None,
) -> Any:
    """The sums of as many files with these rows as there are lists of hidden places; one file holds the vectors of them all."""
    store, snapshot, files = stored(*[rows] * len(hidden))
    data, ids = vector_file(*(vectors or map(bitmap_of, hidden)))
    store.put(VECTOR_FILE, data)
    facts = zip(files, ids, counts or map(len, hidden), strict=True)
    return sums_of(
        store,
        snapshot,
        [replace(file, deletion_vector=id_, deleted_row_count=count) for file, id_, count in facts],
    )


@kinds
def test_values_of_every_type_are_hidden(kind: str) -> None:
    rows = pa.table({"v": pa.array((values := KINDS[kind])[1], values[0])})
    count = len(rows)
    hidden = [[0], [count - 1], list(range(count))]
    assert sums_with_vectors(rows, hidden) == sums(
        pa.concat_tables([rows.slice(1), rows.slice(0, count - 1)])
    )
    assert sums_with_vectors(rows, hidden[2:]) == {}


def test_a_file_that_is_there_twice_has_the_rows_that_each_of_its_deletion_vectors_leaves() -> None:
    rows = pa.table({"v": [1, 2, 3]})
    store, snapshot, (file,) = stored(rows)
    data, (one, two) = vector_file(bitmap_of([0]), bitmap_of([1]))
    store.put(VECTOR_FILE, data)
    files = [file, *(replace(file, deletion_vector=id_, deleted_row_count=1) for id_ in (one, two))]
    assert sums_of(store, snapshot, files) == sums(pa.table({"v": [1, 2, 3, 2, 3, 1, 3]}))


@pytest.mark.parametrize("count", [1, 9, 2 * content_hash._ROWS + 5])
def test_rows_that_a_deletion_vector_hides_are_not_there(count: int) -> None:
    rows = pa.table({"id": range(count), "text": [f"{number % 7}" for number in range(count)]})
    chance = Random(count)
    hidden = [sorted(chance.sample(range(count), count // 3)), list(range(count)), [], [count - 1]]
    left = [
        rows.take(pa.array(sorted(set(range(count)).difference(each)), pa.int64()))
        for each in hidden
    ]
    assert sums_with_vectors(rows, hidden) == sums(pa.concat_tables(left))


def test_a_deletion_vector_that_is_damaged_or_hides_another_number_of_rows_tells_nothing() -> None:
    rows, good = pa.table({"v": ["x", "y", "z"]}), bitmap_of([1])
    assert sums_with_vectors(rows, [[1]]) == sums(pa.table({"v": ["x", "z"]}))
    assert sums_with_vectors(rows, [[1]], counts=[2]) is None
    assert sums_with_vectors(rows, [[1]], vectors=[b"\x00" + good[1:]]) is None
    assert sums_with_vectors(rows, [[3]]) is None
    store, snapshot, files = stored(rows)
    data, (id_,) = vector_file(good)
    for place in range(len(data)):
        store.put(VECTOR_FILE, data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        assert (
            sums_of(store, snapshot, [replace(files[0], deletion_vector=id_, deleted_row_count=1)])
            is None
        )


def test_what_nobody_wants_any_more_is_not_read() -> None:
    store, snapshot, files = stored(*[table("text", ["x"])] * 9)
    answers = iter([True, True, False])
    assert sums_of(store, snapshot, files, wanted=lambda: next(answers, False)) is None
    assert next(answers, None) is None


def test_what_was_read_ahead_is_of_those_files_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, snapshot, files = stored(table("text", ["x"]), table("text", ["y"]))
    monkeypatch.setattr(content_hash.os, "setpriority", Mock(side_effect=PermissionError))
    with ReadAhead(store, snapshot, [Bin(partition=(), files=tuple(files))]) as ahead:
        assert ahead.has_read([*reversed(files)]) and ahead.sums() == sums_of(
            store, snapshot, files
        )
        assert not ahead.has_read([files[0], replace(files[1], deletion_vector="u1")])
        assert not ahead.has_read(files * 2) and not ahead.has_read(files[:1])


def test_a_statement_that_fails_ends_what_reads_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    store, snapshot, files = stored(*[table("text", ["x"])] * 9)
    began, failed, read, real = Event(), Event(), list[str](), store.read

    def until_the_statement_failed(name: str) -> bytes:
        began.set()
        assert failed.wait(60)
        read.append(name)
        return real(name)

    monkeypatch.setattr(store, "read", until_the_statement_failed)
    ahead = ReadAhead(store, snapshot, [Bin(partition=(), files=tuple(files))])
    with pytest.raises(RuntimeError, match="as planned"), ahead:
        _fail(began)
    failed.set()
    assert ahead.sums() is None and len(read) == 1


def test_bins_of_which_nothing_can_be_told_are_not_read_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, snapshot, files = stored(table("text", ["x"]), table("text", ["y"]))
    monkeypatch.setattr(content_hash, "_MOST_BYTES", files[0].size_bytes)
    with ReadAhead(store, snapshot, [Bin(partition=(), files=tuple(files))]) as ahead:
        assert ahead.sums() is None
    monkeypatch.setattr(content_hash, "_MOST_BYTES_IN_ALL", files[0].size_bytes)
    assert (
        sums_of(store, snapshot, files) is None and sums_of(store, snapshot, files[:1]) is not None
    )


def _fail(began: Event) -> None:
    assert began.wait(60)
    raise RuntimeError("as planned")


def test_many_files_and_long_ones_are_summed_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table("integer", [1, 2, 3] * 50)
    whole = sums(rows)
    monkeypatch.setattr(content_hash, "_ROWS", 7)
    monkeypatch.setattr(content_hash, "_MOST_FILES", 2)
    assert whole == sums(rows) == sums(*(rows.slice(place, 10) for place in range(0, 150, 10)))
