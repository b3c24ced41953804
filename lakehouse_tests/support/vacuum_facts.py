"""Facts about a table that is vacuumed. A test names those that matter to it."""

from collections.abc import Iterable
from typing import Any

from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.snapshot import TableFacts
from lakehouse.vacuum.inventory.plan import OtherUses, TableFiles
from lakehouse.vacuum.plan.candidates import VacuumFacts


def table_files(**fields: Any) -> TableFiles:
    """The files of a table in a folder of its own, without links or files in other places."""
    empty: dict[str, Any] = {
        "real_folder": fields["table"],
        "partition_columns": (),
        "elsewhere": {},
        "kept_elsewhere": frozenset(),
        "outside": (),
        "unplaced": frozenset(),
    }
    return TableFiles(**(empty | fields))


def vacuum_facts(files: TableFiles, log: TableFacts, **more: Any) -> VacuumFacts:
    """The facts about a table on a disk that nobody else uses; its history has all commits."""
    fields: dict[str, Any] = {
        "table_files": files,
        "log": log,
        "other_uses": OtherUses(),
        "inventory": None,
        "inventory_problem": "",
        "records": (),
        "needed_since_ms": None,
        "needed_because": "",
        "on_s3": False,
        "tables": frozenset(),
        "lake_prefix": "",
        "all_commits": _newest_first,
        "adopted": False,
        "log_only": False,
        "kept_for_versions": frozenset(),
    }
    return VacuumFacts(**(fields | more))


def _newest_first(history: Commits) -> Iterable[Commit]:
    return reversed(history.commits)
