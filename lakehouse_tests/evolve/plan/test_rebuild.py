"""The plan of a rebuild: what is written, what it costs, what readers do, and what is refused."""

from dataclasses import replace

import pytest

from lakehouse import Adopted, Append, Debezium, Landing, Merge, Overwrite, Table
from lakehouse.base.errors import Refused, Transient
from lakehouse.delta.snapshot import Column, TableFacts
from lakehouse.evolve.plan.rebuild import (
    ColumnSource,
    RebuildPlan,
    RebuildRequest,
    declared_sources,
    rebuild_plan,
    refuse_impossible,
    refuse_inexact_casts,
)
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_snapshots import own_columns

LANDED = Table(
    key="bronze/t",
    source=Landing(
        prefix="landing/t/", format="json", schema="id BIGINT, city STRING, price INT, day DATE"
    ),
    write=Append(partition_by=("day",)),
)
MERGED = Table(
    key="bronze/t",
    inputs=(replace(LANDED, key="bronze/i"),),
    transform=lambda i: i,
    write=Merge(keys=("id",), order_by=("at",)),
)
COLUMNS = {"id": "bigint", "city": "string", "price": "decimal(6,2)", "day": "date"}


def facts_of(columns: dict[str, str] | None = None, **properties: str) -> TableFacts:
    story = LogBuilder(MemoryStore(), "bronze/t")
    story.create(columns=columns or COLUMNS, properties=properties)
    return story.append([("a", 1), ("b", 1)]).facts()


def column(name: str, type_: str, source: str | None, before: str = "") -> ColumnSource:
    """A column whose values come from the column `source`, of the type `before` or as in `COLUMNS`."""
    existing = None
    if source is not None:
        existing = Column(name=source, type=before or COLUMNS[source])
    return ColumnSource(column=Column(name=name, type=type_), source=existing)


CHANGED = (
    column("id", "bigint", "id"),
    column("town", "string", "city"),
    column("price", "decimal(10,3)", "price"),
    column("note", "string", None),
    column("day", "date", "day"),
)


def plan(
    table: Table,
    columns: tuple[ColumnSource, ...] = (),
    readers: tuple[Table, ...] = (),
    waiting: tuple[str, ...] = (),
) -> RebuildPlan:
    request = RebuildRequest(table=table, columns=columns)
    return rebuild_plan(request, facts_of(), readers, waiting)


def reader(write: Append | Merge | Overwrite) -> Table:
    return Table(key="gold/x", inputs=(LANDED,), transform=lambda t: t, write=write)


def test_a_plan_names_each_change_and_its_cost() -> None:
    found = plan(LANDED, CHANGED)
    assert found.changes == (
        "city is renamed to town",
        "the type of price changes from decimal(6,2) to decimal(10,3)",
        "note (string) is added, with null in all rows",
        "partitioned by day",
    )
    assert (found.rows, found.files, found.partition_by) == ("same", 2, ("day",))
    assert found.seconds > 0 and found.usd > 0
    assert found.sentence.startswith("version 1 (")
    assert " is written again from its own rows: city is renamed to town; the " in found.sentence
    dropped = plan(LANDED, CHANGED[:1] + CHANGED[2:])
    assert "city is dropped" in dropped.changes


def test_it_costs_more_to_compute_rows_of_large_inputs() -> None:
    request = RebuildRequest(table=MERGED)
    small = rebuild_plan(request, facts_of())
    large = rebuild_plan(request, facts_of(), input_bytes=10**12)
    assert (large.bytes_read, large.rows) == (10**12, "new")
    assert large.seconds > small.seconds


@pytest.mark.parametrize("write", [Append(), Merge(keys=("id",), order_by=("at",))])
def test_a_plan_names_the_tables_that_keep_earlier_rows(write: Append | Merge) -> None:
    """An overwrite computes its rows again by itself."""
    tables = (reader(write), reader(Overwrite()))
    [found] = plan(MERGED, readers=tables).readers
    assert found.endswith("made from the earlier ones. Use `lakehouse rebuild gold/x` afterwards")
    assert plan(LANDED, CHANGED, readers=tables).readers == ()


def test_an_append_that_has_not_read_all_rows_has_to_read_them_first() -> None:
    """It could not read them after the columns have changed."""
    with pytest.raises(Refused, match="Use `lakehouse materialize gold/x` first"):
        plan(LANDED, CHANGED, waiting=("gold/x",))
    assert plan(MERGED, waiting=("gold/x",)).rows == "new"


