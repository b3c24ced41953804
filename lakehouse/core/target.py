"""How large a compacted file should be, and what the log remembers of earlier answers.

The target follows the table: about a hundred files or more, so that a scan has something to share out and a change rewrites
little, between a size below which opening a file costs more than reading it and one above which larger files give nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse.core.history import Commit, History
from lakehouse.core.policy import MIB, CompactionPolicy

# Spark counts the opening of a file as 4 MiB of reading (`spark.sql.files.openCostInBytes`): at 16 MiB that is a fifth of a scan.
SMALLEST_TARGET = 16 * MIB
# OPTIMIZE's own default (`DeltaSQLConf`, optimize.maxFileSize).
LARGEST_TARGET = 1024 * MIB
_FILES_PER_TABLE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the log tells of earlier compactions and writes.

    `last_target` is the newest compaction's, `None` where none tells; `unchanged`: nobody changed a row since. `targets` has the
    target that a file was compacted under, by path, and `written_ms` the time of the last commit that changed rows of it.
    """

    last_target: int | None = None
    unchanged: bool = False
    targets: Mapping[str, int] = field(default_factory=dict[str, int])
    written_ms: Mapping[str, int] = field(default_factory=dict[str, int])


def remember(history: History | None) -> Memory:
    """The memory that the commits of `history` hold; without any, nothing is remembered."""
    if history is None:
        return Memory()
    targets: dict[str, int] = {}
    written_ms: dict[str, int] = {}
    last: tuple[int, int] | None = None
    for commit in history.commits:
        if commit.changed_data:
            written_ms.update(dict.fromkeys(commit.added_paths, commit.committed_ms))
        elif (target := _target_of(commit)) is not None:
            targets.update(dict.fromkeys(commit.added_paths, target))
            last = (commit.version, target)
    if last is None:
        return Memory(written_ms=written_ms)
    unchanged = history.data_changed_after(last[0]) is False
    return Memory(last_target=last[1], unchanged=unchanged, targets=targets, written_ms=written_ms)


def choose_target(size_bytes: int, *, last: int | None) -> int:
    """The target of a table of so many bytes, a power of two; the `last` one stays until the table is a third past a border.

    >>> [choose_target(gib * 1024**3, last=None) // 1024**2 for gib in (0, 3, 4, 16, 128, 4096)]
    [16, 16, 32, 128, 1024, 1024]
    >>> choose_target(5 * 1024**3, last=16 * 1024**2) // 1024**2, choose_target(6 * 1024**3, last=16 * 1024**2) // 1024**2
    (16, 32)
    """
    if last is None:
        return _fitting(size_bytes)
    kept = 1 << (last.bit_length() - 1)
    return min(max(kept, _fitting(size_bytes * 3 // 4)), _fitting(size_bytes * 4 // 3))


def target_in_force(size_bytes: int, policy: CompactionPolicy, memory: Memory) -> int:
    """The declared target, or the one that the table's size asks for.

    Until somebody writes, what the last compaction aimed at stays: its outputs shrank by an unknown factor, and a target that
    followed them would find the same files to be merged again.
    """
    settled = memory.last_target if memory.unchanged else None
    if not policy.target_file_bytes:
        return settled or choose_target(size_bytes, last=memory.last_target)
    return min(policy.target_file_bytes, settled) if settled and policy.scan_cores > 1 else policy.target_file_bytes


def _fitting(size_bytes: int) -> int:
    target = SMALLEST_TARGET
    while target < LARGEST_TARGET and size_bytes >= 2 * target * _FILES_PER_TABLE:
        target *= 2
    return target


def _target_of(commit: Commit) -> int | None:
    """What one of our compactions wrote into its commit as its target."""
    if not commit.user_metadata or "target_file_bytes" not in commit.user_metadata:
        return None
    try:
        target = json.loads(commit.user_metadata)["plan"]["target_file_bytes"]
    except (ValueError, KeyError, TypeError):
        return None
    return target if isinstance(target, int) and target > 0 else None
