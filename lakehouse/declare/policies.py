"""The declarations of a table's compaction, vacuum, archive and TTL.

Delta's own auto compaction and optimized write are no strategies. They are table properties, which
work next to any strategy: `Table(properties={"delta.autoOptimize.optimizeWrite": "true"})`.

The commit that sets clustering columns also records them in a table property, the mark. Clustering
that a person set by hand has no mark, and is kept.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Literal, cast

from cronsim import CronSim, CronSimError

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.text import HOUR_MS
from lakehouse.declare.knobs import (
    AMOUNT,
    SHARE_OR_OFF,
    Accepts,
    check_knobs,
    knob,
    whole,
)
from lakehouse.delta.columns import check_columns
from lakehouse.delta.protocol import RETENTION, span_ms_of
from lakehouse.delta.snapshot import Snapshot

# Names and other letters are not valid, since only some parsers accept them.
_FIVE_FIELDS = re.compile(r"[0-9*/,-]+( +[0-9*/,-]+){4}")


def cron_times(cron: str, after_ms: int, until_ms: int) -> Iterator[int]:
    """All times of a valid expression after `after_ms` and before `until_ms`, in order."""
    after = datetime.fromtimestamp(after_ms / 1000, tz=UTC)
    times = (round(time.timestamp() * 1000) for time in CronSim(cron, after))
    return takewhile(lambda ms: ms < until_ms, times)


@frozen
class AfterWrite:
    """The run that writes the table also compacts it afterwards, unless the table is on hold.

    The plan decides whether there is anything to merge. No number of files must be reached.
    """


@frozen
class Scheduled:
    """A Dagster schedule compacts at these times (`cron`, UTC), whatever the file counts are."""

    cron: str

    def __post_init__(self) -> None:
        with suppress(CronSimError):
            CronSim(self.cron, datetime.min)
            if _FIVE_FIELDS.fullmatch(self.cron):
                return
        raise Refused(
            f"Scheduled.cron is {self.cron!r}. Use five fields of numbers, *, ranges, lists and"
            " steps, like '*/20 6-22 * * 1,3'."
        )


@frozen
class BySensor:
    """The compaction sensor ranks all tables and requests the compactions that are due."""


Strategy = AfterWrite | Scheduled | BySensor


LAYERS = ("bronze", "silver", "gold")
# The default of `Compaction.min_small_files`.
MIN_SMALL_FILES = {"bronze": 40, "silver": 24, "gold": 8}
MIB = 1024 * 1024


@frozen
class BinPacking:
    """Merges small files. Does not order rows."""


@frozen
class _ByColumns:
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        name = f"{type(self).__name__}.columns"
        if not self.columns or type(self.columns) is not tuple:
            raise Refused(f"{name} is {self.columns!r}. Use a tuple of at least one column.")
        check_columns(name, self.columns)


@frozen
class ZOrder(_ByColumns):
    """Sorts rows along a Z-order curve over `columns`. Every run rewrites whole partitions."""


@frozen
class LiquidClustering(_ByColumns):
    """Clusters rows incrementally by `columns`. The table must be unpartitioned."""


DataLayout = BinPacking | ZOrder | LiquidClustering


@frozen
class Compaction:
    """A table's compaction knobs. The first six are common; the others are for special cases."""

    strategy: Strategy = knob(
        BySensor(),
        "when the table is compacted, and by which run: [strategies](when.md#strategies)",
    )
    min_small_files: int = knob(
        0,
        "a compaction is due when it would merge this many files. 0: the default of the layer",
        whole(2, or_zero=True),
    )
    target_file_bytes: int = knob(
        0,
        "compaction fills files up to this size, and usually leaves files of three quarters of"
        " this size or more. 0: chosen by table size: 16 MiB below 4 GiB; above, the largest power"
        " of two (at most 1 GiB) that gives at least 128 files",
        whole(4096, or_zero=True),
    )
    data_layout: DataLayout = knob(
        BinPacking(),
        "how rows are laid out in files: `BinPacking()` merges small files; `ZOrder(columns=…)`"
        " sorts whole partitions by these columns; `LiquidClustering(columns=…)` clusters a table"
        " without partitions by up to four columns",
    )
    mode: Literal["automatic", "recommend", "off"] = knob(
        "automatic",
        '`"recommend"`: the plan is shown, and runs only if a person starts it. `"off"`: nothing'
        " runs without `--anyway`",
    )
    max_small_file_age_hours: float = knob(
        24.0,
        "a compaction is also due when a file that it would merge has this age. Files that a"
        " compaction wrote do not count. 0: never",
        AMOUNT,
    )
    purge_deleted_rows_share: float = knob(
        0.2,
        "a compaction is also due when deletion vectors hide this share of the rows; it then"
        " removes these rows from all files. 0: never",
        SHARE_OR_OFF,
    )
    cooldown_minutes: float = knob(
        2.0, "minutes after a compaction of the table in which the sensor requests no other", AMOUNT
    )
    scan_cores: int = knob(
        1,
        "the number of cores that scan the table. A compaction leaves at least that many files, as"
        " long as each core has 4 MiB to read",
        whole(1),
    )
    max_bytes_per_run: int = knob(
        16 * 1024 * MIB,
        "the most bytes that one run rewrites. A partition that cannot be split may exceed it."
        " Partitions with the most files removed per byte come first (with `cold_hours`: the least"
        " recently written); the next run does the rest. 0: no limit",
        whole(1, or_zero=True),
    )
    verify: Literal["rows", "content"] = knob(
        "rows",
        'how the rows are verified after the commit. `"rows"`: by row counts and, as far as the '
        "log has them, column statistics; if a row count is missing or any of these differ, every "
        'row is compared. `"content"`: Spark always compares every row',
    )
    engine: Literal["auto", "spark", "deltalake"] = knob(
        "auto",
        'what compacts the table. `"auto"`: deltalake for adopted tables that it can write '
        "([adopt](adopt.md#who-else-commits)), Spark for all others",
    )
    cold_hours: float = knob(
        0,
        "compacts only partitions without a change in this many hours, the least recently written"
        " first. 0: all partitions",
        AMOUNT,
    )

    def __post_init__(self) -> None:
        check_knobs(self)

    @property
    def candidate_bytes(self) -> int:
        """Three quarters of the target. Files below this size are candidates for a compaction.

        The outputs of a compaction are usually larger, so they are not rewritten again.
        """
        return self.target_file_bytes * 3 // 4


