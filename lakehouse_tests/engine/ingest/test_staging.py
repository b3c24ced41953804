import gzip
from dataclasses import replace
from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse import Debezium
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, LandedFile
from lakehouse.engine.ingest import staging
from lakehouse.engine.ingest.staging import part_names, stage, staged_again
from lakehouse.engine.store import DiskStore
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
    """Whatever dies between: the files are compared before one of their records is staged."""
    was, now = b'{"id": 1}', b'{"id": 2}'
    batch = batch_of("a.json", was, part_count=1, record_count=1)
    store = DiskStore(tmp_path)
    store.put("landing/t/a.json", now)
    with monkeypatch.context() as patch:
        patch.setattr(DiskStore, "delete", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Broken, match=r"'a\.json' has changed since"):
            staged_again(store, KEY, batch, LANDING)
    assert store.list("_lakehouse/staged") == []
    store.put("landing/t/a.json", was)
    again = staged_again(store, KEY, replace(batch, record_count=None), LANDING)
    assert (replace(again, shape=""), len(store.list("_lakehouse/staged"))) == (batch, 1)


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
    for _ in range(
        2
    ):  # whatever dies then: the records of the one are never taken for those of the other
        assert texts(staged_again(store, KEY, batch, as_text)) == ['{"id": 1, "x": "1.10"}']
        assert texts(staged_again(store, KEY, batch, LANDING)) == [data.decode()]
    for changes in (Debezium(), Debezium(unwrapped=True)):
        stage(store, KEY, batch, replace(as_text, changes=changes))
    assert len({file.name.split("/")[4] for file in store.list(f"_lakehouse/staged/{KEY}")}) == 4
    older = replace(batch, shape="")  # of a program that told no shape
    store.put(f"_lakehouse/staged/{KEY}/1/00000.parquet", store.read(part_names(KEY, batch)[0]))
    assert (staged_again(store, KEY, older, as_text), texts(older)) == (older, [data.decode()])
    store.delete(["landing/t/a.json"])
    with pytest.raises(
        Broken,
        match=r"1 of them are gone .* restore the declaration with which the batch was planned",
    ):
        staged_again(store, KEY, batch, as_text)
    assert staged_again(store, KEY, batch, LANDING) == batch


def test_a_file_that_another_declaration_cannot_read_stops_a_table_that_is_made_anew(
    tmp_path: Path,
) -> None:
    store, landing, data = (
        DiskStore(tmp_path),
        replace(LANDING, format="csv", schema="code STRING, n INT"),
        b"code,n\nA,1",
    )
    store.put("landing/t/a.csv", data)
    batch = batch_of("a.csv", data, part_count=1, record_count=1)
    wider = replace(landing, schema="code STRING, n INT, more STRING")
    for _ in range(2):
        with pytest.raises(
            Broken,
            match=r"its file 'a.csv' was read then and cannot be now: its header is 'code,n' and not code,n,more",
        ):
            staged_again(store, KEY, batch, wider)
    again = staged_again(store, KEY, batch, landing)
    assert (replace(again, shape=""), len(store.list("_lakehouse/staged"))) == (batch, 1)


@pytest.mark.parametrize(
    ("lines", "parts"), [(["1,"] * 9, 3), (["1," + "x" * 60] * 6, 3), (["1,x"] * 3, 1)]
)
def test_a_part_is_full_of_records_however_short_they_are_and_of_fields_that_no_schema_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], parts: int
) -> None:
    monkeypatch.setattr(staging, "_PART_RECORDS", 4)
    monkeypatch.setattr(staging, "_PART_BYTES", 100)
    store, landing, data = (
        DiskStore(tmp_path),
        replace(LANDING, format="csv"),
        "\n".join(["id,note", *lines]).encode(),
    )
    store.put("landing/t/a.csv", data)
    assert stage(store, KEY, batch_of("a.csv", data), landing).batch.part_count == parts


def test_of_a_file_that_lies_packed_beside_itself_before_it_is_loaded_one_is_read(
    tmp_path: Path,
) -> None:
    """`gzip -k` and `zstd` leave the time as it is. A batch that was planned is staged as it was planned."""
    store, data = DiskStore(tmp_path), b'{"id": 1}'
    texts = {
        "a.json": data,
        "a.json.gz": gzip.compress(data),
        "b.json": b"",
        "b.json.gz": gzip.compress(data),
        "c.json.gz": b"no gzip",
        "c.json": data,
        "d.json": data,
        "d.json.gz": gzip.compress(b'{"id": 2}'),
    }
    for name, text in texts.items():
        store.put(f"{LANDING.prefix}{name}", text)
    files = tuple(
        LandedFile(name=name, size_bytes=len(text), modified_ms=7) for name, text in texts.items()
    )
    later = replace(files[1], name="a.json.zst", modified_ms=8)
    store.put(f"{LANDING.prefix}a.json.zst", pa.compress(data, codec="zstd", asbytes=True))
    batch = Batch(number=1, files=(*files, later), prefix=LANDING.prefix)
    found = stage(store, KEY, batch, LANDING, loaded_as=lambda *_: None).files
    assert {
        name: (read.record_count, read.loaded_as)
        for name, read in found.items()
        if read.problem is None
    } == {
        "a.json": (1, None),
        "a.json.gz": (0, f"{LANDING.prefix}a.json"),
        "a.json.zst": (1, None),  # of another time, and so another file
        "b.json": (0, None),
        "b.json.gz": (1, None),  # beside one that gives nothing
        "c.json": (1, None),  # beside one that cannot be read
        "d.json": (1, None),
        "d.json.gz": (1, None),  # written in the same millisecond, and another one
    }
    assert [read.record_count for read in stage(store, KEY, batch, LANDING).files.values()] == [
        1,
        1,
        0,
        1,
        0,
        1,
        1,
        1,
        1,
    ]
    for moved, told in (
        (f"{LANDING.prefix}old.json", f"{LANDING.prefix}old.json"),
        (f"{LANDING.prefix}a.json", None),
    ):  # then written over
        found = stage(
            store,
            KEY,
            batch,
            LANDING,
            loaded_as=lambda file, _, of=moved: of if file.name == "a.json" else None,
        ).files
        assert found["a.json.gz"].loaded_as == told
