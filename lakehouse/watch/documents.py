"""The documents of `lakehouse health` and `history`, which the report page shows, too."""

from collections.abc import Sequence
from typing import Any

from lakehouse.compact.plan.health import Health
from lakehouse.compact.plan.history import Account, Entry, errors_as_json
from lakehouse.declare.adopted import Adopted
from lakehouse.declare.table import Table
from lakehouse.delta.commits import Commit
from lakehouse.lake.read_each_table import Found

# Fields of a document without a health: counts are 0, all others are null.
_HEALTH_COUNTS = (
    "file_count",
    "small_file_count",
    "mergeable_file_count",
    "size_bytes",
    "average_file_bytes",
    "tombstone_count",
    "tombstone_bytes",
    "log_commit_count",
    "log_bytes",
)
_HEALTH_OTHERS = ("version", "committed_ms", "row_count", "score")
# The figures whose prediction counts as wrong if it is not exact.
EXACT_FIGURES = ("files_removed", "files_added", "bytes_removed")


def health_document(reading: Found[Health]) -> dict[str, Any]:
    """The document of a table's health."""
    if reading.value:
        return {**reading.value.as_json(), **address_field(reading.table)}
    return {
        "table": reading.table.key,
        "sentence": reading.sentence,
        "parts": {},
        **dict.fromkeys(_HEALTH_OTHERS),
        **dict.fromkeys(_HEALTH_COUNTS, 0),
        **address_field(reading.table),
    }


def history_document(
    table: str, version: int, commits: Sequence[Commit], account: Account
) -> dict[str, Any]:
    """The document of a table's newest commits, and the account of its compactions."""
    entries = {entry.compaction.version: entry for entry in account.entries}
    return {
        "table": table,
        "version": version,
        "commits": [_commit(commit, entries.get(commit.version)) for commit in commits],
        "account": account.as_json(),
    }


def address_field(table: Table) -> dict[str, str]:
    """The field `uri` of an adopted table's document; empty for any other table."""
    return {"uri": table.write.uri} if isinstance(table.write, Adopted) else {}


def _commit(commit: Commit, entry: Entry | None) -> dict[str, Any]:
    return {
        "version": commit.version,
        "committed_ms": commit.committed_ms,
        "operation": commit.operation,
        "changed_data": commit.changed_data,
        "files_added": len(commit.added_paths),
        "files_removed": len(commit.removed_paths),
        "bytes_added": commit.added_bytes,
        "bytes_removed": commit.removed_bytes,
        "compaction": _compaction(entry) if entry else None,
    }


def _compaction(entry: Entry) -> dict[str, Any]:
    actual = entry.compaction
    predicted = actual.predicted
    return {
        "reason": predicted.reason if predicted else None,
        "sentence": predicted.sentence if predicted else None,
        **{
            f"predicted_{name}": getattr(predicted, name, None)
            for name in (*EXACT_FIGURES, "bytes_added", "seconds", "usd")
        },
        **{
            f"actual_{name}": getattr(actual, name)
            for name in (*EXACT_FIGURES, "bytes_added", "seconds")
        },
        "actual_usd": None if entry.usd is None else round(entry.usd, 9),
        "errors": errors_as_json(entry.errors),
    }
