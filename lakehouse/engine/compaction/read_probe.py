"""A compaction's benefit, measured: the table before it and after it, scanned in turn on one session.

1. How long there is for it is decided beforehand: nothing, unless this compaction is due for a probe or somebody asks for one.
2. A table that is too large to be scanned often enough in that time is not scanned at all.
3. The attempt goes into the journal, without pairs: `_lakehouse/probes/<layer>/<name>/<time>-<version>.json`.
4. Both versions become views, so that neither is read from the log again, and are scanned once unmeasured.
5. They are scanned in turn, all columns, into nothing, until the gain is known well enough or the time is up.
6. The pairs take the place of the attempt, and are never changed.

**Safety properties**
- Nothing of the table is written, and no guard is held: the versions are pinned, and their files outlive them by the retention.
- What fails here fails no compaction: it is committed and verified before.
- Scans that fail, or kill the server or the run, are not made again after the next compaction: the attempt counts as the last probe.
"""

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.costs.estimate import SECONDS_PER_OPENING
from lakehouse.core.costs.measured_benefit import (
    Probe,
    assess_benefit,
    backoff_until_ms,
    explain_backoff,
    gain_of,
    measure_opening,
    probe_budget_seconds,
    probe_from,
)
from lakehouse.core.delta.snapshot import Snapshot, type_of_partition
from lakehouse.core.reasons import Explanation
from lakehouse.core.scheduling.circuit_breaker import Scan
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.batch_manifest import damaged
from lakehouse.engine.journal.journal import PROBES, Journal, Records, names_by_table
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import table_at, temporary_view
from lakehouse.engine.spark.session_settings import OLD_VERSIONS_REFUSED, session_confs
from lakehouse.engine.spark.sessions import translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASKED_SECONDS = 30.0
# Known well enough: the interval of the gain is at most this wide, by at least so many pairs, and never more than so many.
_WIDTH, _LEAST_PAIRS, _MOST_PAIRS = 0.1, 3, 40
# So many scans a probe has at least, two unmeasured ones among them; each reads about so much: Parquet, all columns, on two cores.
_LEAST_SCANS, _BYTES_PER_SECOND = 2 + 2 * _LEAST_PAIRS, 100e6
_READ_BACK = 20
# More than any breaker asks for.
_SCANS_TOLD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReading:
    """The scans of a table's newest probes, oldest first, and the back-off that follows from the last; `None`: it is not held off.

    `opening_seconds` is what the opening of one file took in them, the default where too few tell.
    """

    scans: tuple[Scan, ...] = ()
    backoff: Explanation | None = None
    opening_seconds: float = SECONDS_PER_OPENING


NOT_PROBED = ProbeReading()


def probe_compaction(
    lake: Lake, spark: "SparkSession", outcome: CompactionOutcome, *, asked: bool = False
) -> Probe | None:
    """The gain of a compaction for readers, journalled; `None` where it did nothing, or is not due for a probe and none was `asked` for.

    The outcome has its account. `Transient` is raised where the server is gone.
    """
    entry, account, facts = outcome.entry, outcome.account, outcome.facts
    if entry is None or account is None or facts is None or outcome.version_after is None:
        return None
    seconds = entry.compaction.seconds or outcome.seconds_optimize
    known = probes(lake, outcome.plan.table)
    budget = ASKED_SECONDS if asked else probe_budget_seconds(account, seconds, known)
    if budget <= 0:
        return None
    began = time.monotonic()
    versions = (entry.compaction.first_version - 1, outcome.version_after)
    attempt = Probe(
        table=outcome.plan.table,
        version_before=versions[0],
        version_after=versions[1],
        measured_ms=now_ms(),
        before=(),
        after=(),
        spent_seconds=0.0,
        budget_seconds=round(budget, 3),
        openings_saved=max(0, entry.compaction.files_removed - entry.compaction.files_added),
    )
    record_probe(lake, attempt, known)
    before, after = _scanned(
        spark, facts.snapshot, outcome.plan.partitions, versions, budget=budget
    )
    probe = replace(
        attempt, before=before, after=after, spent_seconds=round(time.monotonic() - began, 3)
    )
    record_probe(lake, probe, known)
    return probe


def record_probe(lake: Lake, probe: Probe, before: Sequence[Probe] | None = None) -> None:
    """The probe in the journal, in place of its attempt, with the back-off that follows; `before`: earlier ones (`None`: as journalled)."""
    known = (*(probes(lake, probe.table) if before is None else before), probe)
    follows = {
        "backoff_until_ms": backoff_until_ms(known),
        "verdict": assess_benefit(known).sentence,
    }
    name = f"{probe.measured_ms:015}-{probe.version_after}.json"
    Journal(lake.store).record_probe(probe.table, name, {**probe.as_json(), **follows})


