"""A small lake for the tests of what the engine does: events land, their newest state is kept, and counted."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakehouse import Append, Landing, Merge, Overwrite, Table, table
from lakehouse.delta.log import TableFacts
from lakehouse.lake.lake import Lake
from lakehouse.land.ledger import PlannedBatches

SOURCE = Landing(
    prefix="landing/events/",
    format="json",
    schema="id BIGINT, at TIMESTAMP, state STRING",
    derived={"day": "to_date(at)"},
    required=("id",),
)
events = Table(key="bronze/events", source=SOURCE, write=Append(partition_by=("day",)))


@table(key="silver/states", inputs=[events], write=Merge(keys=("id",), order_by=("at",)))
def states(events: Any) -> Any:
    """The newest state of each id."""
    return events.select("id", "at", "state")


@table(key="gold/counts", inputs=[states], write=Overwrite())
def counts(states: Any) -> Any:
    """How many ids are in each state."""
    return states.groupBy("state").count()


@table(key="silver/copies", inputs=[events], write=Append())
def copies(events: Any) -> Any:
    """Every event, once."""
    return events.select("id", "state")


def event(id_: int, hour: int, state: str, day: int = 1) -> dict[str, Any]:
    """One event of January 2013."""
    return {"id": id_, "at": f"2013-01-{day:02}T{hour:02}:00:00Z", "state": state}


def land(
    lake: Lake, name: str, lines: Sequence[object], *, prefix: str = "landing/events/"
) -> None:
    """A file in the landing area; a line that is text is taken as it is."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    lake.store.put(prefix + name, "\n".join(texts).encode())


def add_events(lake: Lake, *lines: Mapping[str, Any]) -> None:
    """One commit of rows in the table of events, without a load and without Spark: for those who follow it."""
    times = [datetime.fromisoformat(line["at"]) if "at" in line else None for line in lines]
    days = [{"at": at, "day": at and at.date()} for at in times]
    names = ("id", "at", "state", "day")
    events_with_days = [{**line, **day} for line, day in zip(lines, days, strict=True)]
    rows = pa.Table.from_pylist([{name: each[name] for name in names} for each in events_with_days])
    more: dict[str, Any] = {"configuration": {"delta.enableChangeDataFeed": "true"}}
    place = lake.settings.table_uri(events.key)
    write_deltalake(place, rows, mode="append", partition_by=["day"], **more)


def rows_of(spark: Any, lake: Lake, key: str, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a table now, sorted, as Spark reads them."""
    frame = spark.read.format("delta").load(lake.settings.table_uri(key))
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=str)


def rows_in(lake: Lake, key: str, *columns: str) -> list[tuple[Any, ...]]:
    """The same as deltalake reads them, which is much cheaper; a field of a struct is a column, too. Deletion vectors are refused."""
    table = DeltaTable(lake.settings.table_uri(key)).to_pyarrow_table().flatten()
    return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True), key=str)


def columns_of(lake: Lake, table: Table) -> list[str]:
    """The columns that came with landed batches, as the ledger tells them."""
    assert table.source is not None
    ledger = PlannedBatches(lake.store, table.key, prefix=table.source.prefix).ledger()
    return [*ledger.columns]


def facts_of(lake: Lake, key: str, version: int | None = None) -> TableFacts:
    """The facts of a table that is there."""
    facts = lake.facts(key, version=version)
    assert facts is not None
    return facts


def version_of(lake: Lake, key: str) -> int | None:
    """A table's version now."""
    facts = lake.facts(key)
    return None if facts is None else facts.snapshot.version


def session_settings(spark: Any) -> dict[str, str]:
    """The settings of a session that its user made. Delta makes some of its own: its last commit's number, and columns by id."""
    by_id = (".parquet.fieldId.read.enabled", ".parquet.fieldId.write.enabled")
    own = (".lastCommitVersionInSession", *by_id)
    return {name: value for name, value in spark.conf.getAll.items() if not name.endswith(own)}
