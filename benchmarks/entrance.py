"""Small landed files merged before they are written, after it, both ways and neither: latency, files, bytes rewritten, seconds.

`python -m benchmarks.entrance [TICKS] [FILES PER TICK] [EVENTS PER FILE] [WARM-UP TICKS] [READS]`, on a lake and a server of its own. In
each tick of ten seconds files land. Before: `Landing(release_files=…)`, a batch waits for ten ticks' files. After: the default compaction
of a bronze table, as the sensor finds it due. The ways take turns, tick by tick. Latency is from the landing to the commit: the ticks
that a file waits, and the seconds of the write that it is in.
"""

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.by_sensor import is_due
from benchmarks.figures import Figure, alone, timed
from benchmarks.landing import event_lines
from benchmarks.own_lake import own_lake
from lakehouse import Append, Compaction, Landing, Table
from lakehouse.core.ingest.release import Waiting, released_by
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICK_SECONDS = 10.0
_WAIT_TICKS = 10
# Whether it merges before the write, and after it.
_WAYS = {
    "neither": (False, False),
    "before the write": (True, False),
    "after the write": (False, True),
    "both ways": (True, True),
}


@dataclass(slots=True)
class _Way:
    """One way, its table, and what was seen of it so far."""

    name: str
    table: Table
    landed: list[int] = field(default_factory=list[int])  # the ticks of the files that wait
    latencies: list[float] = field(default_factory=list[float])
    seconds: float = 0.0
    bytes_rewritten: int = 0
    rows: int = 0


def main(
    ticks: int = 120, files: int = 5, events: int = 50, warm_up_ticks: int = 3, reads: int = 5
) -> list[Figure]:
    """What each way takes and gives."""
    ways = [
        _way(name, files, before=before, after=after) for name, (before, after) in _WAYS.items()
    ]
    warm_up = _way("warm_up", files, before=False, after=False)
    with own_lake() as (lake, spark):
        for number in range(warm_up_ticks):
            _tick(lake, spark, warm_up, number, files, events, is_last=False)
        for number in range(ticks):
            for way in ways:
                _tick(lake, spark, way, number, files, events, is_last=number == ticks - 1)
            if number % 10 == 9:
                print(f"  {number + 1} of {ticks} ticks", flush=True)
        return [
            figure
            for way in ways
            for figure in _figures(lake, spark, way, ticks * files * events, reads)
        ]


def _way(name: str, files: int, *, before: bool, after: bool) -> _Way:
    key = f"bronze/{name.replace(' ', '_')}"
    landing = Landing(
        prefix=f"landing/{name.replace(' ', '_')}/",
        format="json",
        schema="id BIGINT, at TIMESTAMP, state STRING, amount DOUBLE",
        release_files=files * _WAIT_TICKS if before else 1,
        release_minutes=60,
    )
    return _Way(
        name=name,
        table=Table(
            key=key,
            source=landing,
            write=Append(),
            compaction=Compaction(mode="automatic" if after else "off"),
        ),
    )


def _tick(
    lake: Lake,
    spark: "SparkSession",
    way: _Way,
    number: int,
    files: int,
    events: int,
    *,
    is_last: bool,
) -> None:
    landing = way.table.landing
    folder = Path(lake.settings.root, landing.prefix)
    folder.mkdir(parents=True, exist_ok=True)
    for place in range(files):
        first = (number * files + place) * events
        (folder / f"{number:05}-{place}.json").write_text("\n".join(event_lines(first, events)))
        way.landed.append(number)
    waiting = Waiting(count=len(way.landed), size_bytes=0, oldest_ms=now_ms())
    began = time.monotonic()
    if is_last or released_by(waiting, landing, now_ms()) is not None:
        outcome = write_table(lake, spark, way.table, tell=lambda _: None)
        took = time.monotonic() - began
        way.latencies += [(number - landed) * _TICK_SECONDS + took for landed in way.landed]
        way.landed.clear()
        way.rows += outcome.rows_written
    if way.rows and way.table.compaction.mode == "automatic" and is_due(lake, way.table):
        way.bytes_rewritten += compact(lake, spark, way.table).bytes_removed
    way.seconds += time.monotonic() - began


def _figures(lake: Lake, spark: "SparkSession", way: _Way, rows: int, reads: int) -> list[Figure]:
    facts = lake.facts(way.table.key)
    written = len(
        list(Path(lake.settings.root, way.table.key).glob("*.parquet"))
    )  # nothing was vacuumed
    table = spark.read.format("delta").load(facts.snapshot.uri)
    seconds = [timed(table.agg({"amount": "sum"}).collect)[0] for _ in range(reads)]
    return [
        Figure(
            name=f"{way.name}: rows missing",
            value=rows - way.rows,
            at_most=0,
            holds_at_any_size=True,
        ),
        Figure(
            name=f"{way.name}: from landing to visible, median",
            value=median(way.latencies),
            unit="s",
        ),
        Figure(name=f"{way.name}: writes and upkeep", value=way.seconds, unit="s"),
        Figure(name=f"{way.name}: files written", value=written),
        Figure(name=f"{way.name}: files of the table at the end", value=facts.snapshot.file_count),
        Figure(
            name=f"{way.name}: bytes rewritten for each that was landed",
            value=way.bytes_rewritten / facts.snapshot.size_bytes,
        ),
        Figure(
            name=f"{way.name}: a read of the whole table at the end, median",
            value=median(seconds),
            unit="s",
        ),
    ]


if __name__ == "__main__":
    sys.exit(alone(main))
