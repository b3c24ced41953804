"""A rebuilt table has exactly its rows, under other columns, partitions, keys or code; and its readers and landed files go on."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakehouse import Append, Landing, Table
from lakehouse.base.errors import Refused, Transient
from lakehouse.base.reasons import Reason
from lakehouse.delta.snapshot import Column
from lakehouse.evolve import rebuild
from lakehouse.evolve.plan.rebuild import (
    ColumnSource,
    RebuildOutcome,
    RebuildRequest,
    declared_sources,
)
from lakehouse.evolve.rebuild import run_rebuild
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.materialize.run import write_table
from lakehouse.spark.temporary_confs import session_confs
from lakehouse.store import DiskStore
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import (
    add_events,
    event,
    events,
    facts_of,
    land,
    rows_in,
    rows_of,
    version_of,
)
from lakehouse_tests.support.example_snapshots import own_columns

PREFIX = "landing/shops/"
SHOPS = Table(
    key="bronze/shops",
    source=Landing(
        prefix=PREFIX,
        format="csv",
        schema="id BIGINT, city STRING, price DECIMAL(6,2), visits BIGINT",
        required=("id",),
    ),
    write=Append(),
)
TOWNS = replace(
    SHOPS,
    source=replace(
        SHOPS.landing,
        schema="id BIGINT, town STRING, price DECIMAL(10,3), visits INT, note STRING COMMENT 'new'",
    ),
    write=Append(partition_by=("town",)),
    renamed={"city": "town"},
)
LATER = Table(
    key="silver/shops", inputs=(SHOPS,), write=Append(), transform=lambda shops: shops.select("id")
)

_DELTA = "spark.databricks.delta"
# Delta writes several files of few rows, and compacts two of them after a commit.
SMALL_FILES = {"optimizeWrite.binSize": "20000b", "autoCompact.minNumFiles": "2"}


def rebuilt(
    lake: Lake,
    spark: SparkSession,
    table: Table,
    source: str,
    columns: Iterable[ColumnSource] = (),
    readers: Iterable[Table] = (),
) -> RebuildOutcome:
    """A rebuild from own rows (`source` is "rows"), by default with the same columns, or from inputs."""
    snapshot = facts_of(lake, table.key).snapshot
    request = RebuildRequest(table=table)
    if source == "rows":
        columns = tuple(columns) or own_columns(snapshot)
        request = RebuildRequest(table=table, columns=columns, existing=snapshot.columns)
    return run_rebuild(TableSession(lake=lake, spark=spark, table=table), request, readers)


def staged_files(lake: Lake) -> list[str]:
    return [file.name for file in lake.store.list("_lakehouse/rebuilds")]


def followed_by(lake: Lake, line: Mapping[str, Any]) -> Callable[..., int]:
    """The comparison of staged rows, after which another writer commits an event."""
    real: Callable[..., int] = rebuild._check_staged

    def run(*arguments: Any) -> int:
        row_count = real(*arguments)
        add_events(lake, line)
        return row_count

    return run


def towns(lake: Lake, visits: str = "int") -> tuple[ColumnSource, ...]:
    declared = [
        Column(name="id", type="bigint"),
        Column(name="town", type="string"),
        Column(name="price", type="decimal(10,3)"),
        Column(name="visits", type=visits),
        Column(name="note", type="string", comment="new"),
    ]
    return declared_sources(TOWNS, declared, facts_of(lake, SHOPS.key).snapshot)


def test_own_rows_get_other_names_types_and_partitions_and_landed_files_and_readers_go_on(
    lake: Lake, spark: SparkSession
) -> None:
    """deltalake reads the result. A type that does not hold a value of one row is refused with the count."""
    lines = ["id,city,price,visits", "1,Rome,1.25,70000", "2,,-0.10,", "3,Oslo,,-5"]
    land(lake, "1.csv", lines, prefix=PREFIX)
    write_table(lake, spark, SHOPS)
    write_table(lake, spark, LATER)
    land(lake, "2.csv", ["id,city,price,visits", "4,Rome,9999.99,1"], prefix=PREFIX)
    write_table(lake, spark, SHOPS)
    before = version_of(lake, SHOPS.key)

    message = r"smallint cannot exactly hold the values of visits in 1 row"
    with pytest.raises(Refused, match=message):
        rebuilt(lake, spark, TOWNS, "rows", towns(lake, "smallint"))
    with pytest.raises(Refused, match=r"silver/shops .* Use `lakehouse materialize silver/shops`"):
        rebuilt(lake, spark, TOWNS, "rows", towns(lake), [LATER])
    assert (version_of(lake, SHOPS.key), staged_files(lake)) == (before, [])
    write_table(lake, spark, LATER)

    done = rebuilt(lake, spark, TOWNS, "rows", towns(lake), [LATER])
    assert done.row_count == 4
    assert done.plan.readers == ()
    assert done.plan.changes == (
        "city is renamed to town",
        "the type of price changes from decimal(6,2) to decimal(10,3)",
        "the type of visits changes from bigint to int",
        "note (string) is added, with null in all rows",
        "partitioned by town",
    )
    snapshot = facts_of(lake, SHOPS.key).snapshot
    assert snapshot.partition_columns == ("town",)
    assert [(each.name, each.type) for each in snapshot.columns][:5] == [
        ("id", "bigint"),
        ("town", "string"),
        ("price", "decimal(10,3)"),
        ("visits", "int"),
        ("note", "string"),
    ]
    assert snapshot.columns[4].comment == "new"
    columns = ("id", "town", "price", "visits", "note", "_source_line")
    rows = [
        (1, "Rome", Decimal("1.250"), 70000, None, 2),
        (2, None, Decimal("-0.100"), None, None, 3),
        (3, "Oslo", None, -5, None, 4),
        (4, "Rome", Decimal("9999.990"), 1, None, 2),
    ]
    assert rows_in(lake, SHOPS.key, *columns) == rows
    assert staged_files(lake) == []

    assert write_table(lake, spark, TOWNS).reason is Reason.NOTHING_LANDED
    assert write_table(lake, spark, LATER).reason is Reason.INPUTS_UNCHANGED
    land(lake, "3.csv", ["id,town,price,visits,note", "5,Bern,2.125,3,x"], prefix=PREFIX)
    assert write_table(lake, spark, TOWNS).rows_written == 1
    assert write_table(lake, spark, LATER).rows_written == 1
    assert rows_in(lake, SHOPS.key, *columns) == [*rows, (5, "Bern", Decimal("2.125"), 3, "x", 2)]
    assert rows_in(lake, LATER.key, "id") == [(1,), (2,), (3,), (4,), (5,)]


def test_rows_of_another_writer_are_not_lost_even_if_the_rebuild_is_killed(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come between the reading and the commit: the rebuild ends without a change, and the next one has them."""
    add_events(lake, event(1, 5, "a"))
    plain = replace(events, write=Append())
    with killed_at(rebuild, "_replace_rows", "after"):
        rebuilt(lake, spark, plain, "rows")
    assert (version_of(lake, events.key), bool(staged_files(lake))) == (0, True)

    files = {file.name for file in lake.store.list(events.key)}
    with monkeypatch.context() as patch:
        patch.setattr(rebuild, "_check_staged", followed_by(lake, event(2, 5, "b", day=2)))
        with pytest.raises(Transient, match="another writer created version 1 first"):
            rebuilt(lake, spark, plain, "rows")
    assert rows_in(lake, events.key, "id") == [(1,), (2,)]
    new_files = {file.name for file in lake.store.list(events.key)} - files
    assert len(new_files) == 2  # the other writer's: its file and its commit

    DeltaTable(lake.settings.table_uri(events.key)).create_checkpoint()
    rebuilt(lake, spark, plain, "rows")
    assert facts_of(lake, events.key).snapshot.partition_columns == ()
    rows = [(1, "a", date(2013, 1, 1)), (2, "b", date(2013, 1, 2))]
    assert (rows_in(lake, events.key, "id", "state", "day"), staged_files(lake)) == (rows, [])


