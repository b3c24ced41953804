"""The documents of `lakehouse health` and `history`, which the report page shows, too."""

from collections.abc import Sequence

from lakehouse.base.operation import figures_as_json
from lakehouse.base.text import Document
from lakehouse.compact.plan.health import Health
from lakehouse.compact.plan.history import Account, Entry
from lakehouse.declare.table import Table
from lakehouse.delta.commits import Commit
from lakehouse.lake.lake import Found


def health_document(reading: Found[Health]) -> Document:
    """The document of a table's health."""
    document = {"table": reading.table.key, "score": None, "sentence": reading.sentence}
    if reading.value:
        document = reading.value.as_json()
    return {**document, **address_field(reading.table)}


def history_document(
    table: str, version: int, commits: Sequence[Commit], account: Account
) -> Document:
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
    return {"uri": table.adopted.uri} if table.adopted else {}


def _commit(commit: Commit, entry: Entry | None) -> Document:
    compaction = None
    if entry is not None:
        predicted = entry.compaction.predicted
        compaction = {
            "reason": predicted.reason if predicted else None,
            "sentence": predicted.sentence if predicted else None,
            "as_predicted": not entry.wrong_figures if predicted else None,
            "figures": figures_as_json(entry.figures),
        }
    return {
        "version": commit.version,
        "committed_ms": commit.committed_ms,
        "operation": commit.operation,
        "changed_data": commit.changed_data,
        "files_added": len(commit.added_paths),
        "files_removed": len(commit.removed_paths),
        "bytes_added": commit.added_bytes,
        "bytes_removed": commit.removed_bytes,
        "compaction": compaction,
    }