def policy_for(layer: str, declared: Compaction) -> Compaction:
    """The policy in force: the declared one, with the layer's default of `min_small_files`."""
    min_small_files = declared.min_small_files or MIN_SMALL_FILES[layer]
    return replace(declared, min_small_files=min_small_files)


CLUSTERING_MARK = "lakehouse.clustering"


def new_clustering(snapshot: Snapshot, data_layout: DataLayout) -> tuple[str, ...] | None:
    """The columns by which the policy clusters the table; `None` if the clustering does not change.

    Empty means `CLUSTER BY NONE`. Clustering without a mark was set by a person, and is kept. It is
    also kept if the policy has no LiquidClustering, and the mark names other columns.

    Raises:
        Refused: the policy has LiquidClustering, and the table has partitions.
    """
    mark = snapshot.properties.get(CLUSTERING_MARK)
    current = ",".join(snapshot.clustering_columns).casefold()
    if not isinstance(data_layout, LiquidClustering):
        is_ours = bool(current) and mark is not None and mark.casefold() == current
        return () if is_ours else None
    if snapshot.partition_columns:
        names = ", ".join(snapshot.partition_columns)
        raise Refused(
            f"{snapshot.table}: LiquidClustering is declared, but the table is partitioned by"
            f" {names}. Use ZOrder, or a table without partitions."
        )
    is_set_by_hand = bool(current) and mark is None
    is_unchanged = current == ",".join(data_layout.columns).casefold() or is_set_by_hand
    return None if is_unchanged else data_layout.columns


# Delta's default retention. Its documentation recommends at least this.
# Source: delta-io/delta, DeltaLog.tombstoneRetentionMillis.
SAFE_RETENTION_HOURS = 168
# One minute is the shortest retention, because the property is set in whole minutes.
_LEAST_HOURS = 1 / 60
# A declaration with a retention under `SAFE_RETENTION_HOURS` must include this sentence.
SHORT_RETENTION_RISK = "readers and writers that take longer than the retention lose their files"
_EMPTY_OR_RISK = Accepts(
    repr(SHORT_RETENTION_RISK), lambda value: value in ("", SHORT_RETENTION_RISK)
)
_VERSIONS = Accepts(
    "a tuple of whole numbers, 0 or more",
    lambda value: type(value) is tuple and all(map(whole(0).test, cast("Any", value))),
)
LOG_RETENTION = "delta.logRetentionDuration"
# Source: Delta's default.
_DEFAULT_LOG_RETENTION = "interval 30 days"


