"""Reads a table's log without Spark: its current state and its history.

This package replays the log itself, because exact plans and health checks need tombstones,
transaction ids and the number of rows that each deletion vector deletes. deltalake's reader
provides none of these. If a table feature makes it impossible to count files and rows from the log
alone, the table is refused, and the message names the feature.

**Safety properties**
- This package writes nothing.
- A log whose files contradict each other raises `Broken`: a checkpoint that lacks files would make
  live files look like orphans (`test_log_contradictions.py`).
- A checkpoint that cannot be read raises `Broken`, too (`test_log_contradictions.py`).
- A snapshot never mixes two versions: if the log changes during the reading, the log is listed and
  read again (`test_snapshots.py`).
"""

from lakehouse.delta.log.fold import history_since, newest_first
from lakehouse.delta.log.read_log import TableFacts, garbage_uncollected, read_facts

__all__ = [
    "TableFacts",
    "garbage_uncollected",
    "history_since",
    "newest_first",
    "read_facts",
]
