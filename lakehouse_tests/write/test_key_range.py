"""A MERGE that reads only files with keys in the range of its rows has the rows of one that reads all."""

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse.base.settings import Settings
from lakehouse.declare.table import Merge
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse.spark import statements, temporary_confs
from lakehouse.spark.frames import Transaction, table_at
from lakehouse.spark.temporary_confs import INTERPRETED, session_confs
from lakehouse.write.commit_rows import merge_rows, with_key_range
from lakehouse_tests.support.clients import new_session
from lakehouse_tests.support.example_lake import add_events, event, facts_of, rows_in, states

# Columns of a key: of the rows of a table, each in a file of its own, and of those that are merged: the first three are rows 1 to 3 of the
# table, the last is new. A range that is wrong leaves one of their files out, whose row is then there twice.
_EARLY, _LATE = "TIMESTAMP'1900-01-01T00:00:00Z'", "TIMESTAMP'2013-03-31T02:00:00.000001Z'"
_DAY = "DATE'2013-01-01'"
_FAR = "DATE'+12013-01-01'"
_CLOCK = "'o''clock \\\\ ${x}'"
_NO_UTF8 = "CAST(X'E4727A' AS STRING)"
KEYS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "whole BIGINT": (
        ["-9223372036854775808", "-1", "0", "0", "9223372036854775807", "9223372036854775807"],
        ["-1", "0", "0", "1"],
    ),
    # Statistics tell bytes that are no UTF-8 as another sign, so that a range of such texts would leave their files out.
    "text STRING": (
        ["''", "'a'", _CLOCK, _NO_UTF8, "'zz'", f"'{'y' * 300}'"],
        ["'a'", _CLOCK, _NO_UTF8, "'\u6f22'"],
    ),
    "ascii STRING": (
        ["''", "'a'", "'a'", "'a'", "'zz'", f"'{'y' * 300}'"],
        ["'a'", "'a'", "'a'", "'b'"],
    ),
    "day DATE": (
        ["DATE'0001-01-01'", _DAY, _FAR, _DAY, "DATE'0001-01-01'", _DAY],
        [_DAY, _FAR, _DAY, _DAY],
    ),
    "at TIMESTAMP": (
        [_EARLY, _LATE, _LATE, _LATE, "TIMESTAMP'2013-03-31T01:59:59.999999Z'", _EARLY],
        [_LATE, _LATE, _LATE, "TIMESTAMP'2013-03-31T02:00:00.000002Z'"],
    ),
    "real DOUBLE": (
        ["1.5D", "0.0D", "double('NaN')", "double('NaN')", "1.5D", "1.5D"],
        ["-0.0D", "double('NaN')", "double('NaN')", "2.5D"],
    ),
    "some_null BIGINT": (["9", "NULL", "1", "NULL", "9", "1"], ["NULL", "1", "NULL", "1"]),
}


@pytest.mark.spark
def test_no_row_is_doubled_whatever_the_key(lake: Lake, spark: SparkSession) -> None:
    keys = tuple(column.split()[0] for column in KEYS)

    def rows(side: int, version: int) -> DataFrame:
        columns = [
            [f"CAST({value} AS {column.split()[1]})" for value in sides[side]]
            for column, sides in KEYS.items()
        ]
        values = ", ".join(
            f"({', '.join(row)}, {number}, {version})"
            for number, row in enumerate(zip(*columns, strict=True))
        )
        return spark.sql(f"SELECT * FROM VALUES {values} AS t({', '.join(keys)}, number, version)")

    uri, write = lake.settings.table_uri("silver/keys"), Merge(keys=keys, order_by=("version",))
    with session_confs(spark, {"spark.sql.session.timeZone": "Europe/Berlin", **INTERPRETED}):
        rows(0, 1).repartitionByRange(6, "number").write.format("delta").save(uri)
        snapshot = facts_of(lake, "silver/keys").snapshot
        assert snapshot.file_count == 6
        transaction = Transaction(app_id="t", version=1)
        merge_rows(rows(1, 2), snapshot, write, transaction, are_few=True)
        found = table_at(spark, snapshot, version=1).groupBy(*keys).count()
        counts = [row["count"] for row in found.select("count").collect()]
    assert counts == [1] * 7


@pytest.mark.spark
def test_the_merged_rows_are_those_of_the_range(spark: SparkSession) -> None:
    """Their keys would be others whenever they are computed again."""
    kept, [within] = with_key_range(
        spark.range(20).selectExpr("int(rand() * 1000000000) AS k"), ("k",)
    )
    assert [kept.where(within).count() for _ in range(3)] == [20] * 3
    assert sorted(kept.collect()) == sorted(kept.collect())


@pytest.mark.spark
def test_kept_rows_belong_to_their_session(shared_settings: Settings, spark: SparkSession) -> None:
    """PySpark would give them to the one that was opened last."""
    newest = new_session(shared_settings)
    try:
        kept, within = with_key_range(spark.range(3), ("id",))
        assert (kept.sparkSession is spark, within) == (True, ("`id` BETWEEN 0 AND 2",))
        assert kept.count() == 3
    finally:
        newest.stop()


@pytest.mark.long
@pytest.mark.spark
def test_a_follower_merges_by_range_where_its_input_brings_few_rows(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary_confs, "_LEAST_ROWS", 10)
    add_events(lake, *(event(number, 5, f"planned {number}") for number in range(400)))
    write_table(lake, spark, states)
    conditions, merge_into = list[str](), statements.merge_into

    def told(uri: str, source: str, condition: str, action: str) -> str:
        conditions.append(condition)
        return merge_into(uri, source, condition, action)

    monkeypatch.setattr(statements, "merge_into", told)
    add_events(lake, event(7, 6, "left"), event(399, 5, "as before"), event(400, 5, "planned 400"))
    write_table(lake, spark, states)
    same_id = "target.`id` <=> source.`id`"
    assert conditions == [f"{same_id} AND target.`id` BETWEEN 7 AND 400"]
    expected = [(number, "left" if number == 7 else f"planned {number}") for number in range(401)]
    assert sorted(rows_in(lake, states.key, "id", "state")) == expected
    monkeypatch.setattr(temporary_confs, "_LEAST_ROWS", 1_000)
    add_events(lake, event(8, 6, "left"))
    write_table(lake, spark, states)
    assert conditions[1:] == [same_id]
