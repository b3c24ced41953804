"""Loaded files leave the landing area: into the archive, or for good.

1. The plan is made (`core.ingest.retirement`) of the ledger, a listing, the table's log, and what stands in quarantine.
2. To be archived, a batch's files are read. What is not byte for byte what was loaded stays. The others are written as one Parquet object,
   `landing-archive/<layer>/<name>/<batch>-<digest of names and contents>.parquet`, which is read back and compared.
3. The last look, for each group: where a commit was made to the table or its quarantine since, or a log was put back, the plan is made
   again; what it no longer names stays. Each file is asked about, and stays unless it is the one that was loaded.
4. The files are deleted.

The ledger and the listing are read once in a run. Commits of the table that its facts no longer hold are read once a day.

**Safety properties** (tests in `test_retire.py`)
- Nothing is deleted that the plan of step 3 does not name. If files are archived, nothing is
  deleted that the archive, read back, does not hold.
- A plan is made of every commit since the batches that it names. What the log has forgotten is no
  reason to delete.
- A run that dies after any step leaves the files, their archive, or both; the next run continues.
- Nothing is written into any table, and Spark is not used.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import blake2b
from io import BytesIO
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.delta.snapshot import LogFile
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.ingest.batches import Batch, LandedFile, may_be_same
from lakehouse.core.ingest.retirement import (
    RetirementPlan,
    judge_files,
    plan_retirement,
    read_arrivals,
)
from lakehouse.core.units import DAY_MS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts, newest_first
from lakehouse.engine.journal.landed_batches import LandedBatches, landed_files
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver
from lakehouse.engine.quarantine.entries import QuarantinedBatches, quarantine_key
from lakehouse.engine.store.portions import in_portions

_FOLDER = "landing-archive"
# The content of one archive object is in memory twice while it is written and compared.
_GROUP_BYTES = 64 * 1024 * 1024
_ASKED_AT_ONCE = 16
_SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "modified": pa.timestamp("ms", "UTC"),
        "digest": pa.string(),
        "content": pa.binary(),
    }
)


class _Look(NamedTuple):
    """A plan, the newest file of each log that it was made of (`None`: no log), and whether it read commits that the facts do not hold."""

    plan: RetirementPlan
    logs: Mapping[str, LogFile | None]
    read_back: bool


def plan_landed(
    lake: Lake, table: Table, batches: LandedBatches, facts: TableFacts | None
) -> RetirementPlan:
    """The files that would leave the landing area of a table now, by its ledger and its facts."""
    return _look(lake, table, *_landed(lake, table, batches), facts, reads_back=True).plan


def retire(
    lake: Lake, table: Table, batches: LandedBatches, facts: TableFacts | None
) -> tuple[RetirementPlan, int]:
    """The plan of now, carried out under the caller's guard of the table; and how many of its files could not be deleted.

    Raises:
        Broken: what was archived cannot be read back; nothing of it is deleted.
        Refused: as for a plan, the landing area lies behind a link.
    """
    if table.landing.after_load == "keep":
        return RetirementPlan(action="keep", kept={}), 0
    known, lying = _landed(lake, table, batches)
    marker = f"_lakehouse/retired/{table.key}"
    reads_back = _is_a_day_old(lake, marker)
    look = _look(lake, table, known, lying, facts, reads_back=reads_back)
    plan, planned, failed_count = look.plan, {*look.plan.files}, 0
    for batch in _groups(plan.batches):
        wanted = _archived(lake, table.key, batch) if plan.action == "archive" else batch.files
        if any(lake.has_moved_on(key, newest) for key, newest in look.logs.items()):
            look = _look(lake, table, known, lying, lake.facts(table.key), reads_back=reads_back)
            planned = {*look.plan.files}
        going = _lying_as_loaded(
            lake, table.key, batch.prefix, [file for file in wanted if file in planned]
        )
        failed_count += len(
            lake.store.delete_each([f"{batch.prefix}{file.name}" for file in going])
        )
    if look.read_back:
        lake.store.put(marker, str(now_ms()).encode())
    return plan, failed_count


def retire_first(
    lake: Lake,
    table: Table,
    batches: LandedBatches,
    facts: TableFacts | None,
    tell: Callable[[str], None],
) -> None:
    """The same at the beginning of a load, in words. No row waits for it: the next load does what storage does not do now."""
    try:
        plan, failed = retire(lake, table, batches, facts)
    except Transient:
        return
    except Refused as error:
        tell(str(error))
        return
    if plan.files:
        stay = f"; {failed} of those that were to go could not be deleted" if failed else ""
        tell(f"{table.key}: {plan.sentence}{stay}")


def _landed(
    lake: Lake, table: Table, batches: LandedBatches
) -> tuple[Sequence[Batch], Mapping[str, LandedFile]]:
    """The ledger's batches and the files of the landing area, by name. Behind a link they may be another table's, which must load them."""
    prefix = table.landing.prefix.rstrip("/")
    if PathResolver(lake)(f"{lake.settings.spark_root}/{prefix}") != prefix:
        raise Refused(
            f"landing of {table.key}: {lake.settings.root}/{prefix} lies behind a link; its loaded files stay; "
            "accepted: a folder of its own"
        )
    return batches.known(), {file.name: file for file in landed_files(lake.store, table.landing)}


def _look(
    lake: Lake,
    table: Table,
    known: Sequence[Batch],
    lying: Mapping[str, LandedFile],
    facts: TableFacts | None,
    *,
    reads_back: bool,
) -> _Look:
    """The plan by the table's `facts` and its quarantine's log; with `reads_back` by all that the table's log holds, where it must."""
    quarantine = lake.facts(quarantine_key(table.key))
    judged = judge_files(known, table.landing, lying, held=_held(lake, table.key, quarantine))
    arrivals, read_back = None, False
    if facts is not None:
        oldest = min((batch.number for batch, why in judged if not all(why.values())), default=None)
        arrivals = read_arrivals(facts, reversed(facts.history.commits), oldest=oldest or 0)
        first = arrivals.first_version
        if (
            oldest is not None
            and not arrivals.settles(oldest)
            and first is not None
            and lake.has_version(table.key, first - 1)
        ):
            read_back, arrivals = reads_back, replace(arrivals, is_partial=True)
            if reads_back:
                arrivals = read_arrivals(
                    facts, newest_first(lake.store, facts.history), oldest=oldest
                )
    quarantined = QuarantinedBatches(lake, table.key, quarantine)
    plan = plan_retirement(
        judged, table.landing, arrivals, quarantined=quarantined, now_ms=now_ms()
    )
    logs = {
        table.key: facts and facts.newest,
        quarantine_key(table.key): quarantine and quarantine.newest,
    }
    return _Look(plan, logs, read_back)


