"""Loaded files leave the landing area: into the archive, or for good.

1. The plan is made (`core.ingest.retirement`) of the ledger, a listing, the table's log, and what stands in quarantine.
2. To be archived, a batch's files are read. What is not byte for byte what was loaded stays.
3. They are written as one Parquet object, `landing-archive/<layer>/<name>/<batch>-<digest>.parquet`, under a name that says what is in it;
   the object is read back and compared.
4. The last look: listing, log and quarantine are read again, and the plan is made again. What it no longer names stays.
5. The files are deleted.

**Safety properties**
- Nothing is deleted that the plan of step 4 does not name; to be archived, nothing that the object that was read back does not hold.
- A run that dies after any step leaves the files, or their archive, or both; the next run goes on.
- Without Spark: nothing is written into any table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, LandedFile
from lakehouse.core.ingest.retirement import RetirementPlan, plan_retirement
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.landed_batches import LandedBatches, landed_files
from lakehouse.engine.lake import Lake
from lakehouse.engine.quarantine.entries import quarantine_key, quarantined_batch

_FOLDER = "landing-archive"
# What one archive object holds is in memory twice while it is written and compared.
_GROUP_BYTES = 64 * 1024 * 1024
_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("modified", pa.timestamp("ms", "UTC")),
        ("digest", pa.string()),
        ("content", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """What left the landing area, and why the rest stays."""

    plan: RetirementPlan
    file_count: int = 0
    size_bytes: int = 0
    failed: int = 0


def plan_landed(lake: Lake, table: Table) -> RetirementPlan:
    """What would leave the landing area of a table now, by the newest of everything."""
    assert table.source is not None
    landing = table.source
    if landing.after_load == "keep":
        return plan_retirement((), landing, {}, None, held=(), refused_upto=0, now_ms=0)
    batches = LandedBatches(lake.store, table.key, prefix=landing.prefix)
    lying = {file.name: file for file in landed_files(lake.store, landing)}
    held, refused_upto = _held(lake, table.key)
    return plan_retirement(batches.known(), landing, lying, lake.facts(table.key), held=held, refused_upto=refused_upto, now_ms=now_ms())


def retire(lake: Lake, table: Table) -> Retired:
    """Carries out the plan of now; the caller holds the table's guard.

    Raises:
        Broken: what was archived cannot be read back; nothing of it is deleted.
    """
    plan = plan_landed(lake, table)
    done = Retired(plan=plan)
    for batch in _groups(plan.batches):
        wanted = _archived(lake, table.key, batch) if plan.action == "archive" else {file.name for file in batch.files}
        again = {file.name: file for file in plan_landed(lake, table).files}
        going = [file for file in batch.files if file.name in wanted and again.get(file.name) == file]
        failed = lake.store.delete_each([f"{batch.prefix}{file.name}" for file in going])
        gone = [file for file in going if f"{batch.prefix}{file.name}" not in failed]
        done = replace(
            done,
            file_count=done.file_count + len(gone),
            size_bytes=done.size_bytes + sum(file.size_bytes for file in gone),
            failed=done.failed + len(failed),
        )
    return done


def _archived(lake: Lake, table_key: str, batch: Batch) -> set[str]:
    """The names of those files of a batch that the archive holds as they were loaded."""
    names = [f"{batch.prefix}{file.name}" for file in batch.files]
    try:
        read = [*zip(batch.files, lake.store.read_many(names), strict=True)]
    except FileNotFoundError:
        return set()  # somebody takes them away just now; the next run sees what is left
    same = [(file, data) for file, data in read if blake2b(data, digest_size=16).hexdigest() == file.digest]
    if not same:
        return set()
    table = _as_table(same)
    told = "".join(f"{file.name}\0{file.modified_ms}\0{file.digest}\0" for file, _ in same)
    mark = blake2b(told.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    name = f"{_FOLDER}/{table_key}/{batch.number:020}-{mark}.parquet"
    buffer = BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    lake.store.put_if_absent(name, buffer.getvalue())
    if not pq.read_table(BytesIO(lake.store.read(name))).equals(table):
        raise Broken(f"landing of {table_key}: {name} does not hold what was archived; nothing is deleted: move it away, and try again")
    return {file.name for file, _ in same}


def _as_table(files: Sequence[tuple[LandedFile, bytes]]) -> pa.Table:
    rows = [(file.name, file.modified_ms, file.digest, data) for file, data in files]
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
    return pa.table(columns, schema=_SCHEMA)


def _groups(batches: Sequence[Batch]) -> Iterator[Batch]:
    """The batches, those of many bytes in parts."""
    for batch in batches:
        group, size_bytes = list[LandedFile](), 0
        for file in batch.files:
            if group and size_bytes + file.size_bytes > _GROUP_BYTES:
                yield replace(batch, files=tuple(group))
                group, size_bytes = [], 0
            group.append(file)
            size_bytes += file.size_bytes
        if group:
            yield replace(batch, files=tuple(group))


def _held(lake: Lake, table_key: str) -> tuple[frozenset[str], int]:
    """The paths that stand in a table's quarantine, or once stood in a file that it still reads; the last batch that it knows."""
    facts = lake.facts(quarantine_key(table_key))
    found = set[str]()
    for file in () if facts is None else facts.snapshot.files:
        name = name_in_table(file.path)
        if name is None:
            raise Broken(f"landing of {table_key}: {file.path} of its quarantine is not in its folder; nothing is deleted")
        rows = pq.read_table(BytesIO(lake.store.read(f"{quarantine_key(table_key)}/{name}")), columns=["source_file"])
        found |= set(rows.column("source_file").to_pylist())
    return frozenset(found), quarantined_batch(table_key, facts)
