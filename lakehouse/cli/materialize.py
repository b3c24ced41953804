"""`lakehouse materialize`: tables written in order, through Dagster, until nothing more waits to be loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import click

from lakehouse.cli.driver import driver_for_command
from lakehouse.cli.opened import Found, Opened, nearest, open_declared
from lakehouse.cli.output import count_text, json_option, print_grid, write_json
from lakehouse.cli.verdict import exit_code, tell_errors
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.ingest import LandedFile, choose_batch, ingest_app_id
from lakehouse.core.policy import LAYERS
from lakehouse.core.table import Table
from lakehouse.engine.journal import Journal
from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from lakehouse.cli.recorder import AssetRun, Recorder


@dataclass(slots=True, kw_only=True)
class TableRuns:
    """What was done with one table, in as many runs as it took; `blocked_by` is the input for want of which there was none."""

    table: Table
    runs: list["AssetRun"] = field(default_factory=list)
    blocked_by: str | None = None

    @property
    def state(self) -> Literal["done", "failed", "skipped"]:
        """How the last run ended; `skipped` where there was none, or it found no table and nothing to make one of."""
        return self.runs[-1].state if self.runs else "skipped"

    @property
    def error(self) -> LakehouseError | None:
        """Why the last run failed."""
        return self.runs[-1].error if self.runs else None

    @property
    def sentence(self) -> str:
        """What the last run says, and how many there were; or why there was none."""
        if self.error:
            return str(self.error)
        if self.state == "skipped":
            return f"not run: {self.blocked_by} failed or does not exist yet" if self.blocked_by else "nothing to make a table of yet"
        told = [str(run.metadata["lakehouse/outcome"]) for run in self.runs if run.state == "done"]
        return told[-1] if len(told) == 1 else f"{len(told)} batches, the last one: {told[-1]}"

    def total(self, name: str) -> Any:
        """The sum of a number over all runs."""
        return sum(run.metadata.get(f"lakehouse/{name}", 0) for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """The documented shape of `lakehouse materialize --json`."""
        return {
            "table": self.table.key,
            "state": self.state,
            "version": next((run.metadata["lakehouse/version"] for run in reversed(self.runs) if run.state == "done"), None),
            "rows_written": self.total("rows_written"),
            "rows_quarantined": self.total("rows_quarantined"),
            "files_read": self.total("files_read"),
            "files_set_aside": self.total("files_set_aside"),
            "seconds": round(self.total("seconds"), 3),
            "sentence": self.sentence,
            "error": type(self.error).__name__ if self.error else None,
            "runs": [run.run_id for run in self.runs],
        }


@click.command(
    "materialize",
    short_help="Write tables, inputs first, through Dagster.",
    epilog="Examples: lakehouse materialize; lakehouse materialize silver/flights",
)
@click.argument("selection", required=False)
@json_option
def materialize_command(selection: str | None, as_json: bool) -> int:
    """Write the tables of SELECTION (default: all), inputs first, through Dagster, and run their checks.

    SELECTION is a table (silver/flights), a layer (bronze), or any asset selection of Dagster's. Landed files are loaded until none
    is left; a table with nothing new is left as it is, and says so.
    """
    from lakehouse.cli.recorder import open_recorder

    opened = open_declared()
    with open_recorder(opened.lake.settings) as recorder:
        tables = _select(selection, opened, recorder)
        with driver_for_command(opened.lake.settings):
            runs = _materialize(tables, opened, recorder)
    write_json([each.as_json() for each in runs]) if as_json else _print(runs)
    found = [Found(table=each.table, value=each, error=each.error) for each in runs]
    tell_errors(found)
    return exit_code(found)


def _select(selection: str | None, opened: Opened, recorder: "Recorder") -> list[Table]:
    if selection is None:
        return list(opened.tables.values())
    if selection in LAYERS:
        chosen = [table for table in opened.tables.values() if table.layer == selection]
    elif selection in opened.tables:
        chosen = [opened.tables[selection]]
    else:
        keys = recorder.select(selection)
        chosen = [table for table in opened.tables.values() if table.key in keys]
    if not chosen:
        raise Refused(f"materialize {selection!r}: no declared table is selected; {nearest(selection, opened.tables)}")
    return chosen


def _materialize(tables: Sequence[Table], opened: Opened, recorder: "Recorder") -> list[TableRuns]:
    """Landed tables first, again and again until no file waits, then what is made from tables, in one run."""
    done = {table.key: TableRuns(table=table) for table in tables}
    batches: dict[str, int] = {}
    waiting = [table for table in tables if table.source is not None]
    while waiting:
        for run in recorder.materialize([table.key for table in waiting]):
            done[run.key].runs.append(run)
        waiting = [table for table in waiting if _more_waits(opened.lake, done[table.key], batches)]
    derived = [key for key, each in done.items() if each.table.source is None and not _block(each, done)]
    for run in recorder.materialize(derived) if derived else ():
        done[run.key].runs.append(run)
    return list(done.values())


def _block(runs: TableRuns, done: Mapping[str, TableRuns]) -> bool:
    """Whether an input was to be written and is not there, or waits for such a one itself; inputs come first in `done`."""
    for source in runs.table.inputs:
        before = done.get(source.key)
        if before is not None and (before.blocked_by or (source.source is not None and before.state != "done")):
            runs.blocked_by = source.key
    return runs.blocked_by is not None


def _more_waits(lake: Lake, runs: TableRuns, batches: dict[str, int]) -> bool:
    """Whether files wait that the last run did not take; a run that failed, or moved nothing, is not repeated."""
    batch = waiting_batch(lake, runs.table) if runs.state == "done" else None
    before = batches.get(runs.table.key, 0)
    batches[runs.table.key] = batch or before
    return batch is not None and batch > before


def waiting_batch(lake: Lake, table: Table) -> int | None:
    """The number of the batch that the table's next run would load, `None` where nothing waits."""
    assert table.source is not None
    facts = lake.facts(table.key)
    arrived = facts.layout.transactions.get(ingest_app_id(table.key), 0) if facts else 0
    landed = [
        LandedFile(name=file.name.removeprefix(table.source.prefix), size_bytes=file.size_bytes, modified_ms=file.modified_ms)
        for file in lake.store.list(table.source.prefix)
    ]
    plan = choose_batch(landed, Journal(lake.store).ledger(table.key), table.source, table.write, arrived=arrived)
    return plan.batch.number if plan.batch else None


def _print(found: Sequence[TableRuns]) -> None:
    heads = ("table", "", "rows written", "files read", "version", "seconds", "what happened")
    print_grid(heads, [_row(each) for each in found], numbers=heads[2:6])


def _row(found: TableRuns) -> tuple[str, ...]:
    document = found.as_json()
    version = "-" if document["version"] is None else str(document["version"])
    counts = (count_text(document["rows_written"]), count_text(document["files_read"]))
    return (found.table.key, found.state, *counts, version, f"{document['seconds']:.1f}", found.sentence)
