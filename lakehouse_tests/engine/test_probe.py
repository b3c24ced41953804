"""A probe measures what it says, within its budget, and leaves the table and the session as they were."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from lakehouse.core.errors import Broken
from lakehouse.engine.account import with_account
from lakehouse.engine.compaction import compact
from lakehouse.engine.lake import Lake
from lakehouse.engine.probe import probe_compaction, probes, take_pairs
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


def test_scans_alternate_and_end_when_the_gain_is_known() -> None:
    clock = Clock()
    before, after = take_pairs(clock.scan("b", forever(2.0)), clock.scan("a", forever(1.0)), budget_seconds=1_000, clock=lambda: clock.now)
    assert (before, after) == ((2.0,) * 3, (1.0,) * 3)
    assert "".join(clock.order) == "ba" + "ba" + "ab" + "ba"


def test_scans_that_differ_too_much_end_with_the_budget() -> None:
    clock = Clock()
    before, _ = take_pairs(
        clock.scan("b", forever(1.0, 3.0)), clock.scan("a", forever(3.0, 1.0, 1.0)), budget_seconds=30, clock=lambda: clock.now
    )
    assert len(before) > 3 and 26 <= clock.now <= 30


def test_no_pair_is_begun_that_does_not_fit() -> None:
    clock = Clock()
    assert take_pairs(clock.scan("b", forever(2.0)), clock.scan("a", forever(2.0)), budget_seconds=7, clock=lambda: clock.now) == ((), ())


def test_a_compaction_is_probed_and_the_pairs_are_in_the_journal(lake: Lake, spark: "SparkSession") -> None:
    uri = lake.settings.table_uri(events.key)
    spark.range(0, 1_600, 1, 16).selectExpr("id", "INT(id % 2) AS half").write.format("delta").partitionBy("half").save(uri)
    settings = session_settings(spark)
    outcome = with_account(lake, events, compact(lake, spark, events))
    assert probe_compaction(lake, spark, outcome) is None and probes(lake, events.key) == ()
    probe = probe_compaction(lake, spark, outcome, asked=True)
    assert probe is not None and probes(lake, events.key) == (probe,)
    assert (probe.version_before, probe.version_after, version_of(lake, events.key)) == (0, 1, 1)
    assert len(probe.before) == len(probe.after) >= 3 and probe.spent_seconds < probe.budget_seconds + 5
    assert probe.gain is not None and probe.gain.high > 0
    assert session_settings(spark) == settings
    assert not [table.name for table in spark.catalog.listTables() if table.name.startswith("probe_")]


def test_a_compaction_that_did_nothing_is_not_probed(lake: Lake, spark: "SparkSession") -> None:
    spark.range(1).coalesce(1).write.format("delta").save(lake.settings.table_uri(events.key))
    assert probe_compaction(lake, spark, compact(lake, spark, events), asked=True) is None


def test_a_damaged_record_is_named(lake: Lake) -> None:
    lake.store.put(f"_lakehouse/probes/{events.key}/1.json", b"{}")
    with pytest.raises(Broken, match=r"journal: _lakehouse/probes/bronze/events/1\.json cannot be read"):
        probes(lake, events.key)
