"""Reports to Dagster what a command has done, as events without a run.

Dagster is imported only now, after the operation. A failure to report is printed, and not raised,
because the operation itself is done.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lakehouse.base.processes import late_interrupts
from lakehouse.base.settings import Settings
from lakehouse.cli.output import tell
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake

if TYPE_CHECKING:
    from lakehouse.assets.events import Event, Reporter


def report_to_dagster(
    settings: Settings, what: str, events: "Callable[[Reporter], Iterable[Event]]"
) -> None:
    """Reports these events. `what` was done, for example `bronze/orders was compacted`."""
    try:
        with late_interrupts():
            from lakehouse.assets.events import Reporter, open_instance, without_run
        ignoring = warnings.catch_warnings(action="ignore")  # about beta features of Dagster
        with open_instance(settings, tell) as instance, ignoring:
            for event in events(Reporter(instance=instance, tell=tell)):
                instance.report_runless_asset_event(without_run(event))
    except (Exception, KeyboardInterrupt) as error:
        tell(
            f"{what}, but Dagster did not record it ({type(error).__name__}: {error}). The next run"
            " of the table records its state"
        )


def report_change(
    lake: Lake, table: Table, change: str, sentence: str, *, has_new_rows: bool = False
) -> None:
    """Reports a rebuild or a restore on the table's page."""

    def events(_: "Reporter") -> "Iterable[Event]":
        from lakehouse.assets.metadata import change_event

        return [change_event(table, lake, sentence, has_new_rows=has_new_rows)]

    report_to_dagster(lake.settings, f"{table.key} is {change}", events)
