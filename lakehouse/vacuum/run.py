"""Vacuums a table: deletes the planned files that Delta would also delete.

1. This machine's clock is compared with the storage's clock, because the current time, from which
   the retention counts back, comes from this machine, and the files' times come from the storage.
2. The plan is made from the log, alone or together with an inventory or a listing. If there
   is nothing to delete, only step 6 follows.
3. The table's lock is taken and held to the end. If the table now has a newer version, the plan is
   made again.
4. A second reader of the log, deltalake or Delta on Spark, is asked which of the planned files it
   would delete, as described below. All other files are spared.
5. Right before the first deletion, and again after each minute of deleting, `Recheck` checks
   whether other tables read the files, whether tables were created in their folders, and whether
   files were written again. Last, it checks the files against the newest version and the retention
   in the table's own log. The remaining files are deleted, in batches.
6. The vacuum is added to the lake's operations, also after an error in step 4 or 5: the plan's
   figures, the number of files deleted and spared, and why files could not be deleted.

**Safety properties**
- A data file is deleted only if it is planned and the second reader would delete it. If the second
  reader would delete none of the planned files, or if Delta on Spark names a file outside the plan,
  nothing is deleted and the vacuum raises `Broken` (`test_second_opinion.py`, `test_meanwhile.py`).
- Only files in the plan are deleted, on a disk each with its Hadoop checksum (`.<name>.crc`), so a
  dry run shows everything that can be deleted (`test_run.py`, `test_faults.py`).
- A log that is gone or was reset to an older state stops the deletion, and so does an unreadable
  log of another table (`test_meanwhile.py`, `test_unread.py`).
- A file is kept if its folder has become a table, or a link out of the table's folder
  (`test_meanwhile.py`). A folder in which the newest version reads files is taken for the table's
  own: a table that was created there since the listing or inventory is not noticed.
- A file that was written again after it was listed is kept. On S3, this check omits files whose
  names no writer uses twice (`test_meanwhile.py`).
- First the logs of other tables are read, which may take minutes. Then storage is checked. The
  table's own log is read last, so a file that was written again and committed during the checks is
  kept (`test_meanwhile.py`).
- Deleting a file twice has no further effect, so after a crash at any point the next vacuum
  completes the work (`long/test_vacuum_kills.py`, `test_meanwhile.py`).

The second reader confirms the planned deletions:

1. deltalake reads the table's log and returns the files of the newest version. Its dry run of
   VACUUM lists removed files. The dry run is made twice, without a retention and with the table's
   retention. The difference is the removed files that the retention keeps.
2. If deltalake cannot answer, Delta on Spark is asked instead, by a dry run of VACUUM. deltalake
   cannot answer if it cannot read the table's newest version, if it omits a file that the table
   needs according to our own reading of the log, if the log has absolute paths, or if the plan has
   files that may be deletion vectors.

**Safety properties** (tests in `test_second_opinion.py`)
- A file that deltalake keeps is not confirmed, even if our plan contains it.
- deltalake only reads the log. It does not list the storage, because it would mistake live
  deletion vectors for orphans, and it does not delete files.

Source: delta-io/delta-rs python-v1.6.6, crates/core/src/operations/vacuum.rs: `create_vacuum_plan`
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, compress, islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakehouse.base.clock import now_ms, pause_about
from lakehouse.base.errors import Broken, LakehouseError, Transient
from lakehouse.base.operation import (
    FAILED_NAMED,
    Figure,
    VacuumMode,
    VacuumRecord,
)
from lakehouse.base.paths import is_absolute, name_in_table
from lakehouse.base.text import HOUR_MS, count_of
from lakehouse.declare.table import Table
from lakehouse.lake.commits import open_with_deltalake, storage_errors
from lakehouse.lake.lake import Lake, PathResolver, is_table
from lakehouse.lake.lease import check_clock, hold
from lakehouse.lake.state_tables import ended_operation, record_operation
from lakehouse.spark.errors import translated
from lakehouse.store import StoredFile, at_once
from lakehouse.vacuum.facts import LakeFacts, has_newer_version, plan
from lakehouse.vacuum.inventory.plan import Owners, is_data_file
from lakehouse.vacuum.plan.candidates import (
    Candidate,
    DeletionGuard,
    VacuumFacts,
    folders_to_ask,
    written_once,
)
from lakehouse.vacuum.plan.vacuum import DELETE_KEYS, VacuumOutcome, VacuumPlan, plan_rest

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

_VECTORS = "deletionVectors"


def confirmed_by_delta(
    lake: Lake,
    open_spark: "Callable[[], SparkSession]",
    facts: VacuumFacts,
    candidates: Sequence[Candidate],
) -> list[Candidate]:
    """The candidates that the second reader would also delete.

    Raises:
        Broken: the second reader would delete no candidate, or a file that is not a candidate.
        Transient: the storage does not answer.
    """
    if not candidates:
        return []
    kept_names = kept_by_deltalake(lake, facts, candidates)
    if kept_names is None:
        uri = lake.table_uri(facts.table)
        confirmed = confirmed_by_spark(open_spark(), uri, facts.table, candidates)
    else:
        confirmed = {each.name for each in candidates} - kept_names
    if not confirmed:
        raise Broken(
            f"vacuum of {facts.table}: Delta would keep the whole plan "
            f"({count_of(len(candidates), 'file')}, for example {candidates[0].name}). Nothing was "
            f"deleted. Run lakehouse vacuum {facts.table} --dry-run, and compare its files with "
            f"{facts.table}/_delta_log"
        )
    return [each for each in candidates if each.name in confirmed]


def kept_by_deltalake(
    lake: Lake, facts: VacuumFacts, candidates: Iterable[Candidate]
) -> set[str] | None:
    """The files that the table still needs according to deltalake; `None` if it cannot answer.

    These are the files of the newest version, and the removed files within the retention.

    Raises:
        Transient: the storage does not answer.
    """
    from deltalake.exceptions import DeltaError

    try:
        with storage_errors(f"vacuum of {facts.table}"):
            delta_table = open_with_deltalake(lake, facts.table)
            snapshot = facts.log.snapshot
            is_newest = delta_table.version() >= snapshot.version
            is_same_table = delta_table.metadata().id == snapshot.table_id
            if not (is_newest and is_same_table) or _may_be_vectors(delta_table, candidates):
                return None
            live: Any = delta_table.get_add_actions().column("path")
            kept_names = _recently_removed(delta_table, facts.table_files.retention_ms)
            kept_names |= {name_in_table(path) or path for path in live.to_pylist()}
    except (DeltaError, Broken):
        return None
    has_absolute_paths = any(is_absolute(name) for name in kept_names)
    if has_absolute_paths or not kept_names >= _needed(facts):
        return None
    return kept_names


def _may_be_vectors(delta_table: "DeltaTable", candidates: Iterable[Candidate]) -> bool:
    """Whether a candidate may be a deletion vector. deltalake does not name live vectors."""
    has_vectors = _VECTORS in (delta_table.protocol().reader_features or ())
    return has_vectors and not all(each.name.endswith(".parquet") for each in candidates)


def _recently_removed(delta_table: "DeltaTable", retention_ms: int | None) -> set[str]:
    """The files that were removed within the retention, according to deltalake.

    deltalake does not understand every interval in the table's properties, so a retention of whole
    hours is passed as a number. For any other retention, deltalake reads the properties. A file
    that was removed twice is listed twice, and counts as expired only if both removals are past the
    retention.
    """
    whole_hours, rest_ms = divmod(retention_ms or 0, HOUR_MS)
    expired = delta_table.vacuum(
        retention_hours=None if rest_ms else whole_hours,
        dry_run=True,
        enforce_retention_duration=False,
    )
    removed = delta_table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    return {*(Counter(removed) - Counter(expired))}


def _needed(facts: VacuumFacts) -> set[str]:
    """The files that the table needs according to our own reading of its log."""
    files = facts.table_files
    since_ms = now_ms() - (files.retention_ms or 0)
    recently_removed = (name for name, ms in files.removed.items() if (ms or 0) >= since_ms)
    return {*filter(is_data_file, chain(files.live, recently_removed))}


# Limits the paths in one dry run to a few megabytes.
_FILES_PER_DRY_RUN = 50_000


def confirmed_by_spark(
    spark: "SparkSession", uri: str, table: str, candidates: Sequence[Candidate]
) -> set[str]:
    """The names of the candidates that Delta would also delete.

    `uri` is the table's address in SQL statements. `table` is the table's key, for messages.

    Raises:
        Broken: Delta would delete a file that is not a candidate.
    """
    from lakehouse.spark import statements
    from lakehouse.spark.frames import temporary_view

    detail = spark.sql(f"DESCRIBE DETAIL {statements.path_table(uri)}")
    location: str = detail.select("location").collect()[0][0]
    confirmed = set[str]()
    for start in range(0, len(candidates), _FILES_PER_DRY_RUN):
        batch = candidates[start : start + _FILES_PER_DRY_RUN]
        names = {f"{location}/{each.name}": each.name for each in batch}
        with temporary_view(spark, spark.createDataFrame(_inventory([*names], batch))) as view:
            rows = spark.sql(statements.vacuum_dry_run(uri, view)).toArrow()
        confirmed |= confirmed_names(rows.column("path").to_pylist(), names, table=table)
    return confirmed


def confirmed_names(answer: Iterable[str], names: Mapping[str, str], *, table: str) -> set[str]:
    """The names of the files in Delta's answer, which contains full paths.

    `names` maps the full path of each file that Delta was asked about to its name in the table.
    (For a file more folders deep than the table's own path has parts, Delta also answers a folder
    that it was not asked about. The vacuum then stops.)

    Raises:
        Broken: the answer contains a path that Delta was not asked about.
    """
    confirmed = {*answer}
    if unexpected := confirmed - names.keys():
        raise Broken(
            f"vacuum of {table}: Delta would delete {min(unexpected)}, a file that the plan does "
            "not contain. Nothing was deleted. Report this problem with the version of Delta"
        )
    return {names[path] for path in confirmed}


def _inventory(paths: Sequence[str], candidates: Sequence[Candidate]) -> "pa.Table":
    """The files as an inventory for VACUUM, with Delta's column order and types, all nullable.

    `paths` must begin with the table's `location` as Delta spells it: Delta ignores other paths.
    Source: delta-io/delta v4.4.0, VacuumCommand.getFilesFromInventory
    """
    import pyarrow as pa

    return pa.table(
        {
            "path": paths,
            "length": [each.size_bytes for each in candidates],
            "isDir": [False] * len(candidates),
            "modificationTime": [each.modified_ms for each in candidates],
        }
    )


class Recheck:
    """Checks a plan's files once more. Adds each file to keep to `spared`, with a reason.

    `gone` are the names of files that were not in storage any more.
    """

    def __init__(self, lake_facts: LakeFacts, planned: VacuumPlan, spared: dict[str, str]) -> None:
        self._lake_facts = lake_facts
        self._planned = planned
        self._spared = spared
        self._facts = planned.facts
        self.gone = set[str]()

    def confirmed(self, open_spark: "Callable[[], SparkSession]") -> list[Candidate]:
        """The planned files that Delta would also delete. Adds the others to `spared`."""
        planned = self._planned.candidates
        confirmed = confirmed_by_delta(self._lake_facts.lake, open_spark, self._facts, planned)
        kept_names = {each.name for each in planned} - {each.name for each in confirmed}
        self._spare(kept_names, "Delta would not delete it")
        return confirmed

    def still_deletable(self, batch: Sequence[Candidate]) -> list[Candidate]:
        """The files of the batch that may be deleted now. Adds the files to keep to `spared`.

        Files that are gone are omitted, too.

        Raises:
            Broken: the table's log is gone, or was reset to an older state.
            Refused: the log of another table cannot be read.
        """
        self._lake_facts.read(self._planned.table, before_deletion=True)
        self._facts = replace(self._facts, other_uses=self._lake_facts.uses)
        self._spare(self._in_new_tables(batch), "a table was created in its folder meanwhile")
        if not self._facts.on_s3:
            linked = self._in_linked_folders(batch)
            self._spare(linked, "its folder is a link out of the table's folder")
        self._spare(self._rewritten(batch), "it was written again after it was listed")
        self._ask_the_log()
        self._spare_needed(batch)
        kept_names = self._spared.keys() | self.gone
        return [each for each in batch if each.name not in kept_names]

    def _spare(self, names: Iterable[str], why: str) -> None:
        """Adds files to `spared`, unless they are there for an earlier reason."""
        for name in names:
            self._spared.setdefault(name, why)

    def _rewritten(self, candidates: Sequence[Candidate]) -> set[str]:
        """The files that were written again. Adds files that are gone to `gone`.

        One HEAD request per file would cost as much as Delta's own vacuum. So on S3, names that no
        writer uses twice are not checked.
        """
        store = self._lake_facts.lake.store
        if self._facts.on_s3:
            candidates = [each for each in candidates if not written_once(each.name)]
        names = [f"{self._planned.table}/{each.name}" for each in candidates]
        rewritten = set[str]()
        for each, file in zip(candidates, at_once(store.stat, names), strict=True):
            if file is None:
                self.gone.add(each.name)
            elif self._is_another(each, file):
                rewritten.add(each.name)
        return rewritten

    def _in_new_tables(self, candidates: Sequence[Candidate]) -> set[str]:
        """The files below a folder that has become a table, for example by CONVERT TO DELTA.

        Sends two HEAD requests per folder that may have.
        """
        names = (each.name for each in candidates)
        folders = folders_to_ask(self._facts, self._planned.mode, names)
        paths = [f"{self._planned.table}/{folder}" for folder in folders]
        are_tables = at_once(partial(is_table, self._lake_facts.lake.store), paths)
        tables = Owners(compress(folders, are_tables))
        return {each.name for each in candidates if tables.table_of(each.name)}

    def _in_linked_folders(self, candidates: Sequence[Candidate]) -> set[str]:
        """The files that a symbolic link in their name leads to."""
        resolve = PathResolver(self._lake_facts.lake)
        uri = self._lake_facts.lake.table_uri(self._planned.table)
        folder = resolve(uri)
        names = (each.name for each in candidates if "/" in each.name)
        return {name for name in names if resolve(f"{uri}/{name}") != f"{folder}/{name}"}

    def _is_another(self, candidate: Candidate, file: StoredFile) -> bool:
        """Whether the stored file is a new file, with another size or a too recent time.

        Some writers use the same name in each attempt, and may be about to commit the new file. In
        LITE mode, the size is known only if the log records it. If only files that the log names
        may be deleted (`log_only`), every file that was modified after its removal is a new file.
        """
        too_late_ms = self._planned.horizon_ms
        if self._facts.log_only:
            too_late_ms = min(too_late_ms, candidate.modified_ms + 1)
        is_size_known = candidate.size_bytes > 0 or self._planned.mode != "LITE"
        has_another_size = is_size_known and file.size_bytes != candidate.size_bytes
        return file.modified_ms >= too_late_ms or has_another_size

    def _spare_needed(self, candidates: Sequence[Candidate]) -> None:
        """Adds the files to `spared` that the newest facts do not allow to delete."""
        facts = self._facts
        guard = DeletionGuard(facts, now_ms=now_ms(), horizon_ms=self._planned.horizon_ms)
        needed = guard.still_needed(candidates)
        files = facts.table_files
        lent = (name for name in needed if facts.other_uses.may_read(files, name))
        self._spare(lent, "another table reads it")
        self._spare(needed, f"version {files.version} needs it again")

    def _ask_the_log(self) -> None:
        """Reads the table's own log again, with its retention, if it has a newer version."""
        if not has_newer_version(self._lake_facts.lake, self._facts.log):
            return
        log = self._lake_facts.log(self._planned.table)
        if log is None:
            raise Broken(
                f"vacuum of {self._planned.table}: the table's log disappeared during the vacuum, "
                "so no more files were deleted. Restore the log, then run the vacuum again"
            )
        self._facts = replace(self._facts, table_files=log.table_files, log=log.facts)


