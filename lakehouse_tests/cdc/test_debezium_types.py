"""A table with every type of Postgres and MySQL, as Debezium sends them by default."""

from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.cdc.debezium_types import QUARANTINED, TYPES, event
from lakehouse_tests.support.example_lake import land, rows_in

COLUMNS = {f"c{number}": each for number, each in enumerate(TYPES)}


@pytest.mark.long
def test_every_type_is_loaded_exactly_or_set_aside(lake: Lake, spark: SparkSession) -> None:
    schema = ", ".join(
        ["id BIGINT", *(f"{name} {each.declared}" for name, each in COLUMNS.items())]
    )
    source = Landing(prefix="landing/types/", format="json", schema=schema, changes=Debezium())
    table = Table(key="bronze/types", source=source, write=Merge(keys=("id",)))
    known = {name: each for name, each in COLUMNS.items() if each.without is not QUARANTINED}
    others = [name for name in COLUMNS if name not in known]
    with_schema = event(
        1,
        {name: each.sent for name, each in COLUMNS.items()},
        [{**each.schema, "field": name} for name, each in COLUMNS.items()],
    )
    without = event(2, {name: each.sent for name, each in known.items()}, None)
    ambiguous = [event(3, {name: COLUMNS[name].sent}, None) for name in others]
    land(lake, "1.json", [with_schema, without, *ambiguous], prefix=source.prefix)
    write_table(lake, spark, table)
    reasons = rows_in(lake, f"quarantine/{table.key}", "line", "reason")
    assert [(line, reason.split(" ")[1]) for line, reason in reasons] == [*enumerate(others, 3)]
    found = DeltaTable(lake.settings.table_uri(table.key)).to_pyarrow_table().to_pylist()
    rows = {row["id"]: {name: comparable(row[name]) for name in COLUMNS} for row in found}
    assert rows[1] == {name: each.loaded for name, each in COLUMNS.items()}
    assert rows[2] == {name: known[name].without if name in known else None for name in COLUMNS}
    assert len(rows) == 2


def comparable(value: Any) -> Any:
    if isinstance(value, list):
        return [comparable(each) for each in value]
    return value.astimezone(UTC) if isinstance(value, datetime) else value
