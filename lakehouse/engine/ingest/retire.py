"""Loaded files leave the landing area: into the archive, or for good.

1. The plan is made (`core.ingest.retirement`) of the ledger, a listing, the table's log, and what stands in quarantine.
2. To be archived, a batch's files are read. What is not byte for byte what was loaded stays.
3. They are written as one Parquet object, `landing-archive/<layer>/<name>/<batch>-<digest>.parquet`, under a name that says what is in it;
   the object is read back and compared.
4. The last look, for each group: where a commit was made to the table or its quarantine since, or a log was put back, the plan is made
   again; what it no longer names stays. Each file is asked about, and stays unless it is the one that was loaded.
5. The files are deleted.

The ledger and the listing are read once in a run; a load hands its ledger and its facts on. Commits of the table that its facts no longer
hold are read once a day.

**Safety properties**
- Nothing is deleted that the plan of step 4 does not name; to be archived, nothing that the object that was read back does not hold.
- A plan is made of every commit since the batches that it names. What the log has forgotten is no reason to delete.
- A run that dies after any step leaves the files, or their archive, or both; the next run goes on.
- Without Spark: nothing is written into any table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.delta.table_facts import LogFile
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.ingest.batches import Batch, LandedFile, Ledger, may_be_same
from lakehouse.core.ingest.retirement import RetirementPlan, oldest_batch, plan_retirement, read_arrivals
from lakehouse.core.units import DAY_MS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts, newest_first
from lakehouse.engine.ingest.arrival import arrived_batch
from lakehouse.engine.inventory.log_locations import Places
from lakehouse.engine.journal.landed_batches import LandedBatches, landed_files
from lakehouse.engine.lake import Lake
from lakehouse.engine.quarantine.entries import QuarantinedBatches, quarantine_key
from lakehouse.engine.store.portions import in_portions

_FOLDER = "landing-archive"
# What one archive object holds is in memory twice while it is written and compared.
_GROUP_BYTES = 64 * 1024 * 1024
_ASKED_AT_ONCE = 16
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
    failed: int = 0

    @property
    def sentence(self) -> str:
        """The plan's, and how many files could not be deleted."""
        return self.plan.sentence + (f"; {self.failed} of those that were to go could not be deleted" if self.failed else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Landed:
    """The ledger's batches, and what lies in the landing area, by name; each is read once in a run."""

    batches: Sequence[Batch]
    lying: Mapping[str, LandedFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A plan with the files that go by it, by name, and the newest file of each log that it was made of; `None`: there was no log.

    `read_back`: commits were read that the facts of the table do not hold.
    """

    plan: RetirementPlan
    files: Mapping[str, LandedFile]
    logs: Mapping[str, LogFile | None]
    read_back: bool


def plan_landed(lake: Lake, table: Table, batches: LandedBatches | None = None, facts: TableFacts | None = None) -> RetirementPlan:
    """The files that would leave the landing area of a table now; `facts`, and manifests that `batches` has read, are not read again."""
    if table.landing.after_load == "keep":
        return plan_retirement((), table.landing, {}, None, held=(), quarantined=(), now_ms=0)
    return _look(lake, table, _landed(lake, table, batches), facts, reads_back=True).plan


def retire(lake: Lake, table: Table, batches: LandedBatches | None = None, facts: TableFacts | None = None) -> Retired:
    """Carries out the plan of now, or of the ledger and the facts that are given; the caller holds the table's guard.

    Raises:
        Broken: what was archived cannot be read back; nothing of it is deleted.
    """
    if table.landing.after_load == "keep":
        return Retired(plan=plan_landed(lake, table))
    landed, reads_back = _landed(lake, table, batches), _reads_back(lake, table.key)
    look = _look(lake, table, landed, facts, reads_back=reads_back)
    done, read_back = Retired(plan=look.plan), look.read_back
    for batch in _groups(look.plan.batches):
        wanted = _archived(lake, table.key, batch) if look.plan.action == "archive" else {file.name for file in batch.files}
        if any(lake.has_moved_on(key, newest) for key, newest in look.logs.items()):
            look = _look(lake, table, landed, None, reads_back=reads_back)
        again = look.files
        asked = [file for file in batch.files if file.name in wanted and again.get(file.name) == file]
        going = _lying_as_loaded(lake, table.key, batch.prefix, asked)
        failed = lake.store.delete_each([f"{batch.prefix}{file.name}" for file in going])
        gone = [file for file in going if f"{batch.prefix}{file.name}" not in failed]
        done = replace(done, file_count=done.file_count + len(gone), failed=done.failed + len(failed))
    if read_back:
        lake.store.put(_read_back_name(table.key), str(now_ms()).encode())
    return done


def retire_before_load(
    lake: Lake, table: Table, facts: TableFacts | None, batches: LandedBatches, ledger: Ledger, tell: Callable[[str], None]
) -> None:
    """Loaded files leave the landing area. No row waits for them: the next load does what storage does not do now.

    Raises:
        Broken: the table does not tell which batches it holds, or holds others than were planned; or as for `retire`.
        Refused: it has a property that lets Delta forget them.
    """
    arrived_batch(table, facts, ledger)  # the log of another life of the table is told before a file goes by it
    try:
        if (retired := retire(lake, table, batches, facts)).plan.files:
            tell(f"{table.key}: {retired.sentence}")
    except Transient:
        pass
    except Refused as error:
        tell(str(error))


def _landed(lake: Lake, table: Table, batches: LandedBatches | None) -> _Landed:
    """The ledger's batches and the files of the landing area.

    Raises:
        Refused: the prefix lies behind a link: its files may be another table's, and another one may still have to load them.
    """
    prefix = table.landing.prefix.rstrip("/")
    if Places(lake)(f"{lake.settings.spark_root}/{prefix}") != prefix:
        raise Refused(
            f"landing of {table.key}: {lake.settings.root}/{prefix} lies behind a link; its loaded files stay; "
            "accepted: a folder of its own"
        )
    batches = batches or LandedBatches(lake.store, table.key, prefix=table.landing.prefix)
    lying = {file.name: file for file in landed_files(lake.store, table.landing)}
    return _Landed(batches=batches.known(), lying=lying)


def _look(lake: Lake, table: Table, landed: _Landed, facts: TableFacts | None, *, reads_back: bool) -> _Look:
    """The plan by the logs as they are now, or for the table by its `facts` where they are given.

    With `reads_back` it goes by all that the table's log still holds, where the plan needs it.
    """
    landing = table.landing
    facts, quarantine = facts or lake.facts(table.key), lake.facts(quarantine_key(table.key))
    held, quarantined = _held(lake, table.key, quarantine), QuarantinedBatches(lake, table.key, quarantine)
    arrivals, read_back = None, False
    if facts is not None:
        oldest = oldest_batch(landed.batches, landing, landed.lying, held=held)
        arrivals = read_arrivals(facts, reversed(facts.history.commits), oldest=oldest or 0)
        first = arrivals.first_version
        if oldest is not None and not arrivals.settles(oldest) and first is not None and lake.has_version(table.key, first - 1):
            read_back, arrivals = reads_back, replace(arrivals, is_partial=True)
            if reads_back:
                arrivals = read_arrivals(facts, newest_first(lake.store, facts.history), oldest=oldest)
    plan = plan_retirement(landed.batches, landing, landed.lying, arrivals, held=held, quarantined=quarantined, now_ms=now_ms())
    logs = {table.key: facts and facts.newest, quarantine_key(table.key): quarantine and quarantine.newest}
    return _Look(plan=plan, files={file.name: file for file in plan.files}, logs=logs, read_back=read_back)


def _lying_as_loaded(lake: Lake, table_key: str, prefix: str, files: Sequence[LandedFile]) -> list[LandedFile]:
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


def _reads_back(lake: Lake, table_key: str) -> bool:
    """Whether a day has passed since commits were read that the table's facts do not hold."""
    try:
        return not 0 <= now_ms() - int(lake.store.read(_read_back_name(table_key))) < DAY_MS
    except (FileNotFoundError, ValueError):
        return True


def _read_back_name(table_key: str) -> str:
    return f"_lakehouse/retired/{table_key}"


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
        yield from (replace(batch, files=tuple(files)) for files in in_portions(batch.files, most_bytes=_GROUP_BYTES))


def _held(lake: Lake, table_key: str, facts: TableFacts | None) -> frozenset[str]:
    """The paths that stand in a table's quarantine, which is there as `facts`, or once stood in a file that it still reads."""
    found = set[str]()
    for file in () if facts is None else facts.snapshot.files:
        name = name_in_table(file.path)
        if name is None:
            raise Broken(f"landing of {table_key}: {file.path} of its quarantine is not in its folder; nothing is deleted")
        rows = pq.read_table(BytesIO(lake.store.read(f"{quarantine_key(table_key)}/{name}")), columns=["source_file"])
        found |= set(rows.column("source_file").to_pylist())
    return frozenset(found)