# The last check is repeated after this many seconds of deleting.
_CHECK_AGAIN_SECONDS = 60.0
_PAUSES_SECONDS = (0.5, 2.0, 8.0)


class VacuumProgress:
    """The progress of one vacuum. `spared` and `failed` map file names to reasons."""

    def __init__(self, lake: Lake, table: Table, owner: str | None = None) -> None:
        self._lake = lake
        self._table = table
        self._run_id = owner or uuid4().hex
        self._began_ms = now_ms()
        self._started = time.monotonic()
        self._requests_before = lake.store.requests.copy()
        self.deleted_files = 0
        self.deleted_bytes = 0
        self.spared = dict[str, str]()
        self.failed = dict[str, str]()

    def count(self, deleted: Iterable[Candidate]) -> None:
        """Counts deleted files."""
        for each in deleted:
            self.deleted_files += 1
            self.deleted_bytes += each.size_bytes

    def record(self, planned: VacuumPlan, *, has_ended_well: bool) -> VacuumOutcome:
        """Adds the vacuum to the lake's operations, and returns the outcome.

        The count of deleted files may be too high on S3, which also reports success for a key that
        does not exist.
        """
        requests = dict(self._lake.store.requests - self._requests_before)
        operation = ended_operation(
            self._table,
            "vacuum",
            time.monotonic() - self._started,
            operation_id=uuid4().hex,
            result="failed" if self.failed else "succeeded",
            reason=planned.reason.name,
            run=self._run_id,
            requests=requests,
        )
        usd = operation.usd or 0.0
        quote = planned.quote
        figures = (
            Figure("files", planned.file_count, self.deleted_files),
            Figure("bytes", planned.size_bytes, self.deleted_bytes),
            Figure("requests", sum(planned.requests.values()), sum(requests.values())),
            Figure("seconds", round(quote.seconds, 3), round(operation.seconds or 0.0, 3)),
            Figure("usd", round(quote.usd, 9), round(usd, 9)),
        )
        detail = asdict(self._record_of(planned, usd, has_ended_well))
        operation = replace(operation, figures=figures, detail=detail)
        record_operation(self._lake, operation)
        return VacuumOutcome(plan=planned, figures=figures, spared=self.spared, failed=self.failed)

    def _record_of(self, planned: VacuumPlan, usd: float, has_ended_well: bool) -> VacuumRecord:
        """What later vacuums need to know.

        The record counts as complete if the vacuum ended well, and if the record has room for the
        names of all files that were kept or could not be deleted.
        """
        kept_names = {*planned.remembered}
        log = planned.facts.log
        if planned.facts.log_only:
            # No listing will find these files again, so the record names them for later vacuums.
            kept_names.update(self.spared)
        all_are_named = max(len(self.failed), len(kept_names)) <= FAILED_NAMED
        return VacuumRecord(
            started_ms=self._began_ms,
            ended_ms=now_ms(),
            mode=planned.mode,
            version=planned.version,
            horizon_ms=planned.horizon_ms,
            usd=usd,
            failed=dict(islice(self.failed.items(), FAILED_NAMED)),
            kept=sorted(kept_names)[:FAILED_NAMED],
            is_complete=has_ended_well and all_are_named,
            table_id=log.snapshot.table_id,
            committed_ms=log.history.committed_ms_of(planned.version),
        )


