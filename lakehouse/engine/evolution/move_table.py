"""Moves a table to another key of its lake, with everything that the lake records under its key.

1. Take the locks of both keys, plan again, and record the move in the journal.
2. If landed files were loaded, write a commit without rows to the old table. It records the number
   of the last batch under the new key, too. Do the same in the table's quarantine.
3. Copy every object to the new key: first data files and records, then the logs without their
   start, then the start of each log (`moved_files`). Readers find the new table only when it is
   complete.
4. List both keys again. Copy objects that were added or changed meanwhile, until every object has a
   copy. Then record that the copy is complete.
5. Take the locks of all tables that read this table.
6. Delete the old objects that have a copy, in the opposite order: the start of each log first, so
   that readers no longer find the old table when its files are deleted. Before each batch of
   deletions, list the old log. If it has a new commit, copy the commit first.
7. Delete the record. With `keep_old`, skip step 6, and keep the record, marked as finished.

**Safety properties** (tests in `long/test_move_table.py`, `test_move_kills.py`)
- If a run dies after any step, one of the keys has the complete table. The next run finishes.
- During the move, a reader of a key finds no table, or no older version than when the copy began.
- An object is deleted only after the table was complete at its new key, and only if the last
  listing shows its copy: a data file of the same size, a commit of the same content, or, for other
  objects, a copy or a newer object of that name.
- A commit by another program during the move is copied, too. If the new key has a different commit
  with this number, both stay, and the move stops.
- No load or derivation writes to the new key before the move is finished (`journal.moves`).
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

from lakehouse.core.costs.compaction_estimate import run_price
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import MOVED_FROM
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.evolution.move import COPIES_AT_ONCE, MoveOutcome, MovePlan
from lakehouse.core.evolution.move_facts import MoveRecord
from lakehouse.core.ingest.batches import ingest_app_id
from lakehouse.core.inventory.objects import PAGE_KEYS
from lakehouse.core.text import count_of, size_text
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.evolution.move_facts import plan_move
from lakehouse.engine.evolution.moved_files import (
    DATA_FILES,
    MovingFile,
    Stage,
    folders_of,
    is_commit_of_log,
    moving_files,
    targets,
)
from lakehouse.engine.ingest.quarantine.entries import quarantine_app_id, quarantine_key
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.journal.moves import forget_move, move_record, record_move
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark import delta_writes
from lakehouse.engine.spark.delta_writes import FrameWrite, Transaction
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.store import StoredFile
from lakehouse.engine.table_lock import hold

# The move gives up if other writers still change the table after this many comparisons.
_ROUNDS = 6


def run_move(
    session: TableSession,
    plan: MovePlan,
    declared: Iterable[Table],
    *,
    keep_old: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> MoveOutcome:
    """Moves the session's table; `tell` gets the copy's progress. `declared` are all tables.

    Raises:
        Refused: the plan, or the new plan that is made under the locks, is refused.
        Transient: another process holds a lock, or others commit faster than the move copies.
        Broken: a commit or data file differs between the keys, or the copy has another table id.
    """
    plan.checked(keep_old=keep_old)
    started = time.monotonic()
    requests_before = session.lake.store.requests.total()
    owner = f"move of {plan.old_key} to {plan.new_key}"
    with ExitStack() as locks, translated():
        for key in (plan.old_key, plan.new_key):
            locks.enter_context(hold(session.lake, session.spark, key, owner=owner))
        new_plan = plan_move(session.lake, session.table, declared)
        if new_plan is None:
            raise Refused(f"{owner}: another run has finished the move. Nothing more to do")
        new_plan.checked(keep_old=keep_old)
        move = TableMove(session, new_plan, tell)
        move.copy()
        for key in new_plan.readers:
            locks.enter_context(hold(session.lake, session.spark, key, owner=owner))
        if keep_old:
            move.keep()
        else:
            move.delete_old()
    seconds = time.monotonic() - started
    requests = session.lake.store.requests.total() - requests_before
    return MoveOutcome(
        plan=plan,
        count=move.copied_count,
        size_bytes=move.copied_bytes,
        deleted=move.deleted_count,
        requests=requests,
        seconds=seconds,
        usd=run_price(session.table.prices, seconds=seconds, put_requests=requests),
        kept_old=keep_old,
    )


class TableMove:
    """One run of a move. Creating it records the move. The caller holds the locks of both keys."""

    def __init__(self, session: TableSession, plan: MovePlan, tell: Callable[[str], None]) -> None:
        self._session = session
        self._lake = session.lake
        self._table = session.table
        self._old = plan.old_key
        self._new = plan.new_key
        self._tell = tell
        self._record = self._begin()
        # The ETag of each copy that this run made, by source. It may differ from the source's ETag.
        self._etags = dict[StoredFile, str]()
        self.copied_count = self.copied_bytes = self.deleted_count = 0

    def copy(self) -> None:
        """Copies all objects until the new key has a copy of each, and records this."""
        if not self._record.is_copied:
            self._commit_new_key()
        self._copy_missing()
        if self._record.is_copied:
            return
        facts = self._lake.facts(self._new)
        if facts is None or facts.snapshot.table_id != self._record.table_id:
            raise Broken(
                f"move of {self._old}: the copy at {self._new} does not have the table id"
                f" {self._record.table_id}; nothing was deleted. Look at {self._new}/_delta_log"
            )
        version = facts.snapshot.version
        self._record = replace(self._record, is_copied=True, version=version)
        record_move(self._lake.store, self._record)
        Journal(self._lake.store).mark_changed()
        self._tell(f"{self._new} now has version {version} of the table")

    def keep(self) -> None:
        """Records that the move is finished and that the old folder is kept."""
        record_move(self._lake.store, replace(self._record, is_finished=True))

    def delete_old(self) -> None:
        """Deletes the old objects, and ends the move."""
        for _ in range(_ROUNDS):
            files = self._copy_missing()
            if not files:
                for folder in folders_of(self._old):
                    self._lake.store.remove_empty_folders(folder)
                Journal(self._lake.store).mark_changed()
                forget_move(self._lake.store, self._new)
                return
            self._delete(files)
        raise self._too_busy()

    def _begin(self) -> MoveRecord:
        """The journal's record of this move, written by an earlier run or by this one."""
        record = move_record(self._lake.store, self._table)
        if record is not None:
            self._tell(f"an earlier run began the move of {self._old} to {self._new}")
            return record
        snapshot = self._facts(self._old).snapshot
        record = MoveRecord(
            old_key=self._old,
            new_key=self._new,
            table_id=snapshot.table_id,
            version=snapshot.version,
            started_ms=now_ms(),
        )
        record_move(self._lake.store, record)
        return record

    def _facts(self, key: str) -> TableFacts:
        facts = self._lake.facts(key)
        if facts is None:
            raise Transient(f"move of {self._old}: the table at {key} has disappeared. Try again")
        return facts

    def _commit_new_key(self) -> None:
        """Records in the old logs, under the new key, which landed batch was loaded last."""
        for key, app_id in (
            (self._old, ingest_app_id),
            (quarantine_key(self._old), quarantine_app_id),
        ):
            facts = self._lake.facts(key)
            if facts is None:
                continue
            transactions = facts.snapshot.transactions
            number = transactions.get(app_id(self._old))
            new_id = app_id(self._new)
            if number is None or transactions.get(new_id) == number:
                continue
            no_rows = table_at(self._session.spark, facts.snapshot).limit(0)
            write = FrameWrite(
                mode="append",
                transaction=Transaction(app_id=new_id, version=number),
                user_metadata=json.dumps({MOVED_FROM: self._old}),
            )
            delta_writes.write_frame(no_rows, facts.snapshot.uri, write)

    def _copy_missing(self) -> list[MovingFile]:
        """Copies until every old object has a copy. Returns the last listing of old objects."""
        is_copied = self._record.is_copied
        for _ in range(_ROUNDS):
            files = [*moving_files(self._lake, self._table, self._old, is_copied=is_copied)]
            existing = targets(self._lake, self._table)
            missing = [file for file in files if not self._is_copied(file, existing)]
            if not missing:
                return files
            size_bytes = sum(file.source.size_bytes for file in missing)
            self._tell(f"{count_of(len(missing), 'object')} to copy ({size_text(size_bytes)})")
            for stage in Stage:
                self._copy_all([file for file in missing if file.stage is stage])
        raise self._too_busy()

    def _is_copied(self, file: MovingFile, existing: Mapping[str, StoredFile]) -> bool:
        """Whether the new key has a copy of an object, or already a newer object of that name.

        Raises:
            Broken: the new key has a different commit or data file of that name.
        """
        source = file.source
        copy = existing.get(file.target)
        if copy is None:
            return False
        is_same_size = copy.size_bytes == source.size_bytes
        if is_same_size and (_has_same_mark(source, copy) or self._etags.get(source) == copy.etag):
            return True
        if is_commit_of_log(file.target):
            is_same = self._lake.store.read(source.name) == self._lake.store.read(copy.name)
        else:
            is_same = is_same_size or file.kind != DATA_FILES
        if not is_same:
            raise Broken(
                f"move of {self._old}: {source.name} and {copy.name} differ: another program wrote"
                " to one of the two keys. Both files stay as they are. Compare the two logs, and"
                " restore the wrong one from a copy of the lake"
            )
        # Once the copy is complete, an object at the new key that differs is newer. Until then, the
        # old one is copied again.
        return self._record.is_copied or is_commit_of_log(file.target)

    def _copy_all(self, files: Sequence[MovingFile]) -> None:
        with ThreadPoolExecutor(max_workers=COPIES_AT_ONCE) as pool:
            results = [*pool.map(self._copy_one, files)]
        for file, is_copied in zip(files, results, strict=True):
            if is_copied:
                self.copied_count += 1
                self.copied_bytes += file.source.size_bytes

    def _copy_one(self, file: MovingFile) -> bool:
        """Copies an object. Returns whether the object still existed."""
        try:
            self._etags[file.source] = self._lake.store.copy(file.source, file.target)
        except FileNotFoundError:
            return False
        return True

    def _delete(self, files: Sequence[MovingFile]) -> None:
        """Deletes old objects, the start of each log first. Stops if the old log has changed."""
        log = f"{self._old}/_delta_log"
        listed = {file.source for file in files}
        for stage in reversed(Stage):
            names = [file.source.name for file in files if file.stage is stage]
            for start in range(0, len(names), PAGE_KEYS):
                if not listed.issuperset(self._lake.store.list(log)):
                    return
                batch = names[start : start + PAGE_KEYS]
                self._lake.store.delete(batch)
                self.deleted_count += len(batch)

    def _too_busy(self) -> Transient:
        return Transient(
            f"move of {self._old}: after {_ROUNDS} comparisons, the two keys still differ. Stop the"
            " programs that write the table, then try again"
        )


def _has_same_mark(source: StoredFile, copy: StoredFile) -> bool:
    """Whether a copy and its source have equal ETags (on S3) or times (on a disk).

    On S3, the ETags differ if the source was uploaded in parts, or is encrypted with KMS.
    """
    if source.etag or copy.etag:
        return source.etag == copy.etag
    return source.modified_ms == copy.modified_ms
