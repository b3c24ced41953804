"""Records failed compactions in the journal, where the circuit breaker counts them."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.delta.commits import Commit
from lakehouse.core.errors import LakehouseError, Refused, Transient
from lakehouse.core.journal_records import CompactionTry
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.errors import first_line, is_conflict, is_lost
from lakehouse.runtime.server_state import status


@dataclass(slots=True, kw_only=True)
class Attempt:
    """The progress of one compaction, which is recorded if the compaction fails.

    `run` names the run that compacts. `started` and `planned` describe the last statement.
    `lost_server`: the server was lost while that statement ran.
    """

    run: str
    by_person: bool = False
    started: float = field(default_factory=time.monotonic)
    planned: CompactionPlan | None = None
    lost_server: bool = False

    @contextlib.contextmanager
    def statement(self, planned: CompactionPlan) -> Iterator[None]:
        """Surrounds the plan's statement; notes its start, and whether it lost the server."""
        self.started = time.monotonic()
        self.planned = planned
        try:
            yield
        except Exception as error:
            self.lost_server = is_lost(error)
            raise

    def failed(self, why: str) -> CompactionTry:
        """The record of a failure. All planned work counts as wasted."""
        return CompactionTry(
            ended_ms=now_ms(),
            result="failed",
            bytes_rewritten=self.planned.bytes_removed if self.planned else 0,
            files_rewritten=self.planned.files_removed if self.planned else 0,
            seconds=time.monotonic() - self.started,
            why=why,
            run=self.run,
            by_person=self.by_person,
        )

    def lost_race(
        self, planned: CompactionPlan, commits: Sequence[Commit], *, seconds: float, why: str
    ) -> CompactionTry:
        """The record of a conflict: the planned work that was not committed.

        Its duration is its share of `seconds`, by bytes.
        """
        committed_bytes = sum(commit.removed_bytes for commit in commits)
        committed_files = sum(len(commit.removed_paths) for commit in commits)
        wasted_bytes = max(0, planned.bytes_removed - committed_bytes)
        return CompactionTry(
            ended_ms=now_ms(),
            result="conflict",
            bytes_rewritten=wasted_bytes,
            files_rewritten=max(0, planned.files_removed - committed_files),
            seconds=seconds * wasted_bytes / max(1, planned.bytes_removed),
            why=why,
            run=self.run,
            by_person=self.by_person,
        )


@contextlib.contextmanager
def failure_recorded(lake: Lake, table_key: str, attempt: Attempt) -> Iterator[None]:
    """Records an error in the block as a failure of the table.

    Errors of the caller (`Refused`) or the server (`Transient`, a lost server) are not recorded.
    Neither are conflicts, because `lost_race` describes them with their cost. There is one
    exception: if the server is lost during the statement, the statement may have crashed it. This
    counts as a failure of the table, unless the server was stopped on purpose.
    """
    try:
        yield
    except Exception as error:
        if _blames_table(lake, error, attempt):
            why = str(error) if isinstance(error, LakehouseError) else first_line(error)
            record_try(lake, table_key, attempt.failed(why))
        raise


def record_try(lake: Lake, table_key: str, record: CompactionTry) -> None:
    """Records a failed attempt in the journal.

    A storage error is ignored, so that it does not hide the attempt's own error.
    """
    with contextlib.suppress(LakehouseError):
        Journal(lake.store).record_try(table_key, record)


def _blames_table(lake: Lake, error: Exception, attempt: Attempt) -> bool:
    if is_lost(error):
        uses_server = lake.settings.spark == "server"
        was_stopped = uses_server and status(lake.settings).condition == "stopped"
        return attempt.lost_server and not was_stopped
    return not (isinstance(error, Refused | Transient) or is_conflict(error))
