"""The plan of a rebuild: what is written, what it costs, what readers do, and what is refused."""

from dataclasses import replace

import pytest

from lakehouse import Adopted, Append, Debezium, Landing, Merge, Overwrite, Table
from lakehouse.base.errors import Refused
from lakehouse.delta.snapshot import Column, TableFacts
from lakehouse.evolve.plan.rebuild import (
    ColumnSource,
    DownstreamReader,
    RebuildPlan,
    RebuildRequest,
    RebuildSource,
    breaks_change_feed,
    declared_sources,
    present_columns,
    rebuild_plan,
    refuse_impossible,
)
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore

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


def column(name: str, type_: str, source: str | None) -> ColumnSource:
    return ColumnSource(column=Column(name=name, type=type_), source=source)


CHANGED = (
    column("id", "bigint", "id"),
    column("town", "string", "city"),
    column("price", "decimal(10,3)", "price"),
    column("note", "string", None),
    column("day", "date", "day"),
)


def plan(
    table: Table,
    source: RebuildSource,
    columns: tuple[ColumnSource, ...] = (),
    readers: tuple[DownstreamReader, ...] = (),
    inexact: dict[str, int] | None = None,
) -> RebuildPlan:
    request = RebuildRequest(table=table, source=source, columns=columns)
    return rebuild_plan(request, facts_of(), readers, inexact=(inexact or {}).items())


def reader(write: Append | Merge | Overwrite, *, waits: bool = False) -> DownstreamReader:
    table = Table(key="gold/x", inputs=(LANDED,), transform=lambda t: t, write=write)
    return DownstreamReader(table=table, waits=waits)


def test_a_plan_names_each_change_and_its_cost() -> None:
    found = plan(LANDED, "rows", CHANGED)
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
    dropped = plan(LANDED, "rows", CHANGED[:1] + CHANGED[2:])
    assert "city is dropped" in dropped.changes


def test_it_costs_more_to_compute_rows_of_large_inputs() -> None:
    request = RebuildRequest(table=MERGED, source="inputs")
    small = rebuild_plan(request, facts_of())
    large = rebuild_plan(request, facts_of(), input_bytes=10**12)
    assert (large.bytes_read, large.rows) == (10**12, "new")
    assert large.seconds > small.seconds


@pytest.mark.parametrize(
    ("source", "write", "sentence"),
    [
        ("rows", Append(), "gold/x (Append) skips the rebuild"),
        ("rows", Overwrite(), "gold/x (Overwrite) skips the rebuild"),
        ("inputs", Overwrite(), "gold/x (Overwrite) computes all its rows again"),
        ("inputs", Append(), "gold/x (Append) stops, since it would append rows twice"),
        (
            "inputs",
            Merge(keys=("id",), order_by=("at",)),
            "gold/x (Merge) merges all rows once, but only rows that are newer by at replace",
        ),
    ],
)
def test_a_plan_says_what_readers_do(
    source: RebuildSource, write: Append | Merge | Overwrite, sentence: str
) -> None:
    table = LANDED if source == "rows" else MERGED
    [found] = plan(table, source, readers=(reader(write),)).readers
    assert found.startswith(sentence)


def test_readers_that_have_not_read_all_rows() -> None:
    """A merge reads all of the table once. An append could not read its rows any more."""
    merge = reader(Merge(keys=("id",), order_by=("at",)), waits=True)
    [found] = plan(LANDED, "rows", CHANGED, (merge,)).readers
    assert found == "gold/x (Merge) reads all of bronze/t once, under its new columns"
    with pytest.raises(Refused, match="Use `lakehouse materialize gold/x` first"):
        plan(LANDED, "rows", CHANGED, (reader(Append(), waits=True),))
    unchanged = plan(LANDED, "rows", readers=(reader(Append(), waits=True),))
    assert unchanged.readers[0].startswith("gold/x (Append) skips the rebuild")


def test_a_cast_that_changes_values_is_refused_with_the_count() -> None:
    message = r"decimal\(10,3\) cannot exactly hold the values of price in 2 rows"
    with pytest.raises(Refused, match=message):
        plan(LANDED, "rows", CHANGED, inexact={"price": 2, "city": 0})


def refusal(table: Table, request: RebuildRequest, facts: TableFacts) -> str:
    with pytest.raises(Refused) as refused:
        refuse_impossible(replace(request, table=table), facts.snapshot)
    return str(refused.value)


def test_what_cannot_be_exact_is_refused_with_what_to_use_instead() -> None:
    rows = RebuildRequest(table=LANDED, source="rows")
    adopted = Table(key="bronze/t", write=Adopted(uri="/t"))
    assert "other programs write it, at /t" in refusal(adopted, rows, facts_of())
    inputs = RebuildRequest(table=LANDED, source="inputs")
    assert "Use `lakehouse rebuild bronze/t`" in refusal(LANDED, inputs, facts_of())
    unknown = replace(rows, columns=(column("a", "int", "b"),))
    assert "no column b. Use one of id, city, price, day" in refusal(LANDED, unknown, facts_of())
    lacking = replace(rows, columns=CHANGED[:2])
    assert "partitioned by day, which is not one of" in refusal(LANDED, lacking, facts_of())
    nested = facts_of({"s": "struct<a:int,b:int>", "day": "date"})
    text = (column("s", "string", "s"), column("day", "date", "day"))
    assert "cannot become string" in refusal(LANDED, replace(rows, columns=text), nested)
    wider = (column("s", "struct<a:bigint,b:int>", "s"), column("day", "date", "day"))
    refuse_impossible(replace(rows, columns=wider), nested.snapshot)


def test_landed_change_data_keeps_its_keys_and_its_write_mode() -> None:
    """Earlier rows of a key are gone, and deletions are remembered by the keys' types. A key may be renamed."""
    source = Landing(
        prefix="landing/t/", format="json", schema="id BIGINT, city STRING", changes=Debezium()
    )
    merged = Table(key="bronze/t", source=source, write=Merge(keys=("id",)))
    facts = facts_of({"id": "bigint", "city": "string"}, **{"lakehouse.changeKeys": '["id"]'})
    rows = RebuildRequest(table=merged, source="rows", columns=present_columns(facts.snapshot))
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
    assert [(each.column.name, each.column.type, each.source) for each in found] == [
        ("town", "string", "city"),
        ("Price", "decimal(6,2)", "price"),
        ("id", "bigint", "id"),
        ("note", "string", None),
        ("day", "date", "day"),
    ]
    assert found[2].column.comment == "of the shop"


def test_change_data_stays_readable_only_if_columns_are_added() -> None:
    snapshot = facts_of().snapshot
    present = present_columns(snapshot)
    assert not breaks_change_feed((*present, column("note", "string", None)), snapshot)
    assert breaks_change_feed(present[1:], snapshot)
    assert breaks_change_feed(CHANGED, snapshot)
