"""Counts the rows of a landed table that lack a required column, without Spark."""

import json
from collections.abc import Mapping
from typing import Any

from lakehouse.core.declaration.table import Table
from lakehouse.core.evolution.required_values import needs_statistics, required_missing
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.delta_log.log_segment import LogChanged
from lakehouse.engine.delta_log.statistics import read_statistics
from lakehouse.engine.lake import Lake


def count_missing(lake: Lake, table: Table, facts: TableFacts) -> Mapping[str, int | None]:
    """The rows without a value in each required column, by its name; `None` if unknown.

    Reads the statistics of all files from the log, so call it only where a person asks. A renamed
    column that still has its earlier name in the table is counted under that name.
    """
    required = () if table.source is None else table.source.required
    snapshot = facts.snapshot
    there = {column.name for column in snapshot.columns}
    earlier = {new: old for old, new in table.renamed.items() if old in there and new not in there}
    columns = {name: earlier.get(name, name) for name in required}
    null_counts = dict[str, Mapping[str, int]]()
    if needs_statistics(snapshot, columns.values()):
        null_counts = _null_counts(lake, facts)
    counts = required_missing(snapshot, columns.values(), null_counts)
    return {name: counts[column] for name, column in columns.items()}


def _null_counts(lake: Lake, facts: TableFacts) -> dict[str, Mapping[str, int]]:
    """The nulls of each column, by path; none if the log was cleaned up meanwhile."""
    snapshot = facts.snapshot
    paths = {file.path for file in snapshot.files}
    try:
        found = read_statistics(lake.store, snapshot.table, [snapshot.version], paths)
    except (FileNotFoundError, LogChanged):
        return {}
    return {path: _nulls(statistics) for (_, path), statistics in found.items()}


def _nulls(statistics: str | None) -> Mapping[str, int]:
    """The null counts of the top-level columns in a file's statistics."""
    try:
        recorded: Any = json.loads(statistics or "{}")
        counts = recorded.get("nullCount", {}).items()
    except (ValueError, AttributeError):
        return {}
    return {name: count for name, count in counts if type(count) is int}
