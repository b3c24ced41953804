"""The flights as change data tell the same events, each as a change of its flight's row."""

import csv
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from lakehouse.delta.columns import field_names
from lakehouse.lake.declared_tables import module_tables, table_modules
from lakehouse.replay.cdc.tables import SOURCES
from lakehouse.replay.prepared_year import PreparedYear

START, END = datetime(2013, 1, 1), datetime(2013, 1, 2)


def plain(world: PreparedYear) -> list[tuple[str, str]]:
    files = [file for file in world.files(START, END) if "flight_events" in file.name]
    return sorted(
        (event["event_id"], event["event_time"])
        for file in files
        for event in map(json.loads, file.content.splitlines())
    )


def changes(world: PreparedYear, shape: str) -> Iterator[tuple[str, dict[str, Any]]]:
    names = [*field_names(SOURCES[shape].schema)]
    for file in world.files(START, END, changes=shape, first=START):
        if "/weather/" in file.name:
            continue
        if shape == "debezium":
            yield from ((file.name, json.loads(line)) for line in file.content.splitlines())
            continue
        header, *lines = csv.reader(file.content.decode().splitlines())
        assert header == (names[1:] if "/LOAD" in file.name else names)
        yield from ((file.name, dict(zip(header, line, strict=True))) for line in lines)


def test_dms_tells_the_same_events_after_a_full_load(world: PreparedYear) -> None:
    found = list(changes(world, "dms"))
    assert sorted((row["event_id"], row["event_time"]) for _, row in found) == plain(world)
    loaded = [row for name, row in found if "/LOAD" in name]
    assert {row["event_type"] for row in loaded} == {"scheduled"} and {
        row["change_seq"] for row in loaded
    } == {"NULL"}
    ongoing = [row for name, row in found if "/LOAD" not in name]
    assert {(row["Op"], row["event_type"] == "scheduled") for row in ongoing} == {
        ("I", True),
        ("U", False),
    }
    in_order = sorted(ongoing, key=lambda row: row["change_seq"])
    assert in_order == sorted(in_order, key=lambda row: (row["event_time"], row["event_rank"]))


def test_debezium_tells_the_same_events_after_a_snapshot(world: PreparedYear) -> None:
    found = [event for _, event in changes(world, "debezium")]
    assert sorted(
        (event["after"]["event_id"], event["after"]["event_time"]) for event in found
    ) == plain(world)
    assert {event["op"] for event in found} == {"r", "c", "u"}
    assert all(
        event["source"]["lsn"] == event["ts_ms"] // 100 + event["after"]["event_rank"]
        for event in found
    )


@pytest.mark.parametrize("shape", SOURCES)
def test_the_demo_s_tables_are_the_same_with_other_flights_in_bronze(shape: str) -> None:
    there = set(module_tables(table_modules("lakehouse.tables"))) - {"bronze/flight_events"}
    assert set(module_tables(table_modules(f"lakehouse.replay.cdc.{shape}"))) == there | {
        "bronze/flights"
    }
