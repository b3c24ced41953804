"""A vacuum deletes what nothing needs, as its plan said, and never anything else."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken
from lakehouse.base.operation import VACUUM_MODES
from lakehouse.base.reasons import Reason
from lakehouse.base.stored_objects import StoredObject
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.lake.state_tables import vacuum_records
from lakehouse.vacuum import run
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.plan import ObjectClassifier
from lakehouse.vacuum.inventory.run import scan
from lakehouse.vacuum.plan.candidates import DeletionGuard
from lakehouse.vacuum.run import rehearse, vacuum
from lakehouse.write.commit_rows import apply_properties
from lakehouse_tests.support.example_lake import facts_of, version_of
from lakehouse_tests.support.vacuums import AT_ONCE, data_files, rows, stored, table_of


def add(lake: Lake, first: int, *, rows: int = 4, **properties: str) -> str:
    """New rows, a file in each of two partitions, for a table whose files are past their retention at once; its URI."""
    uri, ids = lake.settings.table_uri("bronze/t"), range(first, first + rows)
    new = pa.table({"id": ids, "part": pa.array([id_ % 2 for id_ in ids], pa.int32())})
    write_deltalake(
        uri, new, mode="append", partition_by=["part"], configuration={**AT_ONCE, **properties}
    )
    return uri


@pytest.mark.parametrize("mode", VACUUM_MODES)
def test_what_the_dry_run_names_goes_and_nothing_else(
    lake: Lake, spark: SparkSession, mode: str
) -> None:
    table, uri = table_of(), add(lake, 0)
    add(lake, 10)
    first = data_files(lake)
    for folder, _, name in (each.rpartition("/") for each in first):
        lake.store.put(f"bronze/t/{folder}/.{name}.crc", b"as Hadoop writes one")
    DeltaTable(uri).delete("part = 0")
    add(lake, 20)
    lake.store.put("bronze/t/part=1/orphan of a failed write.parquet", b"123")
    lake.store.put("bronze/t/part=1/_SUCCESS", b"")
    lake.store.put("bronze/t/_stage/x", b"1")
    if mode == "INVENTORY":
        scan(lake, now_ms=now_ms())
    before, files = DeltaTable(uri).to_pyarrow_table().sort_by("id"), stored(lake)
    named = rehearse(LakeFacts(lake, [table]), lambda: spark, table, mode=mode)
    assert stored(lake) == files and named is not None
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode=mode)
    gone = files - stored(lake)
    planned = {each.name for each in named.candidates}
    assert {name for name in gone if not name.endswith(".crc")} == planned
    expected = {name for name in first if name.startswith("part=0/")} | (
        {"part=1/orphan of a failed write.parquet"} if mode != "LITE" else set()
    )
    # Hadoop's checksums go with their files, and only then.
    checksums = {f"part={name[5]}/.{name[7:]}.crc" for name in planned & set(first)}
    assert (planned, gone - planned) == (expected, checksums)
    assert [each.actual for each in outcome.figures[:2]] == [len(planned), outcome.plan.size_bytes]
    assert outcome.spared == {}
    assert DeltaTable(uri).to_pyarrow_table().sort_by("id") == before
    [past] = vacuum_records(lake, "bronze/t")
    assert (past.mode, past.failed, past.horizon_ms) == (mode, {}, outcome.plan.horizon_ms)
    again = vacuum(
        LakeFacts(lake, [table]), lambda: spark, table, mode=mode if mode == "LITE" else "FULL"
    )
    assert (again.plan.reason, again.plan.candidates) == (Reason.NOTHING_PAST, ())


@pytest.mark.parametrize("reader", ["deltalake", pytest.param("Spark", marks=pytest.mark.long)])
def test_a_file_that_delta_would_keep_stays(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """A defect of ours, planted: live files are called orphans. Delta does not agree, and nothing is deleted."""
    from lakehouse.vacuum.plan import vacuum as planning

    if reader == "Spark":
        monkeypatch.setattr(run, "kept_by_deltalake", lambda *_: None)

    add(lake, 0)
    table = table_of()
    files = stored(lake)
    honest = ObjectClassifier.part_of

    def wrong(self: ObjectClassifier, name: str, each: StoredObject) -> planning.Part:
        found = honest(self, name, each)
        return planning.Part.ORPHANED_OLD if found is planning.Part.LIVE else found

    monkeypatch.setattr(ObjectClassifier, "part_of", wrong)
    monkeypatch.setattr(planning, "_refuse_gaps", lambda *_: None)
    with pytest.raises(Broken, match=r"lacks the file .* Version 0 added .* removed it\."):
        vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
    monkeypatch.setattr(DeletionGuard, "must_stay", lambda *_: False)
    with pytest.raises(Broken, match="Delta would keep the whole plan"):
        vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
    assert stored(lake) == files


@pytest.mark.long
def test_files_that_a_clone_reads_stay(lake: Lake, spark: SparkSession) -> None:
    table, uri = table_of(), add(lake, 0)
    clone = lake.settings.table_uri("bronze/clone")
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{uri}`")
    DeltaTable(uri).delete()
    scan(lake, now_ms=now_ms())
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="INVENTORY")
    assert outcome.plan.candidates == () and len(rows(spark, clone)) == 4


@pytest.mark.parametrize(("own_days", "in_force"), [(7, 800), (40, 960)])
def test_the_longer_retention_counts_until_a_write_sets_the_declared_one(
    lake: Lake, spark: SparkSession, own_days: int, in_force: int
) -> None:
    add(lake, 0, **{"delta.deletedFileRetentionDuration": f"interval {own_days} days"})
    table, version = table_of(retention_hours=800), version_of(lake, "bronze/t")

    def retention_hours() -> float:
        outcome = vacuum(LakeFacts(lake, [table]), lambda: pytest.fail("asked"), table, mode="FULL")
        assert outcome is not None
        return outcome.plan.as_json()["retention_hours"]

    assert (retention_hours(), version_of(lake, "bronze/t")) == (in_force, version)
    session = TableSession(lake=lake, spark=spark, table=table)
    after = apply_properties(session, facts_of(lake, "bronze/t"))
    assert after is not None
    assert after.snapshot.properties["delta.logRetentionDuration"] == "interval 48000 minutes"
    assert (retention_hours(), version_of(lake, "bronze/t")) == (800, after.snapshot.version)
