"""Old partitions move into the archive, as plain files, in one commit that reads no data."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from lakehouse import Adopted, Append, Archive, Overwrite, Table, Ttl
from lakehouse.core.delta.commits import written_in
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.evolution.rebuild import RebuildRequest
from lakehouse.core.reasons import Reason
from lakehouse.engine import clock
from lakehouse.engine.archive import commit, copies, run
from lakehouse.engine.archive.read import read_table
from lakehouse.engine.archive.run import plan, run_archive
from lakehouse.engine.clock import now_ms
from lakehouse.engine.evolution.move_facts import plan_move
from lakehouse.engine.evolution.rebuild import plan_rebuild
from lakehouse.engine.lake import Lake
from lakehouse.engine.ttl import run as ttl_run
from lakehouse_tests.engine.archive.cases import (
    DAYS,
    KEY,
    add_rows,
    archive_rows,
    contents_now,
    facts_now,
    session_of,
    table_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Ten days of two rows each. With day 10 as the newest, days 1 to 6 ended three days before it.
ROWS = [(10 * day + place, day) for day in range(1, 11) for place in range(2)]
OLD, RECENT = ROWS[:12], ROWS[12:]


def test_old_partitions_move_in_one_commit_that_reads_no_data(
    lake: Lake, spark: "SparkSession"
) -> None:
    add_rows(lake, ROWS)
    before = facts_now(lake).snapshot
    whole = Table(key="gold/all", inputs=(DAYS,), transform=lambda days: days, write=Overwrite())
    planned = plan(lake, DAYS, [DAYS, whole])
    assert planned is not None
    assert planned.sentence == (
        f"6 partitions (12 rows in 6 files, {planned.sentence.split('files, ')[1].split(')')[0]})"
        " move to the archive: from before 2013-01-07 00:00 UTC"
    )
    assert (
        "tables that read all rows of this table no longer read these rows: gold/all"
        in planned.notes
    )
    outcome = run_archive(session_of(lake, spark))
    after = facts_now(lake)
    [made] = [each for each in after.history.commits if each.version > before.version]
    moved = {file.path for file in before.files} - {file.path for file in after.snapshot.files}
    assert (made.operation, made.added_paths) == ("DELETE", ())
    assert {*made.removed_paths} == moved and len(moved) == 6
    assert after.snapshot.transactions["lakehouse-archive"] == 1
    written = written_in(made)
    assert (written["rows_moved"], written["rows"], written["plan"]["rows"]) == ("archive", 12, 12)
    assert (table_rows(lake), archive_rows(lake)) == (RECENT, OLD)
    assert outcome.version_after == made.version
    assert [(each.predicted, each.actual) for each in outcome.figures[:2]] == [(6, 6), (12, 12)]
    # The files keep their names, in folders like those of the table.
    folder = Path(lake.settings.root, "archive", KEY)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
    assert names == moved
    again = run_archive(session_of(lake, spark))
    assert again.plan.reason is Reason.NOTHING_PAST_THE_CUTOFF
    assert again.plan.sentence == "no partition to archive is from before 2013-01-07 00:00 UTC"
    assert again.version_after is None and facts_now(lake).snapshot.version == made.version


def test_a_dead_feed_does_not_empty_its_table(lake: Lake, spark: "SparkSession") -> None:
    add_rows(lake, ROWS)
    run_archive(session_of(lake, spark))
    by_today = replace(DAYS, archive=Archive(older_than_days=3))
    planned = [plan(lake, each) for each in (DAYS, by_today)]
    assert [each and len(each.partitions) for each in planned] == [0, 4]


def test_late_rows_join_the_archive_or_stay(lake: Lake, spark: "SparkSession") -> None:
    add_rows(lake, ROWS)
    run_archive(session_of(lake, spark))
    add_rows(lake, [(99, 1), (98, 2)])
    keep = replace(DAYS, archive=Archive(older_than_days=3, clock="newest_row", late="keep"))
    kept = run_archive(session_of(lake, spark, keep))
    assert kept.version_after is None
    assert kept.plan.notes[0] == (
        "late rows stay in the table (Archive.late is 'keep'): day=2013-01-01, day=2013-01-02"
    )
    outcome = run_archive(session_of(lake, spark))
    assert outcome.plan.notes[0] == ("late rows join the archive: day=2013-01-01, day=2013-01-02")
    assert archive_rows(lake) == sorted([*OLD, (99, 1), (98, 2)])
    assert table_rows(lake) == RECENT
    assert [each.number for each in contents_now(lake).partitions] == [1] * 6 + [2] * 2


def test_rows_that_a_deletion_vector_hides_stay_deleted(lake: Lake, spark: "SparkSession") -> None:
    """Such files are written again. A partition without any row left moves, too."""
    uri = lake.settings.table_uri(KEY)
    rows = spark.createDataFrame(ROWS, "id BIGINT, n INT")
    days = rows.selectExpr(
        "id", "array(struct(id AS a, -id AS b)) AS pairs", "date_add(DATE'2012-12-31', n) AS day"
    ).coalesce(1)
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    days.write.format("delta").partitionBy("day").options(**properties).save(uri)
    spark.sql(f"ALTER TABLE delta.`{uri}` RENAME COLUMN id TO number")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE number IN (11, 20, 21)")
    outcome = run_archive(session_of(lake, spark))
    assert outcome.plan.notes[0].endswith(
        ": its columns have other names in the files (column mapping)"
    )
    found = spark.read.option("basePath", f"{lake.settings.root}/archive/{KEY}").parquet(
        *[
            f"{lake.settings.root}/{file.archived}"
            for each in contents_now(lake).partitions
            for file in each.files
        ]
    )
    gone = {11, 20, 21}
    assert found.columns == ["number", "pairs", "day"]
    assert sorted(row["number"] for row in found.collect()) == [
        id_ for id_, _ in OLD if id_ not in gone
    ]
    assert not lake.store.list(f"_lakehouse/archives/{KEY}/staged")
    # The record has the names of columns at the time of the move.
    for old, new in (
        ("number", "serial"),
        ("pairs.element.a", "c"),
        ("pairs.element.b", "a"),
        ("pairs.element.c", "b"),
    ):
        spark.sql(f"ALTER TABLE delta.`{uri}` RENAME COLUMN {old} TO {new}")
    all_rows = read_table(session_of(lake, spark), with_archive=True)
    assert sorted((row["serial"], *row["pairs"][0]) for row in all_rows.collect()) == [
        (id_, id_, -id_) for id_, _ in ROWS if id_ not in gone
    ]
    assert all_rows.schema["pairs"].simpleString() == "pairs:array<struct<b:bigint,a:bigint>>"


def test_a_copy_that_differs_from_its_file_stops_the_run(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rows(lake, ROWS)
    real = copies.copy_files

    def spoil(lake: Lake, key: str, operation: Any) -> None:
        real(lake, key, operation)
        name = operation.files[2].archived
        data = bytearray(lake.store.read(name))
        data[10] ^= 1
        lake.store.put(name, bytes(data))

    with monkeypatch.context() as patch:
        patch.setattr(run, "copy_files", spoil)
        with pytest.raises(
            Broken, match=r"1 archived file differed from the original, for example .*checksum"
        ):
            run_archive(session_of(lake, spark))
    assert table_rows(lake) == ROWS and archive_rows(lake) == []
    assert run_archive(session_of(lake, spark)).operation is not None
    assert (table_rows(lake), archive_rows(lake)) == (RECENT, OLD)


def test_late_rows_during_the_copy_are_copied_as_well(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rows(lake, ROWS)
    real, late = copies.copy_files, [(97, 1), (96, 1)]

    def meanwhile(lake: Lake, key: str, operation: Any) -> None:
        real(lake, key, operation)
        if late:
            add_rows(lake, [late.pop()])

    monkeypatch.setattr(run, "copy_files", meanwhile)
    outcome = run_archive(session_of(lake, spark))
    assert outcome.operation is not None and outcome.operation.number == 1
    assert archive_rows(lake) == sorted([*OLD, (96, 1), (97, 1)])
    assert table_rows(lake) == RECENT
    late += [(95, 1), (94, 1), (93, 1), (92, 1)]
    add_rows(lake, [(91, 1)])
    with pytest.raises(Transient, match="other writers changed its old partitions 3 times"):
        run_archive(session_of(lake, spark))


def test_rows_that_the_delete_took_unread_are_named(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program adds a row between the last look at the log and the DELETE."""
    add_rows(lake, ROWS)
    real = commit.expect_commit

    def meanwhile(*arguments: Any) -> None:
        real(*arguments)
        add_rows(lake, [(99, 1)])

    with monkeypatch.context() as patch:
        patch.setattr(commit, "expect_commit", meanwhile)
        with pytest.raises(Broken, match=r"version 2 also removed 1 file.* in version 1 only"):
            run_archive(session_of(lake, spark))
    lost = DeltaTable(lake.settings.table_uri(KEY), version=1).to_pyarrow_table(columns=["id"])
    assert 99 in lost["id"].to_pylist()
    assert run_archive(session_of(lake, spark)).version_after is None  # reported once


