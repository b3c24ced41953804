"""A probe measures what it says, within its budget, and leaves the table and the session as they were."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakehouse.core.errors import Broken
from lakehouse.engine.compaction.read_probe import newest_probe, probe_compaction, take_pairs
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.table_health import with_account
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.engine.example import events, session_settings, version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Clock:
    """A clock that only scans move on."""

    def __init__(self) -> None:
        self.now, self.order = 0.0, list[str]()

    def scan(self, name: str, seconds: Iterator[float]) -> Callable[[], float]:
        """A scan that takes the next of these seconds."""

        def run() -> float:
            took = next(seconds)
            self.now += took
            self.order.append(name)
            return took

        return run


def forever(*seconds: float) -> Iterator[float]:
    while True:
        yield from seconds


def test_scans_alternate_and_end_with_the_tenth_pair_or_the_budget() -> None:
    clock = Clock()
    scans = clock.scan("b", forever(2.0)), clock.scan("a", forever(1.0))
    before, after = take_pairs(*scans, budget_seconds=1_000, clock=lambda: clock.now)
    assert (before, after) == ((2.0,) * 10, (1.0,) * 10)
    assert "".join(clock.order).startswith("ba" + "ba" + "ab" + "ba")
    before, after = take_pairs(*scans, budget_seconds=10, clock=lambda: clock.now)
    assert (before, after) == ((2.0,) * 2, (1.0,) * 2)


def test_no_pair_is_begun_that_does_not_fit() -> None:
    clock = Clock()
    assert take_pairs(
        clock.scan("b", forever(2.0)),
        clock.scan("a", forever(2.0)),
        budget_seconds=7,
        clock=lambda: clock.now,
    ) == ((), ())


def test_a_compaction_is_probed_and_the_pairs_are_in_the_journal(
    lake: Lake, spark: "SparkSession"
) -> None:
    uri = lake.settings.table_uri(events.key)
    spark.range(0, 1_600, 1, 16).selectExpr("id", "INT(id % 2) AS half").write.format(
        "delta"
    ).partitionBy("half").save(uri)
    settings = session_settings(spark)
    outcome = with_account(lake, events, compact(lake, spark, events))
    assert newest_probe(lake, events.key) is None
    probe = probe_compaction(lake, spark, outcome)
    assert probe is not None and newest_probe(lake, events.key) == probe
    assert (probe.version_before, probe.version_after, version_of(lake, events.key)) == (0, 1, 1)
    assert (
        len(probe.before) == len(probe.after) >= 3
        and probe.spent_seconds < probe.budget_seconds + 5
    )
    assert probe.gained_share is not None
    assert session_settings(spark) == settings
    assert not [
        table.name for table in spark.catalog.listTables() if table.name.startswith("probe_")
    ]


def test_a_compaction_that_did_nothing_is_not_probed(lake: Lake, spark: "SparkSession") -> None:
    spark.range(1).coalesce(1).write.format("delta").save(lake.settings.table_uri(events.key))
    assert probe_compaction(lake, spark, compact(lake, spark, events)) is None


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path))
    lake.store.put(f"_lakehouse/probes/{events.key}/{1:015}-1.json", b"{}")
    with pytest.raises(
        Broken, match=r"journal: _lakehouse/probes/bronze/events/0{14}1-1\.json cannot be read"
    ):
        newest_probe(lake, events.key)
