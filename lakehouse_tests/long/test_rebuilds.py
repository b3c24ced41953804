"""Rebuilds of other kinds than in every run: each write mode, each step at which a run can die, clustering, and nested types."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Compaction, LiquidClustering, Merge, Overwrite, Table
from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.compact.run import compact
from lakehouse.delta.snapshot import Column, types_by_name
from lakehouse.evolve import rebuild
from lakehouse.evolve.plan.rebuild import ColumnSource
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.run import vacuum
from lakehouse_tests.evolve.test_rebuild import rebuilt, staged_files
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import (
    add_events,
    copies,
    event,
    events,
    facts_of,
    rows_in,
    rows_of,
    states,
)
from lakehouse_tests.support.example_snapshots import own_columns
from lakehouse_tests.support.vacuums import deleted

PLAIN = replace(events, write=Append())
STEPS = [
    *(("plan_rebuild", "after"), ("stage_log", "before"), ("stage_log", "after")),
    *(("_replace_rows", "after"), ("_check_staged", "after"), ("commit_staged", "before")),
    *(("commit_staged", "after"), ("apply_properties", "after")),
]


@pytest.mark.parametrize(("step", "when"), STEPS)
def test_a_rebuild_that_is_killed_leaves_the_old_table_or_the_new_one(
    lake: Lake, spark: SparkSession, step: str, when: str
) -> None:
    """From own rows, and from inputs. Increments, and the next rebuild, continue."""
    add_events(lake, event(1, 5, "a"), event(1, 6, "b"), event(2, 5, "b", day=2))
    write_table(lake, spark, states)
    write_table(lake, spark, copies)
    is_new = STEPS.index((step, when)) > STEPS.index(("commit_staged", "before"))
    with killed_at(rebuild, step, when):
        rebuilt(lake, spark, PLAIN, "rows")
    assert facts_of(lake, events.key).snapshot.partition_columns == (() if is_new else ("day",))
    rows = [(1, date(2013, 1, 1)), (1, date(2013, 1, 1)), (2, date(2013, 1, 2))]
    assert rows_in(lake, events.key, "id", "day") == rows

    by_state = replace(states, write=Merge(keys=("id", "state"), order_by=("at",)))
    with killed_at(rebuild, step, when):
        rebuilt(lake, spark, by_state, "inputs")
    before, after = [(1, "b"), (2, "b")], [(1, "a"), (1, "b"), (2, "b")]
    assert rows_in(lake, states.key, "id", "state") == (after if is_new else before)

    rebuilt(lake, spark, PLAIN, "rows")
    rebuilt(lake, spark, by_state, "inputs")
    assert (rows_in(lake, events.key, "id", "day"), staged_files(lake)) == (rows, [])
    for table in (by_state, copies):
        assert write_table(lake, spark, table).reason is Reason.INPUTS_UNCHANGED
    assert rows_in(lake, states.key, "id", "state") == after
    assert rows_in(lake, copies.key, "id") == [(1,), (1,), (2,)]


def test_the_write_mode_changes_with_the_declaration(lake: Lake, spark: SparkSession) -> None:
    add_events(lake, event(1, 5, "a"), event(1, 6, "b"), event(2, 5, "a"))
    write_table(lake, spark, copies)
    merged = replace(copies, write=Merge(keys=("id",), order_by=("state",)))
    with pytest.raises(Refused, match="appended"):
        rebuilt(lake, spark, merged, "rows")
    rebuilt(lake, spark, merged, "inputs")
    assert rows_in(lake, copies.key, "id", "state") == [(1, "b"), (2, "a")]

    whole = replace(states, write=Overwrite())
    write_table(lake, spark, whole)
    with pytest.raises(Refused, match="overwritten"):
        write_table(lake, spark, states)
    rebuilt(lake, spark, states, "inputs")
    assert facts_of(lake, states.key).snapshot.properties["delta.enableChangeDataFeed"] == "true"
    add_events(lake, event(2, 6, "c"))
    assert write_table(lake, spark, states).rows_written == 1
    assert write_table(lake, spark, merged).rows_written == 1
    newest = [(1, "b"), (2, "c")]
    assert rows_in(lake, states.key, "id", "state") == newest
    assert rows_in(lake, copies.key, "id", "state") == newest

    rebuilt(lake, spark, whole, "inputs")
    assert write_table(lake, spark, whole).reason is Reason.INPUTS_UNCHANGED
    rebuilt(lake, spark, whole, "rows")
    assert write_table(lake, spark, whole).reason is Reason.INPUTS_UNCHANGED


def test_partitions_become_clusters_and_vice_versa(lake: Lake, spark: SparkSession) -> None:
    """An overwrite ends the clustering, which is applied again."""
    add_events(lake, event(1, 5, "a"), event(2, 5, "b", day=2))
    clustered = replace(PLAIN, compaction=Compaction(data_layout=LiquidClustering(columns=("id",))))
    rebuilt(lake, spark, clustered, "rows")
    snapshot = facts_of(lake, events.key).snapshot
    assert (snapshot.partition_columns, snapshot.clustering_columns) == ((), ("id",))
    rebuilt(lake, spark, clustered, "rows")
    assert facts_of(lake, events.key).snapshot.clustering_columns == ("id",)
    rebuilt(lake, spark, events, "rows")
    snapshot = facts_of(lake, events.key).snapshot
    assert (snapshot.partition_columns, snapshot.clustering_columns) == (("day",), ())
    assert rows_of(spark, lake, events.key, "id", "state") == [(1, "a"), (2, "b")]


ODD = """SELECT id, IF(id = 1, NULL, map('a', id, 'b', NULL)) AS m, array(struct(id AS x, CAST(NULL AS INT) AS y)) AS l,
    named_struct('x', CAST(id AS INT), 'y', array('s')) AS s, CAST(id AS DOUBLE) AS d, X'00FF' AS b,
    TIMESTAMP'1500-01-01 00:00:00' AS t, DATE'0001-01-01' AS o, CAST(id AS STRING) AS text FROM events"""
CASTS: Mapping[str, str] = {
    "m": "map<string,decimal(20,0)>",
    "s": "struct<x:bigint,y:array<string>>",
    "d": "bigint",
    "t": "timestamp_ntz",
    "o": "timestamp_ntz",
    "text": "int",
}


def test_nested_and_odd_types_are_cast_exactly_or_refused(lake: Lake, spark: SparkSession) -> None:
    add_events(lake, event(1, 5, "a"), event(2, 5, "b"))

    def odd(events: Any) -> Any:
        events.createOrReplaceTempView("events")
        return spark.sql(ODD)

    table = Table(key="silver/odd", inputs=(events,), transform=odd, write=Append())
    write_table(lake, spark, table)
    before = rows_of(spark, lake, table.key, "m", "l", "s", "d", "b", "t")
    present = own_columns(facts_of(lake, table.key).snapshot)

    def cast(types: Mapping[str, str]) -> list[ColumnSource]:
        wanted = {each.column.name: each.column.type for each in present} | {**types}
        columns = [Column(name=name, type=type_) for name, type_ in wanted.items()]
        return [replace(each, column=new) for each, new in zip(present, columns, strict=True)]

    impossible = {"text": {"text": "boolean"}, "d": {"m": "map<string,tinyint>", "d": "date"}}
    for names, types in impossible.items():
        with pytest.raises(Refused, match=names):
            rebuilt(lake, spark, table, "rows", cast(types))
    rebuilt(lake, spark, table, "rows", cast(CASTS))
    after = types_by_name(facts_of(lake, table.key).snapshot.columns)
    assert {name: after[name] for name in CASTS} == CASTS
    assert rows_of(spark, lake, table.key, "m", "l", "s", "d", "b", "t") == before
    assert rows_of(spark, lake, table.key, "text") == [(1,), (2,)]


def test_a_compaction_and_a_vacuum_next_to_a_killed_rebuild_take_nothing_that_is_needed(
    lake: Lake, spark: SparkSession
) -> None:
    """Every version within the retention can be read afterwards."""
    add_events(lake, event(1, 5, "a"), event(2, 5, "b", day=2))
    add_events(lake, event(3, 6, "c"), event(4, 6, "d", day=2))
    rows = rows_in(lake, events.key, "id", "state")
    small = Compaction(min_small_files=2)
    with killed_at(rebuild, "commit_staged", "before"):
        rebuilt(lake, spark, PLAIN, "rows")
    assert (
        compact(lake, spark, replace(events, compaction=small)).entry.compaction.files_removed == 4
    )
    for table in (events, PLAIN):
        vacuumed = vacuum(LakeFacts(lake, [table]), lambda: spark, table, mode="FULL")
        assert (deleted(vacuumed), rows_in(lake, events.key, "id", "state")) == (0, rows)
        rebuilt(lake, spark, PLAIN, "rows")
    assert staged_files(lake) == []
    uri = lake.settings.table_uri(events.key)
    for version in range(facts_of(lake, events.key).snapshot.version + 1):
        frame = spark.read.format("delta").option("versionAsOf", version).load(uri)
        assert frame.count() == (2 if version == 0 else 4)