def _lying_as_loaded(
    lake: Lake, table_key: str, prefix: str, files: Sequence[LandedFile]
) -> list[LandedFile]:
    """The files below `prefix` that lie there as they were loaded, each asked about now."""
    with ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as pool:
        found = [*pool.map(lake.store.stat, [f"{prefix}{file.name}" for file in files])]
    return [
        file
        for file, now in zip(files, found, strict=True)
        if now is not None
        and now.size_bytes == file.size_bytes
        and abs(now.modified_ms - file.modified_ms) <= lake.times_apart_ms(table_key)
        and may_be_same(now.etag, file.etag)
    ]


def _is_a_day_old(lake: Lake, marker: str) -> bool:
    """Whether a day has passed since commits were read that the table's facts do not hold."""
    try:
        return not 0 <= now_ms() - int(lake.store.read(marker)) < DAY_MS
    except (FileNotFoundError, ValueError):
        return True


def _archived(lake: Lake, table_key: str, batch: Batch) -> Sequence[LandedFile]:
    """The files of a batch that the archive holds as they were loaded."""
    names = [f"{batch.prefix}{file.name}" for file in batch.files]
    try:
        read = [*zip(batch.files, lake.store.read_many(names), strict=True)]
    except FileNotFoundError:
        return []  # somebody takes them away just now; the next run sees what is left
    same = [
        (file, data)
        for file, data in read
        if blake2b(data, digest_size=16).hexdigest() == file.digest
    ]
    if not same:
        return []
    rows = [
        {"name": file.name, "modified": file.modified_ms, "digest": file.digest, "content": data}
        for file, data in same
    ]
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    told = "".join(f"{file.name}\0{file.modified_ms}\0{file.digest}\0" for file, _ in same)
    mark = blake2b(told.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    name = f"{_FOLDER}/{table_key}/{batch.number:020}-{mark}.parquet"
    buffer = BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    lake.store.put_if_absent(name, buffer.getvalue())
    if not pq.read_table(BytesIO(lake.store.read(name))).equals(table):
        raise Broken(
            f"landing of {table_key}: {name} does not hold what was archived; nothing is deleted: move it away, and try again"
        )
    return [file for file, _ in same]


def _groups(batches: Sequence[Batch]) -> Iterator[Batch]:
    """The batches, those of many bytes in parts."""
    for batch in batches:
        yield from (
            replace(batch, files=tuple(files))
            for files in in_portions(batch.files, most_bytes=_GROUP_BYTES)
        )


def _held(lake: Lake, table_key: str, facts: TableFacts | None) -> frozenset[str]:
    """The paths that stand in a table's quarantine, which is there as `facts`, or once stood in a file that it still reads."""
    found = set[str]()
    for file in () if facts is None else facts.snapshot.files:
        name = name_in_table(file.path)
        if name is None:
            raise Broken(
                f"landing of {table_key}: {file.path} of its quarantine is not in its folder; nothing is deleted"
            )
        rows = pq.read_table(
            BytesIO(lake.store.read(f"{quarantine_key(table_key)}/{name}")), columns=["source_file"]
        )
        found |= set(rows.column("source_file").to_pylist())
    return frozenset(found)