def test_a_cast_that_changes_values_is_refused_with_the_count() -> None:
    message = r"decimal\(10,3\) cannot exactly hold the values of price in 2 rows"
    with pytest.raises(Refused, match=message):
        refuse_inexact_casts(LANDED, CHANGED, {"price": 2, "city": 0})


def refusal(table: Table, request: RebuildRequest, facts: TableFacts) -> str:
    request = replace(request, table=table, existing=facts.snapshot.columns)
    with pytest.raises(Refused) as refused:
        refuse_impossible(request, facts.snapshot)
    return str(refused.value)


def test_what_cannot_be_exact_is_refused_with_what_to_use_instead() -> None:
    rows = RebuildRequest(table=LANDED, columns=CHANGED)
    adopted = Table(key="bronze/t", write=Adopted(uri="/t"))
    assert "other programs write it, at /t" in refusal(adopted, rows, facts_of())
    lacking = replace(rows, columns=CHANGED[:2])
    assert "partitioned by day, which is not one of" in refusal(LANDED, lacking, facts_of())
    struct = "struct<a:int,b:int>"
    nested = facts_of({"s": struct, "day": "date"})
    text = (column("s", "string", "s", struct), column("day", "date", "day"))
    assert "cannot become string" in refusal(LANDED, replace(rows, columns=text), nested)
    wider = (column("s", "struct<a:bigint,b:int>", "s", struct), column("day", "date", "day"))
    existing = nested.snapshot.columns
    refuse_impossible(replace(rows, columns=wider, existing=existing), nested.snapshot)


def test_a_column_that_came_since_the_request_is_not_dropped() -> None:
    """Also if it came before the rebuild took the lock."""
    before = facts_of({"id": "bigint", "day": "date"}).snapshot
    columns = own_columns(before)
    request = RebuildRequest(table=LANDED, columns=columns, existing=before.columns)
    refuse_impossible(request, before)
    with pytest.raises(Transient, match="another run changed its columns meanwhile"):
        refuse_impossible(request, facts_of().snapshot)


def test_landed_change_data_keeps_its_keys_and_its_write_mode() -> None:
    """Earlier rows of a key are gone, and deletions are remembered by the keys' types. A key may be renamed."""
    source = Landing(
        prefix="landing/t/", format="json", schema="id BIGINT, city STRING", changes=Debezium()
    )
    merged = Table(key="bronze/t", source=source, write=Merge(keys=("id",)))
    facts = facts_of({"id": "bigint", "city": "string"}, **{"lakehouse.changeKeys": '["id"]'})
    existing = facts.snapshot.columns
    columns = own_columns(facts.snapshot)
    rows = RebuildRequest(table=merged, columns=columns, existing=existing)
    refuse_impossible(rows, facts.snapshot)
    by_city = replace(merged, write=Merge(keys=("city",)))
    assert "existing rows cannot be converted" in refusal(by_city, rows, facts)
    marked = replace(merged, write=Merge(keys=("id",), deletes="soft"))
    assert "existing rows cannot be converted" in refusal(marked, rows, facts)
    retyped = replace(rows, columns=(column("city", "string", "city"), column("id", "int", "id")))
    assert "deleted keys are stored under its existing type" in refusal(merged, retyped, facts)
    renamed = replace(
        merged,
        source=replace(source, schema="no BIGINT, city STRING"),
        write=Merge(keys=("no",)),
        renamed={"id": "no"},
    )
    named = (column("no", "bigint", "id"), column("city", "string", "city"))
    request = replace(rows, table=renamed, columns=named)
    refuse_impossible(request, facts.snapshot)


def test_declared_columns_take_their_values_from_renamed_and_respelt_ones() -> None:
    """An unknown type stays. A column that is no longer declared stays, behind the others."""
    snapshot = facts_of().snapshot
    declared = [
        Column(name="town", type="string"),
        Column(name="Price", type=""),
        Column(name="id", type="bigint", comment="of the shop"),
        Column(name="note", type="string"),
    ]
    source = replace(LANDED.source, schema="id BIGINT, town STRING, price INT, day DATE")
    table = replace(LANDED, source=source, renamed={"city": "town"})
    found = declared_sources(table, declared, snapshot)
    sources = [(each.column, each.source) for each in found]
    assert [(column.name, column.type, source and source.name) for column, source in sources] == [
        ("town", "string", "city"),
        ("Price", "decimal(6,2)", "price"),
        ("id", "bigint", "id"),
        ("note", "string", None),
        ("day", "date", "day"),
    ]
    assert found[2].column.comment == "of the shop"
