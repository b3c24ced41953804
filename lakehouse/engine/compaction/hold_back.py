"""Whether a table is left alone now, by its policy, the journal and the log; and the failures that the journal gets."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import Commits
from lakehouse.core.errors import LakehouseError, Refused, Transient
from lakehouse.core.reasons import Explanation
from lakehouse.core.scheduling.circuit_breaker import (
    BreakerState,
    CompactionTry,
    Rewrites,
    assess_breaker,
    find_rewrites,
    hold_back,
    persons_hold_back,
    tries_of,
)
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.sessions import first_line, is_conflict, is_lost
from lakehouse.runtime.server_state import status


def breaker_of(
    lake: Lake,
    table: Table,
    history: Commits | None,
    *,
    failures: Sequence[CompactionTry] | None = None,
    rewrites: Rewrites | None = None,
) -> BreakerState:
    """The table's breaker, from the failures in the journal and the rewrites in the log.

    Without a log the journal alone decides. `failures` and `rewrites` are the table's, if known.
    """
    failures = Journal(lake.store).tries(table.key) if failures is None else failures
    tries = failures if history is None else tries_of(history, failures)
    rewrites = rewrites or (Rewrites() if history is None else find_rewrites(history))
    return assess_breaker(tries, rewrites, now_ms())


def hold_back_now(
    lake: Lake,
    table: Table,
    history: Commits | None,
    *,
    failures: Sequence[CompactionTry] | None = None,
) -> Explanation | None:
    """Why only a person may compact the table now; `None`: nothing holds it back."""
    pause = Journal(lake.store).pause_of(table.key)
    breaker = breaker_of(lake, table, history, failures=failures)
    return hold_back(
        table.key,
        policy_for(table.layer, table.compaction),
        pause,
        breaker,
        now_ms(),
        write=table.write,
    )


def refuse_held_back(lake: Lake, table: Table) -> None:
    """A person is `Refused` who does not insist on a compaction of a table that is paused, or whose declaration opts out."""
    pause = Journal(lake.store).pause_of(table.key)
    held = persons_hold_back(policy_for(table.layer, table.compaction), pause, now_ms())
    if held is not None:
        raise Refused(
            f"compact {table.key}: {held.sentence}; accepted: lakehouse compact {table.key} --anyway"
        )


def refuse_vacuum(lake: Lake, table: Table) -> None:
    """Refuses a vacuum of a table that a person paused, or whose declaration turns it off."""
    pause = Journal(lake.store).pause_of(table.key)
    held = pause.explanation.sentence if pause is not None and pause.holds(now_ms()) else ""
    why = (
        f"its declaration says Vacuum(mode={table.vacuum.mode!r})"
        if table.vacuum.mode == "off"
        else held
    )
    if why:
        raise Refused(f"vacuum {table.key}: {why}; accepted: lakehouse vacuum {table.key} --anyway")


@dataclass(slots=True, kw_only=True)
class Attempt:
    """The progress of a compaction: who asked, what it is to rewrite, since when, and whether its statement lost the server."""

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
def failure_noted(
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
            note_try(lake, table_key, failed)
        raise


def note_try(lake: Lake, table_key: str, ended: CompactionTry) -> None:
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
