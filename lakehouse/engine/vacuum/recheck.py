"""Re-checks the planned files right before they are deleted, and after each minute of deleting.

**Safety properties**
- A file is kept if its folder has become a table, or a link out of the table's folder
  (`test_meanwhile.py`).
- A file that was written again after it was listed is kept. On S3, this check omits files whose
  names no writer uses twice (`test_meanwhile.py`).
- First the logs of other tables are read, which may take minutes. Then storage is checked. The
  table's own log is read last, so a file that was written again and committed during the checks is
  kept (`test_meanwhile.py`).
- The vacuum stops with an error if the table's log is gone or was reset, or if the log of another
  table, which may read this table's files, cannot be read (`test_meanwhile.py`, `test_unread.py`).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lakehouse.core.errors import Broken
from lakehouse.core.vacuum.candidates import Candidate, LastCheck
from lakehouse.core.vacuum.facts import ASKED_AT_ONCE, folders_above, folders_to_ask, written_once
from lakehouse.core.vacuum.plan import VacuumPlan
from lakehouse.engine.clock import now_ms
from lakehouse.engine.store import StoredFile
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.log_state import has_newer_version
from lakehouse.engine.vacuum.plan import VacuumInputs, own_folders


class Recheck:
    """Checks a plan's files once more. Adds each file to keep to `spared`, with a reason."""

    def __init__(
        self,
        lake_facts: LakeFacts,
        inputs: VacuumInputs,
        planned: VacuumPlan,
        spared: dict[str, str],
    ) -> None:
        self._lake_facts = lake_facts
        self._planned = planned
        self._spared = spared
        self._facts = inputs.facts
        self._check: LastCheck | None = None

    def still_deletable(self, batch: Sequence[Candidate]) -> list[Candidate]:
        """The files of the batch that may be deleted now. Adds the files to keep to `spared`.

        Files that are found to be gone are omitted (`_unchanged`).

        Raises:
            Broken: the table's log is gone, or was reset to an older state.
            Refused: the log of another table cannot be read.
        """
        table = self._planned.table
        self._ask_the_lake()
        in_new_tables = self._in_new_tables(batch)
        why = "a table was created in its folder meanwhile"
        candidates = self._without(batch, in_new_tables, why)
        if not self._facts.on_s3:
            is_own = own_folders(self._lake_facts.lake, table)
            linked = {each.name for each in candidates if not is_own(each.name)}
            why = "its folder is a link out of the table's folder"
            candidates = self._without(candidates, linked, why)
        candidates = self._unchanged(candidates)
        self._ask_the_log()
        return self._allowed(candidates)

    def _unchanged(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates without files that are gone or were written again.

        One HEAD request per file would cost as much as Delta's own vacuum. So on S3, names that no
        writer uses twice are not checked.
        """
        store = self._lake_facts.lake.store
        to_check = list[Candidate](candidates)
        if self._facts.on_s3:
            to_check = [each for each in candidates if not written_once(each.name)]
        names = [f"{self._planned.table}/{each.name}" for each in to_check]
        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            stored_files = [*pool.map(store.stat, names)]
        gone = set[str]()
        rewritten = set[str]()
        for each, file in zip(to_check, stored_files, strict=True):
            if file is None:
                gone.add(each.name)
            elif self._is_another(each, file):
                rewritten.add(each.name)
        remaining = [each for each in candidates if each.name not in gone]
        return self._without(remaining, rewritten, "it was written again after it was listed")

    def _in_new_tables(self, candidates: Sequence[Candidate]) -> set[str]:
        """The files below a folder that has become a table, for example by CONVERT TO DELTA.

        Sends one request per folder. The plan contains no files of other known tables. But since
        the plan was made, a new table may have taken over files that this table removed.
        """
        store = self._lake_facts.lake.store
        names = (each.name for each in candidates)
        # By folder: whether a HEAD request for the first commit suffices, instead of a listing.
        head_suffices = folders_to_ask(self._facts, self._planned.mode, names)

        def has_log(folder: str) -> bool:
            log = f"{self._planned.table}/{folder}/_delta_log"
            if head_suffices[folder]:
                return store.stat(f"{log}/{0:020}.json") is not None
            return bool(store.list(log))

        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            answers = zip(head_suffices, pool.map(has_log, head_suffices), strict=True)
            tables = {folder for folder, is_table in answers if is_table}
        return {each.name for each in candidates if not tables.isdisjoint(folders_above(each.name))}

    def _is_another(self, candidate: Candidate, file: StoredFile) -> bool:
        """Whether the stored file is a new file, with another size or a too recent time.

        Some writers use the same name in each attempt, and may be about to commit the new file. In
        LITE mode, the size is known only if the log records it. If only files that the log names
        may be deleted (`log_only`), every file that was modified after its removal, or on a disk
        after the plan was made, is a new file.
        """
        if candidate.goes_with:
            return False  # a checksum file is kept or deleted with its data file
        too_late_ms = self._planned.horizon_ms
        if self._facts.log_only:
            too_late_ms = min(too_late_ms, candidate.modified_ms + 1)
        is_size_known = candidate.size_bytes > 0 or self._planned.mode != "LITE"
        has_another_size = is_size_known and file.size_bytes != candidate.size_bytes
        return file.modified_ms >= too_late_ms or has_another_size

    def _without(
        self, candidates: Sequence[Candidate], names: set[str], why: str
    ) -> list[Candidate]:
        """The candidates without `names` and their checksums; adds `names` to `spared`."""
        self._spared |= {each.name: why for each in candidates if each.name in names}
        return [each for each in candidates if (each.goes_with or each.name) not in names]

    def _allowed(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates that pass `LastCheck`; adds the others to `spared`."""
        if self._check is None:
            horizon_ms = self._planned.horizon_ms
            self._check = LastCheck(self._facts, horizon_ms=horizon_ms, now_ms=now_ms())
        allowed = self._check.allow(candidates)
        names = {each.name for each in allowed}
        table_files = self._facts.table_files
        for each in candidates:
            if each.name in names:
                continue
            why = f"version {table_files.version} needs it again"
            if table_files.name_in_lake(each.name) in self._facts.borrowed:
                why = "another table reads it"
            self._spared[each.name] = why
        return allowed

    def _ask_the_lake(self) -> None:
        """Reads which files other tables read now."""
        lake_facts = self._lake_facts
        lake_facts.ask_before_deletion(self._planned.table)
        facts = replace(self._facts, borrowed=lake_facts.borrowed, unplaced=lake_facts.unplaced)
        has_changed = (facts.borrowed, facts.unplaced) != (
            self._facts.borrowed,
            self._facts.unplaced,
        )
        if has_changed:
            self._facts = facts
            self._check = None

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
        self._check = None
