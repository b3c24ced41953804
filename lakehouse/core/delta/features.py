"""Table features by name: those under which files are counted here, and those under which they may be rewritten and deleted."""

from collections.abc import Iterable

# Reader features of Delta 4.4.0 that leave the counting of files as it is. Source: delta-io/delta v4.4.0, TableFeature.scala.
_COUNTABLE = """columnMapping deletionVectors geospatial timestampNtz typeWidening typeWidening-preview v2Checkpoint vacuumProtocolCheck
    variantShredding variantShredding-preview variantType variantType-preview"""
# Features that Delta 4.4.0 writes, but none that leaves commits or files to others (catalogs, coordinators, redirects) or is unfinished.
# Source: delta-io/delta v4.4.0, TableFeature.scala, allSupportedFeaturesMap
_WRITABLE = """allowColumnDefaults appendOnly changeDataFeed checkConstraints checkpointProtection clustering domainMetadata
    generatedColumns icebergCompatV1 icebergCompatV2 icebergCompatV3 identityColumns inCommitTimestamp invariants
    materializePartitionColumns rowTracking"""
COUNTABLE = frozenset(_COUNTABLE.split())
# Any table has them, by its protocol version alone.
_USUAL = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}
)


def unknown_features(features: Iterable[str]) -> list[str]:
    """The features under which nobody here knows what a rewrite or a deletion would do."""
    return sorted(set(features) - COUNTABLE - {*_WRITABLE.split()})


def notable_features(features: Iterable[str]) -> list[str]:
    """The features that a person wants to hear of."""
    return sorted(set(features) - _USUAL)
