"""A probe measures what it says, within its budget, and leaves the table and the session as they were."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakehouse.core.costs.measured_benefit import Probe
from lakehouse.core.errors import Broken
from lakehouse.core.reasons import Reason
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.hold_back import breaker_of, hold_back_now
from lakehouse.engine.compaction.read_probe import (
    probe_compaction,
    probes,
    read_probes,
    record_probe,
    take_pairs,
)
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.table_health import with_account
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.engine.example import copies, events, session_settings, version_of

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
    before, after = take_pairs(
        clock.scan("b", forever(2.0)),
        clock.scan("a", forever(1.0)),
        budget_seconds=1_000,
        clock=lambda: clock.now,
    )
    assert (before, after) == ((2.0,) * 3, (1.0,) * 3)
    assert "".join(clock.order) == "ba" + "ba" + "ab" + "ba"


def test_scans_that_differ_too_much_end_with_the_budget() -> None:
    clock = Clock()
    before, _ = take_pairs(
        clock.scan("b", forever(1.0, 3.0)),
        clock.scan("a", forever(3.0, 1.0, 1.0)),
        budget_seconds=30,
        clock=lambda: clock.now,
    )
    assert len(before) > 3 and 26 <= clock.now <= 30


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
    assert probe_compaction(lake, spark, outcome) is None and probes(lake, events.key) == ()
    probe = probe_compaction(lake, spark, outcome, asked=True)
    assert probe is not None and probes(lake, events.key) == (probe,)
    assert (probe.version_before, probe.version_after, version_of(lake, events.key)) == (0, 1, 1)
    assert (
        len(probe.before) == len(probe.after) >= 3
        and probe.spent_seconds < probe.budget_seconds + 5
    )
    assert probe.gain is not None and probe.gain.high > 0
    assert session_settings(spark) == settings
    assert not [
        table.name for table in spark.catalog.listTables() if table.name.startswith("probe_")
    ]


def test_a_compaction_that_did_nothing_is_not_probed(lake: Lake, spark: "SparkSession") -> None:
    spark.range(1).coalesce(1).write.format("delta").save(lake.settings.table_uri(events.key))
    assert probe_compaction(lake, spark, compact(lake, spark, events), asked=True) is None


def test_scans_that_got_slower_open_the_breaker_of_their_table(tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path))
    for number in range(3):
        assert breaker_of(lake, events, None).position == "closed"
        slower = {
            "before": (1.0, 1.0, 1.0),
            "after": (1.5, 1.5, 1.5),
            "spent_seconds": 7.5,
            "budget_seconds": 8.0,
        }
        record_probe(
            lake,
            Probe(
                table=events.key,
                version_before=number,
                version_after=number + 1,
                measured_ms=now_ms() + number,
                **slower,
            ),
        )
    state = breaker_of(lake, events, None)
    assert (state.position, state.reason) == ("open", Reason.MEASURED_HARM)
    assert breaker_of(lake, copies, None).position == "closed"


def test_what_does_not_pay_is_held_off_by_what_the_journal_says(tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path))
    hour_ms = 3_600_000
    for hour in range(3):
        same = (1.0, 1.01, 0.99)
        probe = Probe(
            table=events.key,
            version_before=hour,
            version_after=hour + 1,
            measured_ms=hour * hour_ms,
            before=same,
            after=same,
            spent_seconds=6.0,
            budget_seconds=6.0,
        )
        record_probe(lake, probe)
        assert bool(read_probes(lake.store, hour * hour_ms)[events.key].backoff) == (hour == 2)
    held = read_probes(lake.store, 3 * hour_ms)[events.key].backoff
    assert held is not None and held.sentence.startswith(
        "compaction is tried again in 5.0 h, since it does not pay: 3 probes"
    )
    assert read_probes(lake.store, 8 * hour_ms)[events.key].backoff is None
    assert hold_back_now(lake, events, None) is None  # they were measured in 1970
    lake.store.put(f"_lakehouse/probes/{events.key}/{3 * hour_ms:015}-9.json", b"{}")
    assert read_probes(lake.store, 3 * hour_ms)[events.key].backoff is None


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path))
    lake.store.put(f"_lakehouse/probes/{events.key}/{1:015}-1.json", b"{}")
    with pytest.raises(
        Broken, match=r"journal: _lakehouse/probes/bronze/events/0{14}1-1\.json cannot be read"
    ):
        probes(lake, events.key)