def read_probes(records: Records, now_ms: int, table_key: str = "") -> dict[str, ProbeReading]:
    """The newest probes of all tables that were probed, or of one: a listing, and a few reads for each.

    A record that cannot be read tells nothing, and holds nobody off: it is the probe that will tell of it.
    """
    newest = {
        table: names[-_SCANS_TOLD:]
        for table, names in names_by_table(records, PROBES, table_key).items()
    }
    read = records.read_many([name for names in newest.values() for name in names])
    told = {table: [next(read) for _ in names] for table, names in newest.items()}
    return {table: _reading(each, now_ms) for table, each in told.items()}


def probes(lake: Lake, table_key: str) -> tuple[Probe, ...]:
    """The newest probes of a table, oldest first; `Broken` where one is damaged."""
    names = names_by_table(lake.store, PROBES, table_key).get(table_key, [])[-_READ_BACK:]
    found: list[Probe] = []
    for name, data in zip(names, lake.store.read_many(names), strict=True):
        try:
            found.append(probe_from(json.loads(data)))
        except (ValueError, TypeError, KeyError) as error:
            raise damaged(name, error) from error
    return tuple(found)


def take_pairs(
    scan_before: Callable[[], float],
    scan_after: Callable[[], float],
    *,
    budget_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of scans taken in turn, after one unmeasured scan of each, until the gain is known well enough or no pair fits any more."""
    deadline = clock() + budget_seconds
    last = scan_before() + scan_after()
    pairs: list[tuple[float, float]] = []
    while len(pairs) < _MOST_PAIRS and clock() + last <= deadline and not _known(pairs):
        # The side that goes first has the colder caches, so it is each in turn.
        first, second = (
            (scan_before, scan_after) if len(pairs) % 2 == 0 else (scan_after, scan_before)
        )
        seconds = (first(), second())
        pairs.append(seconds if len(pairs) % 2 == 0 else (seconds[1], seconds[0]))
        last = sum(seconds)
    return tuple(before for before, _ in pairs), tuple(after for _, after in pairs)


def _known(pairs: Sequence[tuple[float, float]]) -> bool:
    gain = gain_of([before for before, _ in pairs], [after for _, after in pairs])
    return gain is not None and len(pairs) >= _LEAST_PAIRS and gain.high - gain.low <= _WIDTH


def _scanned(
    spark: "SparkSession",
    snapshot: Snapshot,
    partitions: Sequence[type_of_partition] | None,
    versions: tuple[int, int],
    *,
    budget: float,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The pairs of seconds, none where they would not fit; only partitions that were compacted are read."""
    read = set(partitions or ())
    size_bytes = sum(
        file.size_bytes for file in snapshot.files if partitions is None or file.partition in read
    )
    if size_bytes / _BYTES_PER_SECOND * _LEAST_SCANS > budget:
        return (), ()
    predicate = (
        None if partitions is None else statements.partition_predicate(snapshot.columns, partitions)
    )
    with (
        translated(),
        session_confs(spark, {OLD_VERSIONS_REFUSED: "false"}),
        contextlib.ExitStack() as views,
    ):
        frames = (
            table_at(spark, snapshot, version=version).where(predicate or "true")
            for version in versions
        )
        before, after = (
            _scan_of(spark, views.enter_context(temporary_view(spark, frame))) for frame in frames
        )
        return take_pairs(before, after, budget_seconds=budget)


def _scan_of(spark: "SparkSession", view: str) -> Callable[[], float]:
    def scan() -> float:
        began = time.monotonic()
        spark.table(view).write.format("noop").mode("overwrite").save()
        return time.monotonic() - began

    return scan


def _reading(told: Sequence[bytes], now_ms: int) -> ProbeReading:
    known, backoff = list[Probe](), None
    for data in told:
        backoff = None  # what follows from the newest record counts
        with contextlib.suppress(ValueError, TypeError, KeyError):
            content = json.loads(data)
            if (probe := probe_from(content)).before:
                known.append(probe)
            backoff = explain_backoff(content["backoff_until_ms"] or 0, content["verdict"], now_ms)
    scans = [
        Scan(
            measured_ms=each.measured_ms,
            before_seconds=each.before_seconds,
            after_seconds=each.after_seconds,
        )
        for each in known
    ]
    return ProbeReading(scans=tuple(scans), backoff=backoff, opening_seconds=measure_opening(known))
