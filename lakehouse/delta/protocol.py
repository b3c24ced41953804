"""Delta's table features, and the table properties for retention and checkpoints.

Operations refuse unsupported features where they plan: `compact/plan/`, `vacuum/plan/`,
`adopt/command.py` and `retain/run/tiers.py`.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil

from lakehouse.base.text import DAY_MS, HOUR_MS, MINUTE_MS

# In a table with one of these features, a catalog or a coordinator holds the newest commits and
# decides which files are rewritten and deleted.
# Source: delta-io/delta v4.4.0, TableFeature.scala
CATALOG_FEATURES = ("catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview")
# Table properties by which Delta itself writes fewer files, or compacts after a commit.
OPTIMIZE_WRITE = "delta.autoOptimize.optimizeWrite"
AUTO_COMPACT = "delta.autoOptimize.autoCompact"
# Reader features of Delta 4.4.0 with which this program can count a table's files.
# Source: delta-io/delta v4.4.0, TableFeature.scala
_COUNTABLE = """columnMapping deletionVectors geospatial timestampNtz typeWidening
    typeWidening-preview v2Checkpoint vacuumProtocolCheck variantShredding
    variantShredding-preview variantType variantType-preview"""
# Features that Delta 4.4.0 can write. This list omits unfinished features, and features that leave
# commits or files to other systems (catalogs, coordinators, redirects).
# Source: delta-io/delta v4.4.0, TableFeature.scala, allSupportedFeaturesMap
_WRITABLE = """allowColumnDefaults appendOnly changeDataFeed checkConstraints checkpointProtection
    clustering domainMetadata generatedColumns icebergCompatV1 icebergCompatV2 icebergCompatV3
    identityColumns inCommitTimestamp invariants materializePartitionColumns rowTracking"""
COUNTABLE = frozenset(_COUNTABLE.split())
# These features are not reported, because an older protocol version implies them.
_USUAL = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}
)
_UNITS_MS = {
    "week": 7 * DAY_MS,
    "day": DAY_MS,
    "hour": HOUR_MS,
    "minute": MINUTE_MS,
    "second": 1_000,
    "millisecond": 1,
    "microsecond": Fraction(1, 1_000),
}
_SPAN = re.compile(r"(\d+)\s+([a-z]+?)s?(?=\s|$)")
_INTERVAL = re.compile(r"(?:interval\s+)?(?:\d+\s+[a-z]+(?:\s+|$))+")
# The table property that sets how long removed files are kept. Source: PROTOCOL.md; the default is
# from DeltaConfigs.scala.
RETENTION = "delta.deletedFileRetentionDuration"
_DEFAULT_RETENTION = "interval 1 week"
# The default of `delta.checkpointInterval` in DeltaConfigs.scala. PROTOCOL.md sets no default.
_CHECKPOINT_INTERVAL = 10


def unknown_features(features: Iterable[str]) -> list[str]:
    """The features for which this program does not know the effect of a rewrite or a deletion."""
    return sorted(set(features) - COUNTABLE - {*_WRITABLE.split()})


def notable_features(features: Iterable[str]) -> list[str]:
    """The features that are worth reporting to a person."""
    return sorted(set(features) - _USUAL)


def retention_ms_of(properties: Mapping[str, str]) -> int | None:
    """How long removed files are kept; `None` if the property cannot be parsed."""
    return span_ms_of(properties.get(RETENTION, _DEFAULT_RETENTION))


def checkpoint_interval(properties: Mapping[str, str]) -> int:
    """The number of commits after which writers add a checkpoint."""
    declared = properties.get("delta.checkpointInterval", "")
    return int(declared) if declared.isdecimal() and int(declared) else _CHECKPOINT_INTERVAL


def span_ms_of(interval: str) -> int | None:
    """The length of an interval, such as `interval 30 days`; `None` if it cannot be parsed.

    A fraction of a millisecond is rounded up.
    """
    text = interval.strip().lower()
    if not _INTERVAL.fullmatch(text):
        return None
    total_ms = Fraction(0)
    for count, unit in _SPAN.findall(text):
        unit_ms = _UNITS_MS.get(unit)
        if unit_ms is None:
            return None
        total_ms += int(count) * unit_ms
    return ceil(total_ms)
