"""Reads archives for the morning page."""

from collections.abc import Mapping, Sequence

from lakehouse.core.archive.contents import ArchiveContents
from lakehouse.core.archive.records import APP_ID
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import LakehouseError
from lakehouse.core.report.attention import Attention, Concern
from lakehouse.core.report.retention import RetainedTable, attention_to_archive, retained_table
from lakehouse.engine.archive.records import archive_contents
from lakehouse.engine.lake import Lake


class ArchivesOfPage:
    """The archives of tables whose logs are read for other parts of the page."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._contents = dict[str, ArchiveContents]()
        self._problems = dict[str, str]()

    def take(self, table: Table, facts: TableFacts) -> None:
        """Reads the archive of a table that declares or has one; `retained` reports a failure."""
        if table.archive is None and APP_ID not in facts.snapshot.transactions:
            return
        try:
            self._contents[table.key] = archive_contents(self._lake, facts)
        except LakehouseError as error:
            self._problems[table.key] = str(error)

    def retained(self, tables: Sequence[Table]) -> tuple[list[RetainedTable], list[Attention]]:
        """The tables with an archive, a TTL or kept versions, and what needs attention there."""
        retained = list[RetainedTable]()
        attention = list[Attention]()
        for table in tables:
            contents = self._contents.get(table.key)
            attention += attention_to_archive(table.key, contents)
            row = retained_table(table, contents)
            if row.rules or row.kept_versions or row.has_archive:
                retained.append(row)
        attention += _unreadable(self._problems, command="lakehouse archive list")
        return retained, attention


def _unreadable(problems: Mapping[str, str], *, command: str) -> list[Attention]:
    return [
        Attention(
            concern=Concern.UNREADABLE,
            table=key,
            sentence=problem,
            command=f"{command} {key}",
        )
        for key, problem in problems.items()
    ]