@frozen
class Vacuum:
    """A table's vacuum knobs."""

    mode: Literal["automatic", "recommend", "off"] = knob(
        "automatic",
        '`"recommend"`: a vacuum runs only if a person starts it. `"off"`: nothing runs without'
        " `--anyway`",
    )
    retention_hours: float = knob(
        0,
        "how many hours removed files are kept, at least a minute. Sets"
        " `delta.deletedFileRetentionDuration`, and raises `delta.logRetentionDuration` if it is"
        " shorter. 0: the table's own property",
        AMOUNT,
    )
    accepts_short_retention: str = knob(
        "",
        "permits a retention under a week. Must be exactly the sentence that the refusal of such a"
        " retention shows",
        _EMPTY_OR_RISK,
    )
    after_compaction: bool = knob(False, "a vacuum also follows each compaction of the table")
    keep_versions: tuple[int, ...] = knob(
        (), "versions whose files a vacuum keeps, whatever their age", _VERSIONS
    )
    tiers: bool = knob(
        False,
        "each night, removed files that stay for more than a month get a tag, by which a lifecycle"
        " rule of the bucket moves them to cheaper classes ([tiers](tiers.md))",
    )

    def __post_init__(self) -> None:
        check_knobs(self)
        if 0 < self.retention_hours < _LEAST_HOURS:
            raise Refused(
                f"Vacuum.retention_hours is {self.retention_hours!r}, under a minute. Use 0, or at"
                " least 1/60 (a minute)."
            )
        if 0 < self.retention_hours < SAFE_RETENTION_HOURS and not self.accepts_short_retention:
            raise Refused(
                f"Vacuum.retention_hours is {self.retention_hours:g}, under a week"
                f" ({SAFE_RETENTION_HOURS}). To accept the risk, add"
                f" accepts_short_retention={SHORT_RETENTION_RISK!r}."
            )

    def retention_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The properties to set for the retention on a table that has these `properties` now.

        They include the log's retention if that of the table is shorter, or cannot be parsed.
        """
        if not self.retention_hours:
            return {}
        span = f"interval {round(self.retention_hours * 60)} minutes"
        log_ms = span_ms_of(properties.get(LOG_RETENTION, _DEFAULT_LOG_RETENTION))
        if log_ms is None or log_ms < self.retention_hours * HOUR_MS:
            return {RETENTION: span, LOG_RETENTION: span}
        return {RETENTION: span}


# Objects in these S3 storage classes can be read immediately. In the other Glacier classes, every
# read of the archive would fail until its files are restored.
_Class = Literal["STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"]


def _clock() -> Any:
    return knob(
        "now",
        "the time from which days are counted back. With `newest_row`, a table that gets no new"
        " rows keeps its rows",
    )


@frozen
class Archive:
    """A table's archive: partitions move to a Delta table in `archive/`, and are deleted later."""

    older_than_days: int = knob(
        31,
        "a partition moves to the archive, as a whole, this many days after the next one started",
        whole(1),
    )
    keep_days: int = knob(
        183,
        "an archived partition is deleted this many days after its rows were last archived",
        whole(0),
    )
    clock: Literal["now", "newest_row"] = _clock()
    storage_class: _Class = knob(
        "STANDARD", "the S3 storage class of the archived files. On a disk, it has no effect"
    )

    def __post_init__(self) -> None:
        check_knobs(self)


@frozen
class Ttl:
    """Deletes rows whose `column` lies more than `days` days before `clock`.

    `column` is a DATE or TIMESTAMP. Rows with null are kept.
    """

    column: str
    days: int = knob(MISSING, "how many days rows are kept", whole(1))
    clock: Literal["now", "newest_row"] = _clock()

    def __post_init__(self) -> None:
        check_knobs(self)
        check_columns("Ttl.column", (self.column,))