@pytest.mark.parametrize(
    ("statement", "condition"), [("DELETE FROM", "id = 10"), ("OPTIMIZE", "day = '2013-01-01'")]
)
def test_a_change_just_before_the_delete_is_named(
    lake: Lake,
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    condition: str,
) -> None:
    """A deletion vector keeps the path of its file: the deleted row would live on in the archive."""
    uri = lake.settings.table_uri(KEY)
    add_rows(lake, ROWS)
    add_rows(lake, [(99, 1)])
    spark.sql(
        f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    real = commit.expect_commit

    def meanwhile(*arguments: Any) -> None:
        real(*arguments)
        spark.sql(f"{statement} delta.`{uri}` WHERE {condition}")

    monkeypatch.setattr(commit, "expect_commit", meanwhile)
    found = r"version 3, of another program, .* version 4 removed them.* version 3 with"
    with pytest.raises(Broken, match=found):
        run_archive(session_of(lake, spark))


def test_a_clock_that_is_ahead_moves_nothing(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rows(lake, ROWS)
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms() + 400_000)
    with pytest.raises(
        Refused, match=r"this machine's clock and the storage's clock differ by (399|400) s"
    ):
        run_archive(session_of(lake, spark))
    expiring = replace(DAYS, archive=None, ttl=Ttl(column="day", days=3))
    with pytest.raises(
        Refused, match=r"this machine's clock and the storage's clock differ by (399|400) s"
    ):
        ttl_run.run(lake, lambda: spark, expiring)
    assert table_rows(lake) == ROWS


def test_a_restored_older_version_is_found_before_rows_are_doubled(
    lake: Lake, spark: "SparkSession"
) -> None:
    add_rows(lake, ROWS)
    run_archive(session_of(lake, spark))
    DeltaTable(lake.settings.table_uri(KEY)).restore(0)
    with pytest.raises(Broken, match="version 2 is a RESTORE of a version before"):
        run_archive(session_of(lake, spark))


def test_a_table_that_would_be_rewritten_is_refused(lake: Lake) -> None:
    adopted = Table(
        key=KEY,
        write=Adopted(uri=lake.settings.table_uri(KEY)),
        archive=Archive(),
    )
    assert plan(lake, adopted) is None
    add_rows(lake, ROWS, configuration={"delta.appendOnly": "true"})
    with pytest.raises(Refused, match=r"delta.appendOnly is true"):
        plan(lake, adopted)
    with pytest.raises(Refused, match="none is declared"):
        plan(lake, replace(DAYS, archive=None))


def test_a_table_with_archived_partitions_is_neither_rebuilt_nor_moved(
    lake: Lake, spark: "SparkSession"
) -> None:
    add_rows(lake, ROWS)
    moved = replace(DAYS, key="bronze/dates", formerly=KEY)
    request = RebuildRequest(table=DAYS, source="rows")
    plan_rebuild(session_of(lake, spark), request)
    run_archive(session_of(lake, spark))
    with pytest.raises(Refused, match="rebuild of bronze/days: partitions of bronze/days are in"):
        plan_rebuild(session_of(lake, spark), request)
    planned = plan_move(lake, moved, [moved])
    assert planned is not None
    assert "`lakehouse archive restore bronze/days --into-source` first" in planned.sentence


def test_the_plan_is_json(lake: Lake) -> None:
    add_rows(lake, ROWS)
    planned = plan(lake, replace(DAYS, write=Append(partition_by=("day",))))
    assert planned is not None
    shape = json.loads(json.dumps(planned.as_json()))
    assert shape["partitions"][0]["values"] == {"day": "2013-01-01"}
    assert (shape["files"], shape["rows"], shape["number"]) == (6, 12, 1)