def test_a_compaction_by_delta_of_the_staged_rows_puts_no_live_file_at_risk(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer takes the version after the rebuild's: the files of the rebuild are live, and stay."""
    plain = replace(events, write=Append())
    for day in (1, 2, 3):
        add_events(lake, *(event(id_, 5, "a" * 40, day=day) for id_ in range(400)))
    uri = f"delta.`{lake.settings.table_uri(events.key)}`"
    spark.sql(f"ALTER TABLE {uri} SET TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true')")
    real = DiskStore.put_if_absent

    def then_another(store: DiskStore, name: str, data: bytes) -> bool:
        is_created = real(store, name, data)
        if name == f"{events.key}/_delta_log/{4:020}.json":
            spark.sql(f"INSERT INTO {uri} SELECT id + 1000, at, state, day FROM {uri} LIMIT 1")
        return is_created

    monkeypatch.setattr(DiskStore, "put_if_absent", then_another)
    with session_confs(spark, {f"{_DELTA}.{name}": value for name, value in SMALL_FILES.items()}):
        rebuilt(lake, spark, plain, "rows")
    assert len(rows_in(lake, events.key, "id")) == 1_201


PLACES = Table(
    key="bronze/places",
    source=Landing(prefix=PREFIX, format="json", schema="id BIGINT, city STRING"),
    write=Append(),
)


def test_an_empty_text_does_not_become_null_as_a_partition(lake: Lake, spark: SparkSession) -> None:
    land(lake, "1.json", [{"id": 1, "city": ""}, {"id": 2, "city": "Rome"}], prefix=PREFIX)
    write_table(lake, spark, PLACES)
    by_city = replace(PLACES, write=Append(partition_by=("city",)))
    message = "a partition column of type string cannot exactly hold the values of city in 1 row"
    with pytest.raises(Refused, match=message):
        rebuilt(lake, spark, by_city, "rows")
    assert version_of(lake, PLACES.key) == 0


@pytest.mark.long
def test_a_table_with_column_mapping_is_rebuilt_and_its_readers_go_on(
    lake: Lake, spark: SparkSession
) -> None:
    """Delta replaces no columns of such a table while its change data feed is on."""
    copies = replace(LATER, inputs=(PLACES,), transform=lambda places: places.select("id"))
    land(lake, "1.json", [{"id": 1, "city": "Oslo"}, {"id": 2, "city": "Rome"}], prefix=PREFIX)
    write_table(lake, spark, PLACES)
    write_table(lake, spark, copies)
    uri = f"delta.`{lake.settings.table_uri(PLACES.key)}`"
    spark.sql(f"ALTER TABLE {uri} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    by_city = replace(PLACES, write=Append(partition_by=("city",)))
    rebuilt(lake, spark, by_city, "rows", readers=[copies])
    properties = facts_of(lake, PLACES.key).snapshot.properties
    assert properties["delta.enableChangeDataFeed"] == "true"
    land(lake, "2.json", [{"id": 3, "city": "Bern"}], prefix=PREFIX)
    write_table(lake, spark, by_city)
    assert write_table(lake, spark, copies).rows_written == 1
    rows = [(1, "Oslo"), (2, "Rome"), (3, "Bern")]
    assert rows_of(spark, lake, PLACES.key, "id", "city") == rows
    assert rows_in(lake, copies.key, "id") == [(1,), (2,), (3,)]
