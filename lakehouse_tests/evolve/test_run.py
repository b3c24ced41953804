"""What `lakehouse evolve` does, who may be asked, and what a killed one leaves."""

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Landing, Table
from lakehouse.assets.keys import table_key
from lakehouse.base.errors import Refused
from lakehouse.declare.table import Adopted
from lakehouse.evolve import rebuild
from lakehouse.evolve.plan.changes import Kind
from lakehouse.evolve.run import apply_changes, propose
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.materialize.run import write_table
from lakehouse_tests.kills import killed_at
from lakehouse_tests.support.example_lake import facts_of, land, rows_of

PREFIX = "landing/shops/"


def shops(schema: str, **more: Any) -> Table:
    landing = Landing(prefix=PREFIX, format="json", schema=schema)
    return Table(key="bronze/shops", source=landing, write=Append(), **more)


FIRST = shops("id BIGINT, city STRING, n INT")


def quiet(_: str) -> None:
    """No one looks on."""


def test_a_killed_change_goes_on_and_declared_columns_stay(lake: Lake, spark: SparkSession) -> None:
    land(lake, "1.json", [{"id": 1, "city": "Rome", "n": 5}], prefix=PREFIX)
    write_table(lake, spark, FIRST)
    table = shops("id BIGINT, town STRING", renamed={"city": "town"})
    session = TableSession(lake=lake, spark=spark, table=table)

    def applied(*drop: str) -> tuple[str, ...]:
        return apply_changes(session, (table,), quiet, drop=drop).sentences

    for name, why in (("town", "the table has no such column"), ("id", "it is declared")):
        with pytest.raises(Refused, match=f"--drop {name}: {why}"):
            applied(name)
        with pytest.raises(Refused, match=f"--drop {name}: {why}"):
            propose(session, (table,), drop=(name,))
    with killed_at(rebuild, "commit_staged", "before"):
        applied("n")
    names = [column.name for column in facts_of(lake, table.key).snapshot.columns]
    assert names[:3] == ["id", "city", "n"]
    assert "1 row from its own rows" in applied("n")[0]
    assert applied() == ("nothing to apply: the declaration and the table agree",)
    land(lake, "2.json", [{"id": 2, "city": "Oslo"}], prefix=PREFIX)
    write_table(lake, spark, table)
    assert rows_of(spark, lake, table.key, "id", "town") == [(1, "Rome"), (2, "Oslo")]


def test_a_table_that_others_write_is_refused(lake: Lake) -> None:
    table = Table(key="bronze/theirs", write=Adopted(uri="/elsewhere/theirs"))
    session = TableSession(lake=lake, spark=None, table=table)  # type: ignore[arg-type]
    for ask in (lambda: propose(session, ()), lambda: apply_changes(session, (), quiet)):
        with pytest.raises(Refused, match="other programs write it, at /elsewhere/theirs"):
            ask()


@pytest.mark.long
def test_a_function_is_planned_against_its_inputs_as_they_will_be(
    lake: Lake, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both declarations changed at once, and the input has not followed yet."""
    land(lake, "1.json", [{"id": 1, "city": "Rome", "n": 5}], prefix=PREFIX)
    write_table(lake, spark, FIRST)

    def copies(column: str) -> Table:
        return Table(
            key="silver/shops",
            inputs=(FIRST,),
            write=Append(),
            transform=lambda shops: shops.select("id", column),
        )

    write_table(lake, spark, copies("city"))
    session = TableSession(lake=lake, spark=spark, table=copies("town"))
    with pytest.raises(Refused, match=r"name `town` cannot be resolved.* Correct the function"):
        propose(session, (FIRST, session.table))

    # A plan takes the input as it will be. The change itself waits for the input.
    towns = shops("id BIGINT, town STRING, n INT", renamed={"city": "town"})
    session = replace(session, table=replace(session.table, inputs=(towns,)))
    tables = (towns, session.table)
    plan = propose(session, tables).plan
    assert plan is not None and [each.kind for each in plan.changes][:1] == [Kind.COLUMN_RENAMED]
    message = "Use `lakehouse evolve bronze/shops --dry-run` to see whether"
    with pytest.raises(Refused, match=message):
        apply_changes(session, tables, quiet)
    for table in tables:
        apply_changes(replace(session, table=table), tables, quiet)
    assert rows_of(spark, lake, "silver/shops", "id", "town") == [(1, "Rome")]
    assert "JVM stacktrace" not in "".join(capfd.readouterr())


@pytest.mark.long
def test_another_key_keeps_the_folder_and_doubles_no_row(lake: Lake, spark: SparkSession) -> None:
    land(lake, "1.json", [{"id": 1, "city": "Rome", "n": 5}], prefix=PREFIX)
    write_table(lake, spark, FIRST)
    sales = replace(FIRST, key="bronze/sales", location=FIRST.key)
    assert (sales.key, sales.asset_key, sales.name) == (FIRST.key, "bronze/sales", "sales")
    assert replace(sales, description="more").asset_key == "bronze/sales"
    assert table_key(sales).path == ["bronze", "sales"]
    land(lake, "2.json", [{"id": 2, "city": "Oslo", "n": 6}], prefix=PREFIX)
    write_table(lake, spark, sales)
    assert rows_of(spark, lake, FIRST.key, "id") == [(1,), (2,)]
    assert not lake.store.list("bronze/sales")
