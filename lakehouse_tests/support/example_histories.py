"""Histories of compactions in one line each, for tests of the core."""

import json
from collections.abc import Iterable
from typing import Any

from lakehouse.base.operation import UpkeepOperation
from lakehouse.delta.commits import Commit, Commits

SECOND_MS, HOUR_MS = 1_000, 3_600_000


def compaction(
    version: int,
    files: int = 10,
    size_bytes: int = 1_000_000,
    seconds: float | None = 1.0,
    *,
    mark: str | None = None,
    predicted_seconds: float | None = None,
    predicted_usd: float | None = None,
    written_share: float = 0.8,
    verify: str = "content",
) -> Commit:
    """A commit of one of our compactions, an hour after its predecessor; `seconds` of `None` is one that wrote no start into it."""
    committed_ms = version * HOUR_MS
    plan: dict[str, object] = {
        "reason": "MERGEABLE_FILES",
        "sentence": "why it ran",
        "files_removed": files,
        "files_added": 1,
        "bytes_removed": size_bytes,
        "verify": verify,
    }
    if predicted_seconds is not None:
        plan["estimate"] = {
            "seconds": predicted_seconds,
            "usd": predicted_usd,
            "bytes_written": size_bytes,
            "source": "defaults",
        }
    written: dict[str, object] = {"compaction": mark or f"mark {version}", "plan": plan}
    if seconds is not None:
        written["started_ms"] = committed_ms - round(seconds * SECOND_MS)
    return Commit(
        version=version,
        committed_ms=committed_ms,
        operation="OPTIMIZE",
        changed_data=False,
        added_paths=(f"{version}",),
        removed_paths=tuple(f"{version}/{number}" for number in range(files)),
        added_bytes=round(size_bytes * written_share),
        removed_bytes=size_bytes,
        user_metadata=json.dumps(written),
    )


def write(version: int, size_bytes: int) -> Commit:
    """A commit that adds rows."""
    return Commit(
        version=version,
        committed_ms=version * HOUR_MS,
        operation="WRITE",
        changed_data=True,
        added_paths=("w",),
        added_bytes=size_bytes,
    )


def failed(
    ended_ms: int,
    result: Any = "failed",
    *,
    table: str = "bronze/t",
    wasted_bytes: int = 0,
    seconds: float = 0.0,
    run: str = "",
    **more: Any,
) -> UpkeepOperation:
    """A compaction that did not succeed; by default, in a run of its own."""
    return UpkeepOperation(
        table=table,
        kind="compaction",
        operation_id=f"{result} {ended_ms}",
        started_ms=ended_ms - int(seconds * SECOND_MS),
        ended_ms=ended_ms,
        result=result,
        run=run or f"run at {ended_ms}",
        seconds=seconds,
        detail={"bytes_rewritten": wasted_bytes},
        **more,
    )


def past(commits: Iterable[Commit]) -> Commits:
    """The history of these commits."""
    return Commits(table="bronze/t", commits=tuple(commits))
