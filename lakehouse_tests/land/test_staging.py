import gzip
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


CSV = replace(LANDING, format="csv", schema="id BIGINT, name STRING")
UTF_16 = replace(CSV, encoding="utf-16")
FIRST, SECOND = b'{"id": 1}\n', b'{"id": 2}\n'


@pytest.mark.parametrize(
    ("landing", "was", "now", "new_lines"),
    [
        (LANDING, FIRST, FIRST + SECOND, [(2, '{"id": 2}')]),
        (LANDING, FIRST[:-1], FIRST + SECOND, [(2, '{"id": 2}')]),
        (LANDING, b'{"id": 1}\r', b'{"id": 1}\r\n' + SECOND, [(2, '{"id": 2}')]),
        (LANDING, b"nope", b"nope\nnope", [(2, "nope")]),
        (CSV, b'id,name\n1,"a\nb"', b'id,name\n1,"a\nb"\n2,c', [(4, "2,c")]),
        (
            UTF_16,
            "id,name\n1,a".encode("utf-16"),
            "id,name\n1,a\n2,c".encode("utf-16"),
            [(3, "2,c")],
        ),
        (LANDING, FIRST, FIRST + b"\n \n", []),
    ],
)
def test_of_a_file_that_begins_with_what_was_loaded_the_new_records_are_staged(
    tmp_path: Path, landing: Landing, was: bytes, now: bytes, new_lines: list[tuple[int, str]]
) -> None:
    """Also if the batch has to be staged again, and by then the file has grown once more."""
    store, name = DiskStore(tmp_path), f"a.{landing.format}"
    store.put(f"{LANDING.prefix}{name}", now)
    loaded = KnownFiles(loaded={name: known(was)})
    staged, reads = stage(store, KEY, batch_of(name, now), landing, loaded)
    found = reads[name]
    assert found is not None
    counts = (found.record_count, found.file.loaded_records)
    assert (found.continues, *counts) == (True, len(new_lines), 1)
    assert staged_lines(store, staged) == new_lines
    whole = replace(loaded, reads_whole=True)
    _, reads = stage(store, KEY, batch_of(name, now), landing, whole)
    found = reads[name]
    assert found is not None
    assert (found.record_count, found.file.loaded_records) == (len(new_lines) + 1, 0)
    [planned] = batch_of(name, now).files
    batch = replace(staged, files=(replace(planned, loaded_records=1),))
    first = batch_of(name, was, part_count=1, record_count=1)
    for later in (now, now + ("\n3,d" if landing is CSV else "").encode()):
        store.put(f"{LANDING.prefix}{name}", later)
        store.delete([file.name for file in store.list("_lakehouse/staged")])
        assert staged_lines(store, staged_again(store, KEY, batch, landing)) == new_lines
        assert len(staged_lines(store, staged_again(store, KEY, first, landing))) == 1


def test_a_packed_file_that_is_packed_again_counts_as_another_one(tmp_path: Path) -> None:
    """Its bytes differ from the first on. Members that were appended are new records."""
    store, name = DiskStore(tmp_path), "a.json.gz"
    first, second = gzip.compress(FIRST * 99), gzip.compress(SECOND)
    for now, count in ((first + second, 1), (gzip.compress(FIRST * 99 + SECOND), 0)):
        store.put(f"{LANDING.prefix}{name}", now)
        loaded = KnownFiles(loaded={name: known(first)})
        _, reads = stage(store, KEY, batch_of(name, now), LANDING, loaded)
        assert (read := reads[name]) is not None
        assert (read.continues, read.record_count) == (count > 0, count)


@pytest.mark.parametrize(
    ("landing", "was", "now"),
    [
        (LANDING, FIRST, b'{"id": 9}\n' + SECOND),
        (LANDING, b'{"id": 1', b'{"id": 1}\n'),  # its last line goes on
        (CSV, b"id,name\n1,a", b"id,name\n1,ab"),
        (CSV, b"id,name\n1,a\n", b"id,name\n"),
    ],
)
def test_of_a_file_that_was_replaced_by_another_one_nothing_is_staged(
    tmp_path: Path, landing: Landing, was: bytes, now: bytes
) -> None:
    store, name = DiskStore(tmp_path), f"a.{landing.format}"
    store.put(f"{LANDING.prefix}{name}", now)
    loaded = KnownFiles(loaded={name: known(was)})
    planned = batch_of(name, now)
    staged, reads = stage(store, KEY, planned, landing, loaded)
    assert reads[name] == FileRead(file=planned.files[0])
    assert (staged.part_count, staged.record_count) == (0, 0)


def test_a_file_that_grew_by_a_part_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    was, now = b"id,name\n1,a\n", b'id,name\n1,a\n2,"b\n'
    store = DiskStore(tmp_path)
    store.put(f"{LANDING.prefix}a.csv", now)
    loaded = KnownFiles(loaded={"a.csv": known(was)})
    staged, reads = stage(store, KEY, batch_of("a.csv", now), CSV, loaded)
    assert (read := reads["a.csv"]) is not None
    assert "record that begins in line 3" in str(read.problem)
    assert staged.part_count == 0
