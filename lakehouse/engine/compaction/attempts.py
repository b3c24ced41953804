"""Records failed compactions in the journal, where the circuit breaker counts them."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.errors import LakehouseError, Refused, Transient
from lakehouse.core.journal_records import CompactionTry
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.errors import first_line, is_conflict, is_lost
from lakehouse.runtime.server_state import status


@dataclass(slots=True, kw_only=True)
class Attempt:
    """The progress of a compaction: its plan, when it started, and whether it lost the server."""

    by_person: bool = False
    started: float = field(default_factory=time.monotonic)
    planned: CompactionPlan | None = None
    lost_server: bool = False

    @contextlib.contextmanager
    def statement(self, planned: CompactionPlan) -> Iterator[None]:
        """The plan's statement runs inside the `with`; what fails in or after it has cost what the plan says, and the time from here."""
        self.started, self.planned = time.monotonic(), planned
        try:
            yield
        except Exception as error:
            self.lost_server = is_lost(error)
            raise


@contextlib.contextmanager
def failure_recorded(
    lake: Lake, table_key: str, *, run: str, by_person: bool = False
) -> Iterator[Attempt]:
    """An error raised inside goes into the journal as a failure of `run`, unless it speaks of the caller or the server, not of the table.

    A server that was lost while the attempt's statement ran speaks of the table, which may be what kills it; not if somebody stopped it.
    A race lost to another writer is neither: whoever lost it notes it, with what it cost.
    """
    attempt = Attempt(by_person=by_person)
    try:
        yield attempt
    except Exception as error:
        if _speaks_of_table(lake, error, attempt):
            failed = CompactionTry(
                ended_ms=now_ms(),
                result="failed",
                bytes_rewritten=attempt.planned.bytes_removed if attempt.planned else 0,
                files_rewritten=attempt.planned.files_removed if attempt.planned else 0,
                seconds=time.monotonic() - attempt.started,
                why=str(error) if isinstance(error, LakehouseError) else first_line(error),
                run=run,
                by_person=by_person,
            )
            record_try(lake, table_key, failed)
        raise


def record_try(lake: Lake, table_key: str, ended: CompactionTry) -> None:
    """A try that came to nothing, in the journal. Storage that does not answer must neither hide its error nor end what may succeed."""
    with contextlib.suppress(LakehouseError):
        Journal(lake.store).record_try(table_key, ended)


def _speaks_of_table(lake: Lake, error: Exception, attempt: Attempt) -> bool:
    if is_lost(error):
        was_stopped = (
            lake.settings.spark == "server" and status(lake.settings).condition == "stopped"
        )
        return attempt.lost_server and not was_stopped
    return not (isinstance(error, Refused | Transient) or is_conflict(error))