def vacuum(
    lake_facts: LakeFacts,
    open_spark: "Callable[[], SparkSession]",
    table: Table,
    *,
    mode: VacuumMode | None = None,
    owner: str | None = None,
) -> VacuumOutcome | None:
    """Vacuums `table`.

    Returns `None` if there is no table. Opens a Spark session only if deltalake cannot answer.
    `owner` names the caller in the lock and in the lake's operations.

    Raises:
        Refused: the table may not be vacuumed now, or not in this mode.
        Transient: another process holds the table, or the server or the storage does not answer.
            The lake's operations say how many files were deleted before the error.
        Broken: Delta's answer contradicts the plan, or live files are missing.
    """
    lake = lake_facts.lake
    check_clock(lake, table.key)
    progress = VacuumProgress(lake, table, owner)
    planned = plan(lake_facts, table, mode=mode)
    lake_facts.remember_found()
    if planned is None:
        return None
    if planned.candidates:
        holder = owner or f"vacuum of {table.key}"
        with translated(table.key, operation="vacuum"), hold(lake, None, table.key, owner=holder):
            if has_newer_version(lake, planned.facts.log):
                planned = plan(lake_facts, table, mode=mode)
                assert planned is not None  # its log was found just now
            try:
                _carry_out(lake_facts, open_spark, planned, progress)
            except BaseException:
                # If storage fails here, too, that must not hide the first error.
                with contextlib.suppress(LakehouseError):
                    progress.record(planned, has_ended_well=False)
                raise
    return progress.record(planned, has_ended_well=True)


