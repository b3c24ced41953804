"""A vacuum deletes what nothing needs, as its plan said, and never anything else."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakehouse.core.declaration.table import Append, Table
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.inventory import StoredObject
from lakehouse.core.reasons import Reason
from lakehouse.core.vacuum import VACUUM_MODES
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory import scan
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.vacuum import LakeFacts, plan, rehearse, vacuum
from lakehouse_tests.engine.vacuums import age, append, create, data_files, rows, stored, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("mode", VACUUM_MODES)
def test_what_the_dry_run_names_goes_and_nothing_else(lake: Lake, spark: "SparkSession", mode: str) -> None:
    table, uri = table_of(), create(spark, lake)
    append(spark, uri, 0)
    append(spark, uri, 10)
    first = data_files(lake)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE part = 0")
    append(spark, uri, 20)
    lake.store.put("bronze/t/part=1/orphan of a failed write.parquet", b"123")
    lake.store.put("bronze/t/part=1/_SUCCESS", b"")
    lake.store.put("bronze/t/_stage/x", b"1")
    if mode == "INVENTORY":
        scan(lake.store, now_ms=now_ms())
    before, files = rows(spark, uri), stored(lake)
    named = rehearse(LakeFacts(lake, [table]), lambda: spark, table, mode=mode)
    assert stored(lake) == files and named is not None
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode=mode)
    gone = files - stored(lake)
    assert gone == {each.name for each in named.candidates}
    expected = {name for name in first if name.startswith("part=0/")} | (
        {"part=1/orphan of a failed write.parquet"} if mode != "LITE" else set()
    )
    assert {name for name in gone if not name.endswith(".crc")} == expected
    assert (outcome.record.deleted_files, outcome.record.deleted_bytes, outcome.spared) == (len(gone), outcome.plan.size_bytes, {})
    assert rows(spark, uri) == before
    [past] = Journal(lake.store).vacuums("bronze/t")
    assert (past.mode, past.deleted_files, past.failed, past.horizon_ms) == (mode, len(gone), {}, outcome.plan.horizon_ms)
    again = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode=mode if mode == "LITE" else "FULL")
    assert (again.plan.reason, again.plan.candidates) == (Reason.NOTHING_PAST, ())


def test_a_file_so_deep_that_delta_takes_it_for_anothers_folder_goes_and_the_other_stays(lake: Lake, spark: "SparkSession") -> None:
    """Delta cuts off as many parts of its name as the table's own path has; what is left is somebody else's file."""
    table, uri = table_of(), create(spark, lake, **{"delta.deletedFileRetentionDuration": "interval 7 days"})
    append(spark, uri, 0)
    location = spark.sql(f"DESCRIBE DETAIL delta.`{uri}`").collect()[0]["location"]
    deep = "/".join([*"a" * len(location.split("/")), "running.parquet", "orphan"])
    for name in (deep, "running.parquet"):
        lake.store.put(f"bronze/t/{name}", b"123")
    age(lake, [deep])
    before = stored(lake)
    vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
    assert before - stored(lake) == {deep}


def test_deletion_vectors_and_change_data_go_with_their_versions(lake: Lake, spark: "SparkSession") -> None:
    options = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    table, uri = table_of(), create(spark, lake, **options)
    append(spark, uri, 0, rows=20)
    for id_ in (2, 4):
        spark.sql(f"DELETE FROM delta.`{uri}` WHERE id = {id_}")
    spark.sql(f"UPDATE delta.`{uri}` SET id = 100 WHERE id = 3")
    before = rows(spark, uri)
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
    parts = {each.part.name for each in outcome.plan.candidates if not each.goes_with}
    assert {"CHANGE_DATA_PAST", "VECTORS_DEAD"} <= parts
    assert rows(spark, uri) == before


def test_a_file_that_delta_would_keep_stays(lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of ours, planted: live files are called orphans. Delta does not agree, and nothing is deleted."""
    from lakehouse.core.vacuum import plan as planning

    table, uri = table_of(), create(spark, lake)
    append(spark, uri, 0)
    files = stored(lake)
    honest = planning.Classifier.part_of

    def wrong(self: planning.Classifier, name: str, each: StoredObject) -> planning.Part:
        found = honest(self, name, each)
        return planning.Part.ORPHANED_OLD if found is planning.Part.LIVE else found

    monkeypatch.setattr(planning.Classifier, "part_of", wrong)
    monkeypatch.setattr(planning, "_refuse_gaps", lambda *_: None)
    with pytest.raises(Broken, match="Delta would delete none"):
        vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
    assert stored(lake) == files


