"""The questions asked again before each batch goes: the plan is older than the deletion, and others write meanwhile.

**Safety properties**
- A file stays if its folder has become a table, or a link out of the table's folder
  (`test_meanwhile.py`).
- A file that was written again since it was listed stays. On S3, only names that a writer uses once
  are not checked (`test_meanwhile.py`).
- The table's own log is read after storage, so a file that was written again and committed
  meanwhile is found. The other tables' logs, which may take minutes, are read before both
  (`test_meanwhile.py`).
- A log that is gone or was put back ends the vacuum, and so does an unreadable log of another table
  (`test_meanwhile.py`, `test_unread.py`).
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
    """The last check of one plan's files; what it keeps goes into `spared` with the reason."""

    def __init__(
        self, run: LakeFacts, known: VacuumInputs, planned: VacuumPlan, spared: dict[str, str]
    ) -> None:
        self._run, self._planned, self._spared = run, planned, spared
        self._facts = known.facts
        self._later: LastCheck | None = None

    def still_going(self, batch: Sequence[Candidate]) -> list[Candidate]:
        """The files of the batch that may go now; what is gone already is left out, too, and is not spared.

        The log is asked last: a file that a writer makes again after storage was asked for it, and commits, is found there.

        Raises:
            Broken: the log is gone, or was put back to an older state.
            Refused: the log of another table cannot be read.
        """
        store, table = self._run.lake.store, self._planned.table
        self._ask_the_lake()
        inside = self._in_new_tables(batch)
        going = self._without(batch, inside, "a table was made in its folder since it was listed")
        if not self._facts.on_s3:
            is_own = own_folders(self._run.lake, table)
            linked = {each.name for each in going if not is_own(each.name)}
            going = self._without(
                going, linked, "its folder is a link that leads out of the table's"
            )
        # On S3 a request for each file would be as many as Delta takes, and nobody else writes a name that was made for one try.
        asked = [each for each in going if not self._facts.on_s3 or not written_once(each.name)]
        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            found = dict(
                zip(
                    asked,
                    pool.map(store.stat, [f"{table}/{each.name}" for each in asked]),
                    strict=True,
                )
            )
        gone = {each.name for each, now in found.items() if now is None}
        again = {
            each.name
            for each, now in found.items()
            if now is not None and self._is_another(each, now)
        }
        going = self._without(
            [each for each in going if each.name not in gone],
            again,
            "it was written again since it was listed",
        )
        self._ask_the_log()
        return self._allowed(going)

    def _in_new_tables(self, candidates: Sequence[Candidate]) -> set[str]:
        """The files in whose folder, or above it, a table lies, as CONVERT makes one of what lies there: one request for each folder.

        The plan holds no file of a table that was known; a file that this table removed may be the new one's as well as an orphan.
        """
        store, asked = (
            self._run.lake.store,
            folders_to_ask(self._facts, self._planned.mode, (each.name for each in candidates)),
        )

        def has_log(folder: str) -> bool:
            log = f"{self._planned.table}/{folder}/_delta_log"
            return (
                store.stat(f"{log}/{0:020}.json") is not None
                if asked[folder]
                else bool(store.list(log))
            )

        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            made = {
                folder for folder, has in zip(asked, pool.map(has_log, asked), strict=True) if has
            }
        return {each.name for each in candidates if not made.isdisjoint(folders_above(each.name))}

    def _is_another(self, each: Candidate, now: StoredFile) -> bool:
        """Whether storage has the file in another state than the plan knew: of another size, or modified within the retention.

        A writer that gives a file the same name in each try may be about to commit it. LITE knows sizes only where the log does. Where the
        log alone decides, what was modified after its removal is a file that the log never told of.
        """
        if each.goes_with:
            return False
        horizon_ms = self._planned.horizon_ms
        too_late_ms = min(horizon_ms, each.modified_ms + 1) if self._facts.log_only else horizon_ms
        is_size_known = each.size_bytes > 0 or self._planned.mode != "LITE"
        return now.modified_ms >= too_late_ms or (
            is_size_known and now.size_bytes != each.size_bytes
        )

    def _without(
        self, candidates: Sequence[Candidate], names: set[str], why: str
    ) -> list[Candidate]:
        """The files but for these, each of which keeps Hadoop's checksum of it."""
        self._spared |= {each.name: why for each in candidates if each.name in names}
        return [each for each in candidates if (each.goes_with or each.name) not in names]

    def _allowed(self, going: Sequence[Candidate]) -> list[Candidate]:
        if self._later is None:
            self._later = LastCheck(
                self._facts, horizon_ms=self._planned.horizon_ms, now_ms=now_ms()
            )
        allowed = self._later.allow(going)
        names = {each.name for each in allowed}
        for each in going:
            if each.name not in names:
                is_lent = self._facts.table_files.place_of(each.name) in self._facts.lent
                self._spared[each.name] = (
                    "another table reads it"
                    if is_lent
                    else f"version {self._facts.table_files.version} needs it again"
                )
        return allowed

    def _ask_the_lake(self) -> None:
        run = self._run
        run.ask_before_deletion(self._planned.table)
        if (run.lent, run.unplaced) != (self._facts.lent, self._facts.unplaced):
            self._facts, self._later = (
                replace(self._facts, lent=run.lent, unplaced=run.unplaced),
                None,
            )

    def _ask_the_log(self) -> None:
        """The table's own log is read again where it has a newer version; by that the retention, too, is the one of then."""
        if not has_newer_version(self._run.lake, self._facts.log):
            return
        log = self._run.log(self._planned.table)
        if log is None:
            raise Broken(
                f"vacuum of {self._planned.table}: its log is gone since the vacuum began; the rest was left alone"
            )
        self._facts, self._later = (
            replace(self._facts, table_files=log.table_files, log=log.facts),
            None,
        )
