"""Loads a million landed events from 20,000 small files: seconds, memory, and files written.

`python -m benchmarks.landing [FILES] [EVENTS PER FILE]`, on its own lake and server. For requests
per file: `python -m benchmarks.requests "landed batch of 100 files, engine"`.
"""

import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, alone
from benchmarks.own_lake import own_lake
from lakehouse import Append, Landing, Table
from lakehouse.engine.ingest.write import write_table

PREFIX = "landing/events/"
EVENTS = Table(
    key="bronze/events",
    source=Landing(
        prefix=PREFIX,
        format="json",
        schema="id BIGINT, at TIMESTAMP, state STRING, amount DOUBLE",
        required=("id",),
    ),
    write=Append(),
)
# The client may grow by so much over what it holds once Spark and Arrow are loaded: two batches'
# parts, and the listing.
_GROWTH_BYTES = 512 * 1024 * 1024


def main(files: int = 20_000, events: int = 50) -> list[Figure]:
    """Seconds, memory and files of a backlog of landed files."""
    with own_lake() as (lake, spark):
        folder = Path(lake.settings.root, PREFIX)
        folder.mkdir(parents=True)
        for number in range(files):
            (folder / f"{number:06}.json").write_text(
                "\n".join(event_lines(number * events, events))
            )
        before, began = _peak_bytes(), time.monotonic()
        outcome = write_table(
            lake,
            spark,
            EVENTS,
            tell=lambda text: print(f"  {time.monotonic() - began:6.1f} s {text}", flush=True),
        )
        seconds, grown = time.monotonic() - began, _peak_bytes() - before
        snapshot = lake.facts(EVENTS.key).snapshot
    rows, written, size = outcome.rows_written, snapshot.file_count, snapshot.size_bytes / 2**20
    print(
        f"  {files:,} files, {rows:,} rows in {seconds:.0f} s; {written} files of {size:.1f} MiB together",
        flush=True,
    )
    return [
        Figure(
            name="rows missing from the backlog",
            value=files * events - rows,
            at_most=0,
            holds_at_any_size=True,
        ),
        Figure(
            name=f"{rows:,} events of {files:,} landed files to bronze", value=seconds, unit="s"
        ),
        Figure(name="landed files a second", value=files / seconds),
        Figure(
            name="how much the client grew",
            value=grown / 2**20,
            unit="MiB",
            at_most=_GROWTH_BYTES / 2**20,
        ),
    ]


def event_lines(first: int, count: int) -> Iterator[str]:
    """`count` landed lines with ids from `first` on."""
    for number in range(first, first + count):
        yield json.dumps(
            {
                "id": number,
                "at": f"2026-11-22T{number % 24:02}:00:00Z",
                "state": f"state {number % 7}",
                "amount": number / 7,
            }
        )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(alone(main))
