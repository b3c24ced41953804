from dataclasses import replace
from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakehouse import Debezium
from lakehouse.base.errors import Broken
from lakehouse.declare.landing import Landing
from lakehouse.land.parse_lines import EVENT, ORIGIN, RAW, UNDECLARED
from lakehouse.land.plan.batches import Batch, KnownFiles, LandedFile
from lakehouse.land.plan.choose_files import FileRead
from lakehouse.land.plan.file_text import content_digest
from lakehouse.land.plan.records import with_earlier_names
from lakehouse.land.staging import part_names, stage, staged_again
from lakehouse.store import DiskStore
from lakehouse_tests.kills import Killed

KEY, LANDING = "bronze/t", Landing(prefix="landing/t/", format="json", schema="id BIGINT")


def batch_of(name: str, data: bytes, **counts: int) -> Batch:
    """A batch that was planned with one file."""
    file = LandedFile(
        name=name,
        size_bytes=len(data),
        modified_ms=0,
        digest=blake2b(data, digest_size=16).hexdigest(),
    )
    return Batch(number=1, files=(file,), prefix=LANDING.prefix, **counts)


def test_what_was_read_of_a_file_that_changed_is_never_taken_for_what_the_batch_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was, now = b'{"id": 1}', b'{"id": 2}'
    batch = batch_of("a.json", was, part_count=1, record_count=1)
    store = DiskStore(tmp_path)
    store.put("landing/t/a.json", now)
    with pytest.raises(Broken, match=r"'a\.json' has changed since"):
        staged_again(store, KEY, batch, LANDING)
    assert store.list("_lakehouse/staged") == []
    monkeypatch.setattr(DiskStore, "delete", lambda *_: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        staged_again(store, KEY, batch, LANDING)
    store.put("landing/t/a.json", was)
    again = staged_again(store, KEY, batch, LANDING)
    assert staged_lines(store, again) == [(1, was.decode())]


def test_records_are_staged_again_if_the_declaration_changes_them(tmp_path: Path) -> None:
    store, data = DiskStore(tmp_path), b'{"id": 1, "x": 1.10}'
    store.put("landing/t/a.json", data)
    batch, _ = stage(store, KEY, batch_of("a.json", data), LANDING)

    def texts(batch: Batch) -> list[str]:
        [part] = part_names(KEY, batch)
        return pq.read_table(BytesIO(store.read(part)))[RAW].to_pylist()

    as_text = replace(LANDING, schema="id BIGINT, x STRING")
    assert (staged_again(store, KEY, batch, LANDING), texts(batch)) == (batch, [data.decode()])
    # Whatever dies then: the records of the one are never taken for those of the other.
    for _ in range(2):
        assert texts(staged_again(store, KEY, batch, as_text)) == ['{"id": 1, "x": "1.10"}']
        assert texts(staged_again(store, KEY, batch, LANDING)) == [data.decode()]
    for changes in (Debezium(), Debezium(unwrapped=True)):
        other, _ = stage(store, KEY, batch, replace(as_text, changes=changes))
        assert other.shape.partition("-")[0] != batch.shape.partition("-")[0]
    store.delete(["landing/t/a.json"])
    message = (
        r"gone from landing/t/: 1, .* restore the declaration with which the batch was planned"
    )
    with pytest.raises(Broken, match=message):
        staged_again(store, KEY, batch, as_text)
    assert staged_again(store, KEY, batch, LANDING) == batch


def test_records_are_staged_again_by_the_present_names_of_their_fields(tmp_path: Path) -> None:
    store, data = DiskStore(tmp_path), b'{"id": 1}\n{"no": 2}'
    store.put("landing/t/a.json", data)
    batch, _ = stage(store, KEY, batch_of("a.json", data), LANDING)
    renamed = with_earlier_names(replace(LANDING, schema="no BIGINT"), {"id": "no"})
    again = staged_again(store, KEY, batch, renamed)
    [part] = part_names(KEY, again)
    rows = pq.read_table(BytesIO(store.read(part)))
    assert rows[RAW].to_pylist() == data.decode().split("\n")
    assert rows[EVENT].to_pylist() == ['{"no": 1}', None]
    assert rows[UNDECLARED].to_pylist() == [None, None]
    other = with_earlier_names(replace(LANDING, schema="no BIGINT"), {"nr": "no"})
    assert staged_again(store, KEY, again, other).shape != again.shape


def test_a_planned_file_that_another_declaration_cannot_read_stops_it(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    landing = replace(LANDING, format="csv", schema="code STRING, n INT")
    data = b"code,n\nA,1"
    store.put("landing/t/a.csv", data)
    batch = batch_of("a.csv", data, part_count=1, record_count=1)
    wider = replace(landing, schema="code STRING, n INT, more STRING", required=("more",))
    for _ in range(2):
        message = r"Its file 'a.csv' could be read then and cannot be read now: its header is 'code,n' and not code,n,more"
        with pytest.raises(Broken, match=message):
            staged_again(store, KEY, batch, wider)
    again = staged_again(store, KEY, batch, landing)
    assert (replace(again, shape=""), len(store.list("_lakehouse/staged"))) == (batch, 1)


def known(data: bytes) -> LandedFile:
    """A file that was loaded with this content."""
    return LandedFile(name="a", size_bytes=len(data), modified_ms=0, digest=content_digest(data))


def staged_lines(store: DiskStore, batch: Batch) -> list[tuple[int, str]]:
    """The staged records of a batch: line and text."""
    tables = [pq.read_table(BytesIO(store.read(name))) for name in part_names(KEY, batch)]
    return [(row[ORIGIN[1]], row[RAW]) for table in tables for row in table.to_pylist()]


FIRST, SECOND = b'{"id": 1}\n', b'{"id": 2}\n'


@pytest.mark.parametrize(
    ("now", "count"), [(FIRST + SECOND, 2), (FIRST[:-1] + b" ", 1), (FIRST, 0)]
)
def test_a_loaded_file_is_staged_again_only_if_an_overwrite_loads_its_new_content(
    tmp_path: Path, now: bytes, count: int
) -> None:
    store = DiskStore(tmp_path)
    store.put(f"{LANDING.prefix}a.json", now)
    planned = batch_of("a.json", now)
    for is_overwrite, record_count in ((False, 0), (True, count)):
        loaded = KnownFiles(loaded={"a.json": known(FIRST)}, is_overwrite=is_overwrite)
        staged, reads = stage(store, KEY, planned, LANDING, loaded)
        assert reads["a.json"] == FileRead(file=planned.files[0], record_count=record_count)
        assert staged.record_count == record_count


def test_a_planned_file_that_has_grown_is_staged_again_as_it_was(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    planned = batch_of("a.json", FIRST, part_count=1, record_count=1)
    store.put(f"{LANDING.prefix}a.json", FIRST + SECOND)
    assert staged_lines(store, staged_again(store, KEY, planned, LANDING)) == [(1, '{"id": 1}')]


@pytest.mark.parametrize(
    ("data", "count"), [(b"id", 0), (b"id\n", 0), (b"id\n1\n2\n", 2), (b'id\n"1"', 1)]
)
def test_a_file_with_only_a_header_stages_no_record(
    tmp_path: Path, data: bytes, count: int
) -> None:
    store, landing = DiskStore(tmp_path), replace(LANDING, format="csv")
    store.put("landing/t/a.csv", data)
    batch, reads = stage(store, KEY, batch_of("a.csv", data), landing)
    read = reads["a.csv"]
    assert read is not None and read.problem is None
    assert (batch.record_count, batch.part_count, read.record_count) == (
        count,
        min(count, 1),
        count,
    )
