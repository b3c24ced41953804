from dataclasses import replace
from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakehouse import Debezium
from lakehouse.base.errors import Broken
from lakehouse.declare.landing import Landing
from lakehouse.land.plan.batches import Batch, KnownFiles, LandedFile
from lakehouse.land.plan.choose_files import FileRead
from lakehouse.land.plan.file_text import content_digest
from lakehouse.land.plan.records import with_earlier_names
from lakehouse.land.read import staging as staged_parts
from lakehouse.land.read.staging import part_names, stage, staged_again
from lakehouse.store import DiskStore

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
    tmp_path: Path,
) -> None:
    was, now = b'{"id": 1}', b'{"id": 2}'
    batch = batch_of("a.json", was, part_count=1, record_count=1)
    store = DiskStore(tmp_path)
    store.put("landing/t/a.json", now)
    with pytest.raises(Broken, match=r"'a\.json' has changed since"):
        staged_again(store, KEY, batch, LANDING)
    store.put("landing/t/a.json", was)
    again = staged_again(store, KEY, replace(batch, record_count=None), LANDING)
    assert replace(again, shape="") == batch
    [part] = part_names(KEY, again)
    assert pq.read_table(BytesIO(store.read(part)))["raw"].to_pylist() == [was.decode()]


def test_records_are_staged_anew_where_the_declaration_would_stage_them_otherwise(
    tmp_path: Path,
) -> None:
    store, data = DiskStore(tmp_path), b'{"id": 1, "x": 1.10}'
    store.put("landing/t/a.json", data)
    batch = stage(store, KEY, batch_of("a.json", data), LANDING).batch

    def texts(batch: Batch) -> list[str]:
        [part] = part_names(KEY, batch)
        return pq.read_table(BytesIO(store.read(part)))["raw"].to_pylist()

    as_text = replace(LANDING, schema="id BIGINT, x STRING")
    assert (staged_again(store, KEY, batch, LANDING), texts(batch)) == (batch, [data.decode()])
    assert texts(staged_again(store, KEY, batch, as_text)) == ['{"id": 1, "x": "1.10"}']
    assert texts(staged_again(store, KEY, batch, LANDING)) == [data.decode()]
    for changes in (Debezium(), Debezium(unwrapped=True)):
        assert staged_again(store, KEY, batch, replace(as_text, changes=changes)) != batch
    store.delete(["landing/t/a.json"])
    with pytest.raises(
        Broken,
        match=r"gone from landing/t/: 1, .* restore the declaration with which the batch was planned",
    ):
        staged_again(store, KEY, batch, as_text)
    assert staged_again(store, KEY, batch, LANDING) == batch


def test_records_are_staged_again_by_the_present_names_of_their_fields(tmp_path: Path) -> None:
    store, data = DiskStore(tmp_path), b'{"id": 1}\n{"no": 2}'
    store.put("landing/t/a.json", data)
    batch = stage(store, KEY, batch_of("a.json", data), LANDING).batch
    renamed = with_earlier_names(replace(LANDING, schema="no BIGINT"), {"id": "no"})
    again = staged_again(store, KEY, batch, renamed)
    [part] = part_names(KEY, again)
    rows = pq.read_table(BytesIO(store.read(part)))
    assert rows["raw"].to_pylist() == data.decode().split("\n")
    assert rows["event"].to_pylist() == ['{"no": 1}', None]
    assert rows["undeclared"].to_pylist() == [None, None]
    other = with_earlier_names(replace(LANDING, schema="no BIGINT"), {"nr": "no"})
    assert staged_again(store, KEY, again, other).shape != again.shape


def test_a_file_of_a_planned_batch_that_another_declaration_cannot_read_stops_the_load(
    tmp_path: Path,
) -> None:
    store, landing, data = (
        DiskStore(tmp_path),
        replace(LANDING, format="csv", schema="code STRING, n INT"),
        b"code,n\nA,1",
    )
    store.put("landing/t/a.csv", data)
    batch = batch_of("a.csv", data, part_count=1, record_count=1)
    wider = replace(landing, schema="code STRING, n INT, more STRING", required=("more",))
    for _ in range(2):
        with pytest.raises(
            Broken,
            match=r"Its file 'a.csv' could be read then and cannot be read now: its header is 'code,n' and not code,n,more",
        ):
            staged_again(store, KEY, batch, wider)
    again = staged_again(store, KEY, batch, landing)
    assert replace(again, shape="") == batch


@pytest.mark.parametrize(
    ("lines", "parts"), [(["1,"] * 9, 3), (["1," + "x" * 60] * 6, 3), (["1,x"] * 3, 1)]
)
def test_a_part_is_full_of_records_however_short_they_are_and_of_fields_that_no_schema_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], parts: int
) -> None:
    monkeypatch.setattr(staged_parts, "_PART_RECORDS", 4)
    monkeypatch.setattr(staged_parts, "_PART_BYTES", 100)
    store, landing, data = (
        DiskStore(tmp_path),
        replace(LANDING, format="csv"),
        "\n".join(["id,note", *lines]).encode(),
    )
    store.put("landing/t/a.csv", data)
    assert stage(store, KEY, batch_of("a.csv", data), landing).batch.part_count == parts


@pytest.mark.parametrize(
    ("now", "replaces_rows", "staged_count"),
    [(b"1", False, 0), (b"1", True, 0), (b"2", False, 0), (b"2", True, 1)],
)
def test_of_a_file_that_was_loaded_nothing_is_staged_unless_it_replaces_all_rows(
    tmp_path: Path, now: bytes, replaces_rows: bool, staged_count: int
) -> None:
    store = DiskStore(tmp_path)
    data = b'{"id": %b}' % now
    store.put(f"{LANDING.prefix}a.json", data)
    loaded = {"a.json": content_digest(b'{"id": 1}')}
    known = KnownFiles(loaded=loaded, replaces_rows=replaces_rows)
    staged = stage(store, KEY, batch_of("a.json", data), LANDING, known)
    assert staged.files["a.json"] == FileRead(
        size_bytes=len(data), digest=content_digest(data), record_count=staged_count
    )
    assert staged.batch.part_count == staged_count
