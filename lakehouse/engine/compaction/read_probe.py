"""Measures how much faster scans are after a compaction: `lakehouse compact TABLE --probe`.

1. A view of each of the two versions is created, so that the log is read only once. Each view is
   scanned once without being measured.
2. The views are scanned alternately, with all columns and without output, until the time budget is
   spent or ten pairs of durations are known.
3. The pairs of durations are recorded in the journal:
   `_lakehouse/probes/<layer>/<name>/<time>-<version>.json`.

**Safety properties**
- Nothing is written to the table, and no lock is held. Each view reads a fixed version, whose files
  stay in storage for the retention (`long/test_probe.py`).
- A failed measurement does not fail the compaction, which is already committed and verified.
"""

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lakehouse.core.compaction.outcome import CompactionOutcome, Probe, probe_from
from lakehouse.core.delta.snapshot import PartitionValues, Snapshot
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import PROBES, Journal
from lakehouse.engine.journal.records import damaged, names_by_table
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.frames import table_at, temporary_view
from lakehouse.engine.spark.temporary_confs import OLD_VERSIONS_REFUSED, session_confs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUDGET_SECONDS = 30.0
# If the budget is not expected to suffice for this many pairs, nothing is measured.
_LEAST_PAIRS = 3
_MOST_PAIRS = 10
_LEAST_SCANS = 2 + 2 * _LEAST_PAIRS  # two of them unmeasured
# The assumed speed of a scan of all Parquet columns on two cores.
_BYTES_PER_SECOND = 100e6


def probe_compaction(lake: Lake, spark: "SparkSession", outcome: CompactionOutcome) -> Probe | None:
    """Measures a compaction and records the probe; `None` if the compaction changed nothing.

    If the table is too large for the time budget, the probe has no durations.

    Raises:
        Transient: the server does not answer.
    """
    entry = outcome.entry
    facts = outcome.facts
    if entry is None or facts is None or outcome.version_after is None:
        return None
    started = time.monotonic()
    versions = (entry.compaction.first_version - 1, outcome.version_after)
    before, after = _measure_pairs(spark, facts.snapshot, outcome.plan.partitions, versions)
    probe = Probe(
        table=outcome.plan.table,
        version_before=versions[0],
        version_after=versions[1],
        measured_ms=now_ms(),
        before=before,
        after=after,
        spent_seconds=round(time.monotonic() - started, 3),
        budget_seconds=_BUDGET_SECONDS,
    )
    name = f"{probe.measured_ms:015}-{probe.version_after}.json"
    Journal(lake.store).record_probe(probe.table, name, probe.as_json())
    return probe


def newest_probe(lake: Lake, table_key: str) -> Probe | None:
    """The newest probe of a table; `None` if it was never probed.

    Raises:
        Broken: the record is damaged.
    """
    names = names_by_table(lake.store, PROBES, table_key).get(table_key, [])
    if not names:
        return None
    try:
        return probe_from(json.loads(lake.store.read(names[-1])))
    except (ValueError, TypeError, KeyError) as error:
        raise damaged(names[-1], error) from error


def take_pairs(
    scan_before: Callable[[], float],
    scan_after: Callable[[], float],
    *,
    budget_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Durations of scans of the old and of the new version, in turn.

    The first scan of each version is not measured.
    """
    deadline = clock() + budget_seconds
    last_pair_seconds = scan_before() + scan_after()
    before: list[float] = []
    after: list[float] = []
    while len(before) < _MOST_PAIRS and clock() + last_pair_seconds <= deadline:
        if len(before) % 2 == 0:  # the order alternates, because the first scan has colder caches
            before.append(scan_before())
            after.append(scan_after())
        else:
            after.append(scan_after())
            before.append(scan_before())
        last_pair_seconds = before[-1] + after[-1]
    return tuple(before), tuple(after)


def _measure_pairs(
    spark: "SparkSession",
    snapshot: Snapshot,
    partitions: Sequence[PartitionValues] | None,
    versions: tuple[int, int],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Pairs of durations for the compacted partitions; empty if the budget seems too small.

    `partitions` is `None` if the compaction planned for the whole table.
    """
    files = snapshot.files
    if partitions is not None:
        compacted = set(partitions)
        files = [file for file in files if file.partition in compacted]
    size_bytes = sum(file.size_bytes for file in files)
    if size_bytes / _BYTES_PER_SECOND * _LEAST_SCANS > _BUDGET_SECONDS:
        return (), ()
    predicate = "true"
    if partitions is not None:
        predicate = statements.partition_predicate(snapshot.columns, partitions)
    with (
        translated(),
        session_confs(spark, {OLD_VERSIONS_REFUSED: "false"}),
        contextlib.ExitStack() as views,
    ):
        scans: list[Callable[[], float]] = []
        for version in versions:
            frame = table_at(spark, snapshot, version=version).where(predicate)
            scans.append(_scan_of(spark, views.enter_context(temporary_view(spark, frame))))
        return take_pairs(*scans, budget_seconds=_BUDGET_SECONDS)


def _scan_of(spark: "SparkSession", view: str) -> Callable[[], float]:
    def scan() -> float:
        started = time.monotonic()
        spark.table(view).write.format("noop").mode("overwrite").save()
        return time.monotonic() - started

    return scan
