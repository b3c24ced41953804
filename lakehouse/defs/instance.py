"""What Dagster's own records tell of a table: its newest facts, what runs on it now, and what was tried before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterRunStatus, RunRecord, RunsFilter

from lakehouse.core.rank import RunInFlight
from lakehouse.core.table import Table
from lakehouse.defs.keys import compaction_key, table_key

_UNFINISHED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
# The tries of one state follow each other closely; so many of the newest runs hold all of those that still matter.
_TRIES_LOOKED_AT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestFacts:
    """The metadata of a table's newest event of either kind; numbers only, by their key."""

    storage_id: int
    numbers: Mapping[str, int | float]

    def whole(self, name: str) -> int | None:
        """A whole number, or `None` where the event has none under that key."""
        value = self.numbers.get(name)
        return None if value is None else int(value)


def newest_facts(instance: dg.DagsterInstance, table: Table) -> NewestFacts | None:
    """The numbers of the newest materialization or observation, whichever is newer; `None` if there was neither.

    Most of Dagster's helpers read materializations only, and would show the file count from before a compaction.
    """
    found = [
        *instance.fetch_materializations(table_key(table), limit=1).records,
        *instance.fetch_observations(table_key(table), limit=1).records,
    ]
    if not found:
        return None
    newest = max(found, key=lambda record: record.storage_id)
    event = newest.asset_materialization or newest.event_log_entry.asset_observation
    metadata = event.metadata if event else {}
    numbers = {
        name: entry.value
        for name, entry in metadata.items()
        if isinstance(entry, (dg.IntMetadataValue, dg.FloatMetadataValue)) and entry.value is not None
    }
    return NewestFacts(storage_id=newest.storage_id, numbers=numbers)


def runs_in_flight(instance: dg.DagsterInstance, tables: Sequence[Table]) -> tuple[RunInFlight, ...]:
    """The queued and running runs that write a table, by the first letters of their ids, one entry per table.

    Told by what a run selects and not by its tags: a run that a person starts on the page carries no tag of ours.
    """
    everything = {key for table in tables for key in (table_key(table), compaction_key(table))}
    return tuple(
        RunInFlight(table="/".join(key.path[-2:]), name=run.run_id[:8], is_compaction=key.path[0] == "compaction")
        for run in instance.get_runs(RunsFilter(statuses=_UNFINISHED))
        for key in sorted(everything if run.asset_selection is None else everything & run.asset_selection)
    )


def earlier_tries(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> list[RunRecord]:
    """The newest finished runs that carry these tags, newest first."""
    finished = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
    return list(instance.get_run_records(RunsFilter(statuses=finished, tags=tags), limit=_TRIES_LOOKED_AT))
