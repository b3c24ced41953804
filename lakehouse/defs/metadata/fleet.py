"""The state of all tables of a fleet, as metadata that fits into Dagster's pages.

On an asset's page, Dagster shows Markdown of less than 1,000 characters in a column of about 450
pixels, and longer Markdown in a window of about 700 pixels.
Source: dagster 1.13, dagster-ui, MetadataEntry.tsx
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import dagster as dg

from lakehouse.core.declaration.table import Table
from lakehouse.core.scheduling.fleet import Fleet
from lakehouse.core.text import size_text, utc_text
from lakehouse.defs.dagster_records import last_materializations
from lakehouse.defs.keys import table_key, vacuum_key
from lakehouse.defs.metadata.markdown import (
    Markdown,
    markdown_cells,
    markdown_link,
    markdown_text,
    markdown_value,
)

# Longer Markdown is shown in a window.
_PAGE_CHARACTERS = 1_000
_WINDOW_ROWS = 200
# Tables without a score come after all others, because the highest score is 100.
_AFTER_ALL_SCORES = 101


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One table. `None` means unknown."""

    table: str
    score: float | None
    file_count: int | None
    size_bytes: int | None
    last_compaction_ms: int | None
    last_vacuum_ms: int | None
    is_due: bool
    reason: str


def fleet_metadata(
    tables: Sequence[FleetRow], keys: Mapping[str, dg.AssetKey]
) -> dict[str, dg.MarkdownMetadataValue | int]:
    """The tables, worst first: as many as fit into the page, and up to 200 in a window.

    `keys` maps each table to its asset. Each row links to the checks of this asset.
    """
    ordered = sorted(
        tables, key=lambda each: _AFTER_ALL_SCORES if each.score is None else each.score
    )
    heads = ("score", "table", "files", "bytes", "compaction")
    worst = markdown_cells(heads, [])
    for count in range(1, len(ordered) + 1):
        longer = markdown_cells(heads, [_cells(each, keys) for each in ordered[:count]])
        if len(longer) >= _PAGE_CHARACTERS:
            break
        worst = longer
    details = [
        [*_cells(each, keys), _time(each.last_compaction_ms), _time(each.last_vacuum_ms)]
        for each in ordered[:_WINDOW_ROWS]
    ]
    return {
        "lakehouse/worst_tables": markdown_value(worst),
        "lakehouse/all_tables": markdown_value(
            markdown_cells([*heads, "compacted", "vacuumed"], details)
        ),
        "lakehouse/tables": len(ordered),
    }


def sensed_fleet_metadata(
    instance: dg.DagsterInstance, fleet: Fleet, tables: Sequence[Table]
) -> dict[str, dg.MarkdownMetadataValue | int]:
    """The state of all tables, worst first, with links to the checks of their assets."""
    vacuums = last_materializations(instance, [vacuum_key(table) for table in tables])
    decisions = {each.table: each for each in fleet.decisions}
    reported = list[FleetRow]()
    for table in tables:
        state = fleet.states[table.key]
        decision = decisions[table.key]
        vacuumed = vacuums.get(vacuum_key(table))
        reported.append(
            FleetRow(
                table=table.key,
                score=state.health_score,
                file_count=state.file_count,
                size_bytes=state.size_bytes,
                last_compaction_ms=state.last_compaction_ms,
                last_vacuum_ms=None if vacuumed is None else int(vacuumed.timestamp * 1000),
                is_due=decision.request,
                reason=decision.reason.name,
            )
        )
    return fleet_metadata(reported, {table.key: table_key(table) for table in tables})


def _cells(table: FleetRow, keys: Mapping[str, dg.AssetKey]) -> list[Markdown]:
    score = "-" if table.score is None else f"{table.score:.0f}"
    files = "-" if table.file_count is None else f"{table.file_count:,}"
    stored = "-" if table.size_bytes is None else size_text(table.size_bytes)
    reason = "due" if table.is_due else table.reason.replace("_", " ").lower()
    path = [quote(part, safe="") for part in keys[table.table].path]
    # The link is relative, because any path may precede `/assets/`. It works on the page of an
    # asset whose key has two parts.
    link = markdown_link(table.table, f"../{'/'.join(path)}?view=checks")
    texts = [markdown_text(text) for text in (score, files, stored, reason or "-")]
    return [texts[0], link, *texts[1:]]


def _time(ms: int | None) -> Markdown:
    """The day and the minute, for example `11-27 04:10`."""
    return markdown_text("never" if ms is None else utc_text(ms)[5:16])
