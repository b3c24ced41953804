"""A million landed events in 20,000 small files: seconds, memory, files written; and what a ledger costs after few files and after many.

`python -m benchmarks.landing [FILES] [EVENTS PER FILE]`, on a lake and a server of its own. The requests of a landed file are counted by
`python -m benchmarks.requests "landed batch of 100 files, engine"`.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, alone
from benchmarks.own_lake import own_lake
from lakehouse import Append, Landing, Table
from lakehouse.core.ingest.batches import Batch, LandedFile, choose_batch
from lakehouse.core.units import DAY_MS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.journal.landed_batches import LandedBatches, landed_files
from lakehouse.engine.store import DiskStore

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
# The client may grow by so much over what it holds once Spark and Arrow are loaded: two batches' parts, and the listing.
_GROWTH_BYTES = 512 * 1024 * 1024
# Of an earlier file that is gone the ledger keeps a fingerprint: 8 bytes, 11 as Base64.
_GONE_BYTES, _OTHER_BYTES = 11, 32 * 1024


def main(files: int = 20_000, events: int = 50) -> list[Figure]:
    """The seconds of a backlog, and those of the ledger after few files and after many."""
    return [*_backlog(files, events), *_ledger(files * 5)]


def _backlog(files: int, events: int) -> list[Figure]:
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
    """So many landed lines, with ids from `first` on."""
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


def _ledger(most: int) -> Iterator[Figure]:
    """A ledger after so many earlier files, which still lie there or are gone for long: what it takes to choose a batch."""
    for earlier in (most // 100, most):
        for lies in (True, False):
            seconds, reads, size = _cost(earlier, lies=lies)
            where = f"after {earlier:,} files that {'still lie there' if lies else 'are gone'}"
            print(f"  {where}: {seconds:.3f} s, {reads} reads, {size / 2**20:.2f} MiB", flush=True)
            yield Figure(name=f"a batch chosen {where}", value=seconds, unit="s")
            most_mib = None if lies else (earlier * _GONE_BYTES + _OTHER_BYTES) / 2**20
            yield Figure(
                name=f"read for it {where}", value=size / 2**20, unit="MiB", at_most=most_mib
            )
            if not lies:
                yield Figure(name=f"objects read for it {where}", value=reads, at_most=1)


def _cost(earlier: int, *, lies: bool) -> tuple[float, int, int]:
    with tempfile.TemporaryDirectory() as home:
        store = _Counting(Path(home))
        listing = [
            LandedFile(name=f"{number:06}.json", size_bytes=5_000, modified_ms=1, digest="0" * 32)
            for number in range(earlier)
        ]
        there = [f"{PREFIX}{file.name}" for file in listing] if lies else [f"{PREFIX}new.json"]
        batches = LandedBatches(store, EVENTS.key, prefix=PREFIX)
        count, step = 0, max(1, earlier // 34)
        for start in range(0, earlier, step):
            count += 1
            batches.plan(
                Batch(
                    number=count,
                    files=tuple(listing[start : start + step]),
                    prefix=PREFIX,
                    part_count=1,
                    record_count=1,
                )
            )
        batches.ledger()
        batches.fold(lying=there, arrived=count, now_ms=now_ms() + 40 * DAY_MS)
        store.put(f"{PREFIX}new.json", b"{}")
        store.reads, store.size_bytes, began = 0, 0, time.monotonic()
        ledger = LandedBatches(store, EVENTS.key, prefix=PREFIX).ledger()
        found = [*(listing if lies else ()), *landed_files(store, EVENTS.landing)]
        plan = choose_batch(found, ledger, EVENTS.landing, EVENTS.write, unfinished=None)
        assert plan.batch is not None and [file.name for file in plan.batch.files] == [
            "new.json"
        ], plan.sentence
        return time.monotonic() - began, store.reads, store.size_bytes


class _Counting(DiskStore):
    """A disk that counts what is read."""

    reads = size_bytes = 0

    def read(self, name: str) -> bytes:
        """See `Store.read`."""
        data = super().read(name)
        self.reads, self.size_bytes = self.reads + 1, self.size_bytes + len(data)
        return data


if __name__ == "__main__":
    sys.exit(alone(main))