def test_a_restore_beside_keeps_what_it_needs(lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Between Delta's answer and the deletion, somebody goes back to a version that the plan takes apart."""
    from lakehouse.engine.vacuum import run

    table, uri = table_of(), create(spark, lake)
    append(spark, uri, 0)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE part = 0")
    asked = run.agreed

    def then_restore(*arguments: object) -> object:
        answer = asked(*arguments)  # type: ignore[arg-type]
        spark.sql(f"RESTORE TABLE delta.`{uri}` TO VERSION AS OF 1")
        return answer

    monkeypatch.setattr(run, "agreed", then_restore)
    with_conf = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
    spark.conf.set(with_conf, "false")
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
    spark.conf.unset(with_conf)
    assert outcome.record.deleted_files == 0 and set(outcome.spared.values()) == {"version 3 needs it again"}
    assert len(rows(spark, uri)) == 4


def test_a_write_and_a_compaction_beside_keep_what_they_made(lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Between Delta's answer and the deletion, somebody appends and compacts: what that removes was not planned, and stays."""
    from lakehouse.engine.vacuum import run

    table, uri = table_of(), create(spark, lake)
    append(spark, uri, 0)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE part = 0")
    before, asked = data_files(lake), run.agreed

    def then_write(*arguments: object) -> object:
        answer = asked(*arguments)  # type: ignore[arg-type]
        append(spark, uri, 10)
        spark.sql(f"OPTIMIZE delta.`{uri}`")
        return answer

    monkeypatch.setattr(run, "agreed", then_write)
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
    assert outcome.spared == {} and outcome.record.failed == {}
    assert rows(spark, uri) == [(1, 1), (3, 1), (10, 0), (11, 1), (12, 0), (13, 1)]
    facts = lake.facts("bronze/t")
    assert facts is not None and len(facts.snapshot.files) == 2
    # Those of the first write that are left were live when the plan was made, and so were none of the new.
    assert len(before - data_files(lake)) == 1 and {file.path for file in facts.snapshot.files} < data_files(lake)


def test_an_orphan_that_is_written_again_after_the_report_stays(lake: Lake, spark: "SparkSession") -> None:
    table, uri = table_of(), create(spark, lake, **{"delta.deletedFileRetentionDuration": "interval 7 days"})
    append(spark, uri, 0)
    lake.store.put("bronze/t/part=1/late.parquet", b"123")
    lake.store.put("bronze/t/part=1/old.parquet", b"123")
    age(lake, ["part=1/late.parquet", "part=1/old.parquet"])
    scan(lake.store, now_ms=now_ms())
    lake.store.put("bronze/t/part=1/late.parquet", b"456")
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="INVENTORY")
    assert outcome.spared == {"part=1/late.parquet": "it was written again since it was listed"}
    assert "part=1/late.parquet" in stored(lake) and "part=1/old.parquet" not in stored(lake)


def test_files_that_a_clone_reads_stay(lake: Lake, spark: "SparkSession") -> None:
    table, uri = table_of(), create(spark, lake)
    append(spark, uri, 0)
    clone = lake.settings.table_uri("bronze/clone")
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{uri}`")
    spark.sql(f"DELETE FROM delta.`{uri}`")
    scan(lake.store, now_ms=now_ms())
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="INVENTORY")
    assert outcome.plan.candidates == () and len(rows(spark, clone)) == 4


def test_what_a_reader_of_changes_has_not_read_stays(lake: Lake, spark: "SparkSession") -> None:
    from lakehouse.engine.ingest.write import consume_app_id

    table, uri = table_of(), create(spark, lake, **{"delta.enableChangeDataFeed": "true"})
    reader = Table(key="silver/r", inputs=(table,), transform=lambda t: t, write=Append())
    append(spark, uri, 0)
    facts = lake.facts("bronze/t")
    assert facts is not None
    target = spark.range(1).write.format("delta").option("txnAppId", consume_app_id(facts.snapshot)).option("txnVersion", 1)
    target.save(lake.settings.table_uri("silver/r"))
    files = stored(lake)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE part = 0")
    held = plan(LakeFacts(lake, [table, reader]), table, mode="FULL")
    assert held is not None and held.candidates == () and "silver/r" in held.sentence
    assert plan(LakeFacts(lake, [table]), table, mode="FULL").candidates  # type: ignore[union-attr]
    assert files <= stored(lake)


def test_a_live_file_that_is_gone_stops_it(lake: Lake, spark: "SparkSession") -> None:
    table, uri = table_of(), create(spark, lake)
    append(spark, uri, 0)
    lost = min(data_files(lake))
    (Path(lake.settings.root) / "bronze/t" / lost).unlink()
    from lakehouse.engine.vacuum import table_facts as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SETTLED_MS", -60_000)
        with pytest.raises(Broken, match="not in storage"):
            vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")


def test_a_short_retention_needs_the_word_of_a_person(lake: Lake, spark: "SparkSession") -> None:
    create(spark, lake)
    careful = table_of(accepts_short_retention="")
    with pytest.raises(Refused, match="under a week; accepted: a longer one"):
        vacuum(LakeFacts(lake, [careful]), lambda: spark, careful, mode="FULL")


def test_the_declared_retention_is_set_on_the_table(lake: Lake, spark: "SparkSession") -> None:
    create(spark, lake, **{"delta.deletedFileRetentionDuration": "interval 7 days"})
    table = table_of(retention_hours=800)
    outcome = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
    assert outcome.plan.retention_ms == 800 * 3_600_000
    facts = lake.facts("bronze/t")
    assert facts is not None and facts.snapshot.properties["delta.logRetentionDuration"] == "interval 48000 minutes"
    version = facts.snapshot.version
    vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
    assert lake.facts("bronze/t").snapshot.version == version  # type: ignore[union-attr]
