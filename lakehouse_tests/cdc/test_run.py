"""Change data against a dictionary: killed batches, a lost memory, and three hundred random streams."""

from itertools import product
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.base.errors import Broken
from lakehouse.base.reasons import Reason
from lakehouse.cdc import run as apply
from lakehouse.cdc.read import ChangeCounts
from lakehouse.cdc.run import superseded_count
from lakehouse.delta.commits import ingest_app_id
from lakehouse.lake.lake import Lake
from lakehouse.land.plan import choose_files
from lakehouse.materialize.run import write_table
from lakehouse_tests.change_streams import (
    SOURCES,
    WRITES,
    debezium_event,
    differences,
    draw_stream,
    load_with_kills,
)
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.kills import killed_at
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_lake import land, rows_in, version_of


def test_a_batch_that_dies_at_any_step_ends_the_same(lake: Lake, spark: SparkSession) -> None:
    source = Landing(
        prefix="landing/people/",
        format="json",
        schema="id BIGINT",
        changes=Debezium(),
        new_columns="add",
    )
    people = Table(key="bronze/people", source=source, write=Merge(keys=("id",)))
    created = [debezium_event("c", 1, 1), debezium_event("c", 1, 2), debezium_event("c", 1, 9)]
    land(lake, "1.json", created, prefix=source.prefix)
    write_table(lake, spark, people)
    # A row changes its key, so that the old one is beyond the keys of the batch, and the source has a column more.
    moved = {**debezium_event("u", 2, 9), "after": {"id": 3, "team": "x", "_own": 1}}
    land(lake, "2.json", [debezium_event("d", 2, 1), moved], prefix=source.prefix)
    for when in ("before", "after"):  # before it, deletions are remembered
        with killed_at(apply, "_commit", when):
            write_table(lake, spark, people)
    again = write_table(lake, spark, people)
    assert (again.reason, version_of(lake, people.key)) == (Reason.NOTHING_LANDED, 4)
    expected = [(2, None, None), (3, "x", '{"_own":1}')]
    assert rows_in(lake, people.key, "id", "team", "_rescued") == expected


@pytest.mark.long
def test_a_lost_memory_of_deletions_stops_the_load(lake: Lake, spark: SparkSession) -> None:
    source = Landing(
        prefix="landing/people/", format="json", schema="id BIGINT", changes=Debezium()
    )
    people = Table(key="bronze/people", source=source, write=Merge(keys=("id",)))
    first = [debezium_event("c", 1, 1), debezium_event("c", 1, 2), debezium_event("d", 3, 1)]
    land(lake, "1.json", first, prefix=source.prefix)
    write_table(lake, spark, people)
    # A table that is made anew has all deletions to come.
    for folder in (people.key, "_lakehouse/deleted_keys"):
        lake.store.delete([file.name for file in lake.store.list(folder)])
    write_table(lake, spark, people)
    remembered = lake.store.list("_lakehouse/deleted_keys")
    memory = {file.name: lake.store.read(file.name) for file in remembered}
    lake.store.delete([*memory])
    second = [debezium_event("u", 2, 1), debezium_event("u", 2, 2)]
    land(lake, "2.json", second, prefix=source.prefix)
    for _ in range(2):
        message = r"deleted are gone from _lakehouse/deleted_keys/bronze/people, .*that folder from a copy"
        with pytest.raises(Broken, match=message):
            write_table(lake, spark, people)
    for name, data in memory.items():
        lake.store.put(name, data)
    write_table(lake, spark, people)
    assert rows_in(lake, people.key, "id", "_position.lsn") == [(2, 2)]


KINDS = tuple(product(SOURCES, WRITES))


@pytest.mark.long
@pytest.mark.parametrize("number", range(300))
def test_a_random_stream_is_a_dictionary(
    lake: Lake, spark: SparkSession, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = draw_stream(number, *KINDS[number % len(KINDS)])
    monkeypatch.setattr(choose_files, "MAX_BATCH_FILES", stream.batch_files)
    stream.land(lake)
    if number % 2:
        load_with_kills(lake, spark, stream, Random(number))  # nothing secret
    else:
        write_table(lake, spark, stream.table)
    assert differences(stream, lake) == []


def test_changes_without_effect_are_counted(tmp_path: Path) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=MemoryStore())
    log = LogBuilder(lake.store, "bronze/people").create()
    before = lake.facts("bronze/people")
    log.append(
        [("x", 2, 1)],
        transaction=(ingest_app_id("bronze/people"), 2),
        metrics={"numOutputRows": "2"},
    )
    after = lake.facts("bronze/people")
    assert after is not None
    counts = ChangeCounts(rows=5, bad=0, rescued=0, deletes=0, key_changes=0, unsent=0, kept=0)
    assert superseded_count(lake, "bronze/people", counts, before=before, after=after) == 3
