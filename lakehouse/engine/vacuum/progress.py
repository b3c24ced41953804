"""Tracks which files a vacuum deleted, spared or failed to delete, and records the result."""

import time
from collections.abc import Iterable
from itertools import islice
from uuid import uuid4

from lakehouse.core.costs.compaction_estimate import run_price
from lakehouse.core.declaration.table import Table
from lakehouse.core.journal_records import FAILED_NAMED, VacuumRecord
from lakehouse.core.vacuum.candidates import Candidate
from lakehouse.core.vacuum.facts import VacuumFacts, written_once
from lakehouse.core.vacuum.outcome import VacuumOutcome
from lakehouse.core.vacuum.plan import VacuumPlan
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import record_vacuum
from lakehouse.engine.lake import Lake


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

    def record(
        self, facts: VacuumFacts, planned: VacuumPlan, *, has_ended_well: bool
    ) -> VacuumOutcome:
        """Writes a record of the vacuum to the journal, and returns the outcome.

        The record counts as complete if the vacuum ended well and considered every file past the
        retention, and if the record has room for the names of all files that were kept or could not
        be deleted.
        """
        seconds = time.monotonic() - self._started
        requests = self._lake.store.requests - self._requests_before
        kept_names = {*planned.remembered}
        if planned.log_only:
            # No listing will find these files again, so the record names them for later vacuums.
            kept_names.update(self.spared)
        all_are_named = max(len(self.failed), len(kept_names)) <= FAILED_NAMED
        # The count of deleted files may be too high, because S3 also reports success for a key that
        # does not exist. A FULL vacuum has just listed each file. In the other modes, a file with a
        # unique name (`written_once`) is not checked, so it may be missing.
        may_be_missing = self._lake.on_s3(self._table.key) and planned.mode != "FULL"
        record = VacuumRecord(
            started_ms=self._began_ms,
            ended_ms=now_ms(),
            mode=planned.mode,
            report=planned.report,
            version=planned.version,
            horizon_ms=planned.horizon_ms,
            predicted_files=planned.file_count,
            predicted_bytes=planned.size_bytes,
            predicted_requests=sum(planned.requests.values()),
            predicted_seconds=planned.seconds,
            predicted_usd=planned.usd,
            deleted_files=self.deleted_files,
            deleted_bytes=self.deleted_bytes,
            spared=len(self.spared),
            seconds=seconds,
            usd=run_price(
                self._table.prices,
                seconds=seconds,
                get_requests=_count_of(requests, "Get", "Head"),
                put_requests=_count_of(requests, "Put", "List"),
            ),
            failed=dict(islice(self.failed.items(), FAILED_NAMED)),
            kept=sorted(kept_names)[:FAILED_NAMED],
            lists_saved=planned.lists_saved,
            is_complete=has_ended_well and not planned.over_limit_count and all_are_named,
            is_at_most=may_be_missing
            and any(written_once(each.name) for each in planned.candidates),
            run=self._run_id,
            requests=dict(requests),
            table_id=facts.log.snapshot.table_id,
            committed_ms=facts.log.history.committed_ms_of(planned.version),
        )
        record_vacuum(self._lake.store, self._table.key, record)
        return VacuumOutcome(plan=planned, record=record, spared=self.spared, failed=self.failed)


def _count_of(requests: dict[str, int], *prefixes: str) -> int:
    return sum(count for name, count in requests.items() if name.startswith(prefixes))
