"""Members of structs follow the declaration like columns; a rebuild computes derived columns."""

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Debezium, Landing, Merge, Table
from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.delta.snapshot import types_by_name
from lakehouse.evolve.compare import compare_without_spark
from lakehouse.evolve.run import apply_changes, propose
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import facts_of, land

PREFIX = "landing/people/"


def people(schema: str, **more: Any) -> Table:
    landing = Landing(prefix=PREFIX, format="json", schema=schema, **more)
    return Table(key="bronze/people", source=landing, write=Append())


def rows(lake: Lake, spark: SparkSession, key: str) -> list[dict[str, Any]]:
    frame = spark.read.format("delta").load(lake.settings.table_uri(key)).orderBy("id")
    names = [name for name in frame.columns if not name.startswith("_")]
    return [row.asDict(recursive=True) for row in frame.select(*names).collect()]


@pytest.mark.long
def test_members_follow_in_structs_arrays_and_maps(lake: Lake, spark: SparkSession) -> None:
    old = "STRUCT<email: STRING, age: INT>"
    first = people(f"id BIGINT, who {old}, all ARRAY<{old}>, by MAP<STRING, {old}>")
    person = {"email": "a@x", "age": 30}
    line = {"id": 1, "who": person, "all": [person, None], "by": {"k": person}}
    land(lake, "1.json", [line, {"id": 2, "who": None, "all": None, "by": {}}], prefix=PREFIX)
    write_table(lake, spark, first)
    silver = Table(
        key="silver/people",
        inputs=(first,),
        transform=lambda people: people.select("id", "who", "by", "_source_line"),
        write=Merge(keys=("id",), order_by=("_source_line",)),
    )
    write_table(lake, spark, silver)

    new = "STRUCT<city: STRING, age: INT>"
    second = people(f"id BIGINT, who {new}, all ARRAY<{new}>, by MAP<STRING, {new}>")
    person = {"city": "Rome", "age": 31}
    line = {"id": 3, "who": person, "all": [person], "by": {"k": person}}
    land(lake, "2.json", [line], prefix=PREFIX)
    write_table(lake, spark, second)
    write_table(lake, spark, replace(silver, inputs=(second,)))
    one = {"city": None, "email": "a@x", "age": 30}
    three = {"city": "Rome", "email": None, "age": 31}
    expected = [
        {"id": 1, "who": one, "all": [one, None], "by": {"k": one}},
        {"id": 2, "who": None, "all": None, "by": {}},
        {"id": 3, "who": three, "all": [three], "by": {"k": three}},
    ]
    assert rows(lake, spark, first.key) == expected
    for row in expected:
        del row["all"]
    assert rows(lake, spark, silver.key) == expected

    wide = "STRUCT<age: BIGINT, city: STRING>"
    third = people(f"id BIGINT, who {wide}, all ARRAY<{new}>, by MAP<STRING, {new}>")
    session = TableSession(lake=lake, spark=spark, table=third)
    # Nothing new has landed, and the check of the declaration says that the change waits.
    assert write_table(lake, spark, third).reason is Reason.NOTHING_LANDED
    [waiting] = compare_without_spark(lake, third, facts_of(lake, third.key)).blocking
    assert waiting.sentence.startswith("who is declared as struct<age:bigint,city:string>")
    land(lake, "3.json", [{"id": 4, "who": {"age": 1, "city": "Oslo"}}], prefix=PREFIX)
    with pytest.raises(Refused, match="who is declared as struct<age:bigint,city:string>"):
        write_table(lake, spark, third)
    apply_changes(session, (third,), lambda _: None)
    types = types_by_name(facts_of(lake, first.key).snapshot.columns)
    assert types["who"] == "struct<city:string,email:string,age:bigint>"
    assert [row["who"] for row in rows(lake, spark, first.key)] == [one, None, three]


@pytest.mark.long
def test_a_member_added_to_change_data_is_filled_if_sent(lake: Lake, spark: SparkSession) -> None:
    def declared(type_: str) -> Table:
        landing = Landing(
            prefix=PREFIX, format="json", schema=f"id BIGINT, who {type_}", changes=Debezium()
        )
        return Table(key="bronze/people", source=landing, write=Merge(keys=("id",)))

    def event(id_: int, position: int, who: Any) -> dict[str, Any]:
        after = {"id": id_, "who": who}
        return {"op": "u", "ts_ms": position, "source": {"lsn": position}, "after": after}

    old = [event(1, 1, {"email": "a@x"}), event(2, 2, {"email": "b@x"})]
    land(lake, "1.json", old, prefix=PREFIX)
    write_table(lake, spark, declared("STRUCT<email: STRING>"))
    new = [
        event(1, 3, {"email": "c@x", "city": "Rome"}),
        event(2, 4, "__debezium_unavailable_value"),
    ]
    land(lake, "2.json", new, prefix=PREFIX)
    write_table(lake, spark, declared("STRUCT<email: STRING, city: STRING>"))
    assert rows(lake, spark, "bronze/people") == [
        {"id": 1, "who": {"email": "c@x", "city": "Rome"}},
        {"id": 2, "who": {"email": "b@x", "city": None}},
    ]


@pytest.mark.long
def test_a_rebuild_computes_missing_derived_values(lake: Lake, spark: SparkSession) -> None:
    """Also if the table is partitioned by the new column."""
    schema = "id BIGINT, at TIMESTAMP"
    lines = [{"id": 1, "at": "2026-11-01T00:00:00Z"}, {"id": 2, "at": None}]
    land(lake, "1.json", lines, prefix=PREFIX)
    write_table(lake, spark, people(schema))
    derived = people(schema, derived={"month": "date_format(at, 'yyyy-MM')"})
    session = TableSession(lake=lake, spark=spark, table=derived)
    [note] = propose(session, (derived,)).notes
    assert note == (
        "existing rows have null in month until `lakehouse rebuild bronze/people` computes their"
        " values"
    )
    parted = replace(derived, write=Append(partition_by=("month",)))
    session = replace(session, table=parted)
    plan = propose(session, (parted,))
    assert plan.rebuild is not None
    expected = "month (string) is added, computed as date_format(at, 'yyyy-MM')"
    assert plan.rebuild.changes[0] == expected
    apply_changes(session, (parted,), lambda _: None)
    months = [row["month"] for row in rows(lake, spark, derived.key)]
    assert months == ["2026-11", None]
    assert facts_of(lake, derived.key).snapshot.partition_columns == ("month",)