def rehearse(
    lake_facts: LakeFacts,
    open_spark: "Callable[[], SparkSession]",
    table: Table,
    *,
    mode: VacuumMode | None = None,
) -> VacuumPlan | None:
    """The plan, reduced to the files that Delta and the last check confirm. Changes nothing.

    Returns `None` if there is no table. Raises as `vacuum`.
    """
    planned = plan(lake_facts, table, mode=mode)
    if planned is None or not planned.candidates:
        return planned
    with translated():
        spared = dict[str, str]()
        recheck = Recheck(lake_facts, planned, spared)
        remaining = recheck.still_deletable(recheck.confirmed(open_spark))
        return plan_rest(planned, remaining, spared)


def _carry_out(
    lake_facts: LakeFacts,
    open_spark: "Callable[[], SparkSession]",
    planned: VacuumPlan,
    progress: VacuumProgress,
) -> None:
    """Deletes the planned files that Delta and the last checks confirm.

    After a transient failure, the last check is repeated, because minutes may pass until a request
    to storage times out. If the failure lost the response of a deletion, the files of its batch
    that are gone count as deleted.
    """
    lake = lake_facts.lake
    recheck = Recheck(lake_facts, planned, progress.spared)
    remaining = recheck.confirmed(open_spark)
    batch: Sequence[Candidate] = ()
    failures = 0
    while remaining:
        try:
            remaining = recheck.still_deletable(remaining)
            progress.count(each for each in batch if each.name in recheck.gone)
            checked_seconds = time.monotonic()
            while remaining:
                batch = remaining[:DELETE_KEYS]
                _delete(lake, planned.table, batch, progress)
                remaining = remaining[len(batch) :]
                batch = ()
                failures = 0
                if time.monotonic() - checked_seconds >= _CHECK_AGAIN_SECONDS:
                    break
        except Transient as error:
            failures += 1
            if failures > len(_PAUSES_SECONDS):
                progress.failed |= {each.name: str(error) for each in remaining}
                raise
            pause_about(_PAUSES_SECONDS[failures - 1])  # the storage may be throttling


def _delete(lake: Lake, table: str, batch: Sequence[Candidate], progress: VacuumProgress) -> None:
    places = {each.name: lake.store.place_of(f"{table}/{each.name}") for each in batch}
    [store] = {store for store, _ in places.values()}
    failed = store.delete_each([real_name for _, real_name in places.values()])
    for name, (_, real_name) in places.items():
        if real_name in failed:
            progress.failed[name] = failed[real_name]
    progress.count(each for each in batch if each.name not in progress.failed)
