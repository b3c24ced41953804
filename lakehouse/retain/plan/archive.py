"""Plans the archive of a table: which partitions leave, which archived ones expire or come back.

The archive of a table is a Delta table of its own, `archive/<layer>/<name>`. A partition leaves its
table, as a whole, when it ended `Archive.older_than_days` before now or, with `clock="newest_row"`,
before the newest partition. It ends where the next partition starts, so the newest one never
leaves. It expires `Archive.keep_days` after rows of it were last archived.

**Safety properties** (tests in `test_archive.py`)
- A partition that may still be written does not leave: a later partition has begun.
- Rows of an archived partition that were appended join the archive. Rows of an archived partition
  that were written in any other way may be computed again, so that the archived rows may be stale:
  they stay in the table until a person decides (`replace`).
- A partition that was restored stays in the table for `older_than_days`, counted from the restore.

When a partition starts, in UTC, is known from the values of these partition columns:

- columns `year`, `month`, `day`, `hour`, or only the first one, two or three of them;
- one DATE or TIMESTAMP column, or one STRING column with values such as `2026-01-31` or `2026-01`;
- next to such a column, a column with the hour.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from itertools import pairwise, takewhile

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.paths import name_in_table
from lakehouse.base.reasons import Explained, Explanation, Reason
from lakehouse.base.stored_objects import total_bytes
from lakehouse.base.text import DAY_MS, EARLIEST_MS, Document, count_of, first_names, size_text
from lakehouse.declare.policies import Archive
from lakehouse.declare.table import TRANSACTION_RETENTION, Table
from lakehouse.delta.columns import type_change
from lakehouse.delta.partition_values import (
    TypedPartition,
    is_changed_by_rewrite,
    typed_partition,
)
from lakehouse.delta.protocol import unknown_features
from lakehouse.delta.snapshot import (
    Column,
    DataFile,
    PartitionValues,
    Snapshot,
    live_rows,
    types_by_name,
)

# The partitions with all values of any of these combinations (column -> value).
Selection = Sequence[Mapping[str, str]]
_CALENDAR = ("year", "month", "day", "hour")
_FIRST = (1, 1, 1, 0)
_ISO_TEXT = re.compile(r"\d{4}-\d{2}(-\d{2})?")


def partition_starts(
    snapshot: Snapshot, partitions: Collection[TypedPartition]
) -> dict[TypedPartition, int | None]:
    """The start of each partition in ms; `None` if its values give no time.

    A column `year` comes first, or else a date.

    Raises:
        Refused: several partition columns give a time.
    """
    names = [name.lower() for name in snapshot.partition_columns]
    places = [names.index(unit) for unit in takewhile(names.__contains__, _CALENDAR)]
    if not places:
        columns = range(len(names))
        dated = [place for place in columns if any(_date_of(each[place]) for each in partitions)]
        hours = [place for place in columns if place not in dated and names[place].endswith("hour")]
        if len(dated) > 1 or len(hours) > 1:
            raise Refused(
                f"archive of {snapshot.table}: several of the partition columns"
                f" {', '.join(snapshot.partition_columns)} give a time. Use one DATE column, one"
                " STRING column with values such as 2026-01-31 or 2026-01, or columns named year,"
                " month, day, hour"
            )
        places = [*dated, *hours] if dated else []
    return {each: _start_ms([each[place] for place in places]) for each in partitions}


def _date_of(value: object) -> datetime | None:
    """The time of a date, a timestamp, or a text such as `2026-01-31` or `2026-01`."""
    text = ""
    if isinstance(value, date):  # also a time
        text = value.isoformat()
    elif isinstance(value, str) and _ISO_TEXT.fullmatch(value):
        text = f"{value}-01"[:10]
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


def _start_ms(values: Sequence[object]) -> int | None:
    """The start by a date and perhaps an hour, or by a year and perhaps smaller units."""
    if not values:
        return None
    start = _date_of(values[0])
    try:
        numbers = [int(str(value)) for value in (values if start is None else values[1:])]
        if start is None:
            start = datetime(*numbers, *_FIRST[len(numbers) :], tzinfo=UTC)
        elif numbers:
            start = start.replace(hour=numbers[0])
    except (ValueError, OverflowError):
        return None
    return round(start.timestamp() * 1000)


# The archive of a table that has none yet.
NO_ARCHIVE = Snapshot(table="", uri="", version=-1)
# One run moves at most this many files, or a single partition with more: one commit names them all.
MOST_FILES = 50_000
# S3 copies no larger object in one request. Source: Amazon S3 API reference, CopyObject.
_MOST_COPIED_BYTES = 5 * 1024**3
# Features with which a commit that removes whole files and sets a transaction id needs more. For
# in-commit timestamps, for example, it needs a field of its own.
# Source: PROTOCOL.md, "Valid Feature Names in Table Features".
_DEMANDING = """inCommitTimestamp icebergCompatV1 icebergCompatV2 icebergCompatV3 geospatial
    materializePartitionColumns variantShredding"""
# Features of columns that a reader of the archive's files has to know.
_COLUMN_FEATURES = """timestampNtz typeWidening typeWidening-preview variantType
    variantType-preview variantShredding-preview"""
_MAPPING = ("delta.columnMapping.", "delta.typeChanges")
_NULLABLE = ("nullable", "containsNull", "valueContainsNull")
# The archive's property for columns that only its files have.
_DROPPED = "lakehouse.dropped"
# Files of the archive go by the archive's own expiry alone.
_RETENTIONS = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
_KEPT = "interval 36500 days"
# Measured with the tables of the tests: to copy and compare a file.
_SECONDS_PER_FILE = 0.02


@frozen
class ArchiveFacts:
    """A table and its archive.

    - `archived`: the archive at the version that the table's log names.
    - `written_by`: for partitions that are archived and have rows in the table, the operation that
      wrote these rows; `append` for a plain append.
    - `restored_ms`: when partitions were last restored.
    """

    snapshot: Snapshot
    archived: Snapshot = NO_ARCHIVE
    written_by: Mapping[TypedPartition, str] = {}
    restored_ms: Mapping[TypedPartition, int] = {}


@frozen
class Partition:
    """A partition that moves, with its files on the side that it leaves.

    - `typed`: its values; a log may spell one value in several ways.
    - `expires_ms`: when it leaves the archive; `None` in the table.
    """

    typed: TypedPartition
    values: PartitionValues
    files: tuple[DataFile, ...]
    expires_ms: int | None = None

    @property
    def text(self) -> str:
        """The partition in words."""
        return partition_text(self.values)

    def is_among(self, chosen: Selection) -> bool:
        """Whether it has one of these combinations of values."""
        values = dict(self.values).items()
        return any(each.items() <= values for each in chosen)

    def as_json(self) -> Document:
        """The documented JSON shape."""
        sizes = asdict(sizes_of([self]))
        return {"values": dict(self.values), **sizes, "expires_ms": self.expires_ms}


def partition_text(values: Iterable[tuple[str, str | None]]) -> str:
    """A partition, for example `event_date=2026-01-31/event_hour=5`."""
    return "/".join(f"{name}={'null' if text is None else text}" for name, text in values)


@frozen
class Sizes:
    """The number of files, their rows that are not deleted (`None`: unknown), and their bytes."""

    files: int
    rows: int | None
    bytes: int


def sizes_of(partitions: Iterable[Partition]) -> Sizes:
    """The sizes of all files of these partitions."""
    files = [file for partition in partitions for file in partition.files]
    return Sizes(files=len(files), rows=live_rows(files), bytes=total_bytes(files))


@frozen
class ArchivePlan(Explained):
    """What a run changes: partitions that leave the table, and archived ones that expire.

    `cutoff_ms`: only partitions that ended before it leave. The leaving partitions replace the
    archived partitions `replaced`. `seconds` and `usd` are predicted.
    """

    table: str
    version: int
    cutoff_ms: int
    leaving: tuple[Partition, ...]
    replaced: tuple[Partition, ...]
    expiring: tuple[Partition, ...]
    seconds: float
    usd: float
    notes: tuple[str, ...]

    @property
    def expired_bytes(self) -> int:
        """The bytes that expire."""
        return sizes_of(self.expiring).bytes

    @property
    def size_bytes(self) -> int:
        """The bytes that expire or move."""
        return self.expired_bytes + sizes_of(self.leaving).bytes

    @property
    def is_idle(self) -> bool:
        """Whether nothing moves."""
        return not self.leaving and not self.expiring

    @property
    def figures(self) -> Document:
        """The predicted figures, as the commit records them."""
        expired = sizes_of(self.expiring)
        return {
            "reason": self.reason.name,
            "sentence": self.sentence,
            **asdict(sizes_of(self.leaving)),
            "expired_files": expired.files,
            "expired_rows": expired.rows,
            "seconds": self.seconds,
            "usd": self.usd,
        }

    def as_json(self) -> Document:
        """The documented JSON shape."""
        return {
            "table": self.table,
            "version": self.version,
            "cutoff_ms": self.cutoff_ms,
            **self.figures,
            "partitions": [each.as_json() for each in self.leaving],
            "expiring": [each.as_json() for each in self.expiring],
            "notes": list(self.notes),
        }


def plan_archive(
    table: Table,
    archive: Archive,
    facts: ArchiveFacts,
    *,
    now_ms: int,
    replace: Selection = (),
) -> ArchivePlan:
    """The plan of a run now. `replace` selects partitions whose rows replace the archived ones.

    Raises:
        Refused: the table cannot be archived.
    """
    snapshot = facts.snapshot
    refuse_table(snapshot)
    _refuse_other_columns(snapshot, facts.archived)
    in_table = partitions_in(snapshot)
    archived = partitions_in(facts.archived, snapshot, archive)
    starts = partition_starts(snapshot, {*in_table, *archived})
    clock_ms = now_ms
    if archive.clock == "newest_row":
        starts_ms = [start for each in in_table if (start := starts[each]) is not None]
        clock_ms = max((each for each in starts_ms if each <= now_ms), default=now_ms)
    cutoff_ms = max(clock_ms - archive.older_than_days * DAY_MS, EARLIEST_MS)
    times = sorted({start for start in starts.values() if start is not None})
    ended = {None, *(start for start, end in pairwise(times) if end <= cutoff_ms)}
    old = [each for each in in_table.values() if starts[each.typed] in ended]
    old.sort(key=lambda each: (starts[each.typed] or 0, each.text))
    reasons = {each.typed: _why_it_stays(each, facts, archive, now_ms, replace) for each in old}
    undated = "partitions without a time stay in the table"
    reasons |= {each.typed: undated for each in old if starts[each.typed] is None}
    leaving, stays = _sorted_out(old, reasons)
    expiring = [each for each in archived.values() if (each.expires_ms or now_ms) <= now_ms]
    file_count = sizes_of(leaving).files
    seconds = _SECONDS_PER_FILE * file_count
    usd = table.prices.run_usd(seconds=seconds)
    if snapshot.on_s3:
        usd += file_count * table.prices.usd_per_1000_puts / 1_000
    notes = [f"{why}: {first_names(names)}" for why, names in stays.items()]
    return ArchivePlan(
        explanation=_explanation(leaving, expiring, cutoff_ms),
        table=table.key,
        version=snapshot.version,
        cutoff_ms=cutoff_ms,
        leaving=tuple(leaving),
        replaced=tuple(
            archived[each.typed]
            for each in leaving
            if each.typed in archived and each.is_among(replace)
        ),
        expiring=tuple(expiring),
        seconds=seconds,
        usd=usd,
        notes=tuple(notes),
    )


def _sorted_out(
    old: Iterable[Partition], reasons: Mapping[TypedPartition, str]
) -> tuple[list[Partition], dict[str, list[str]]]:
    """The partitions that leave, and those that stay by their reason; an empty one is none."""
    leaving = list[Partition]()
    stays = dict[str, list[str]]()
    file_count = 0
    for partition in old:
        why = reasons[partition.typed]
        if leaving and file_count + len(partition.files) > MOST_FILES:
            why = why or f"later runs move more, because one run moves {MOST_FILES:,} files"
        if why:
            stays.setdefault(why, []).append(partition.text)
            continue
        leaving.append(partition)
        file_count += len(partition.files)
    return leaving, stays


def refuse_table(snapshot: Snapshot) -> None:
    """Refuses a table whose rows cannot leave as whole files, or whose log forgets the archive."""
    what = f"archive of {snapshot.table}"
    if snapshot.files and not snapshot.partition_columns:
        raise Refused(f"{what}: the table has no partitions. Partition it by a date")
    if snapshot.properties.get("delta.appendOnly", "false").lower() == "true":
        raise Refused(f"{what}: delta.appendOnly forbids deletions. Set it to false")
    for name in snapshot.properties:
        if name.lower() == TRANSACTION_RETENTION.lower():
            raise Refused(
                f"{what}: because of the property {name}, the table's log forgets which version of"
                " the archive belongs to it. Unset the property"
            )
    unknown = [
        *unknown_features(snapshot.features),
        *sorted(snapshot.features.intersection(_DEMANDING.split())),
    ]
    if unknown:
        raise Refused(f"{what}: its table feature {unknown[0]} is not supported")


def partitions_in(
    snapshot: Snapshot, table: Snapshot | None = None, archive: Archive | None = None
) -> dict[TypedPartition, Partition]:
    """A table's partitions by their typed values; an archive's as its `table` has the columns.

    By the policy of an `archive`, its partitions expire.
    """
    in_table = _columns(table or snapshot)
    columns = {each.name: in_table.get(source, each) for source, each in _columns(snapshot).items()}
    types = types_by_name(columns.values())

    def values(file: DataFile) -> PartitionValues:
        return tuple((columns[name].name, text) for name, text in file.partition)

    groups = dict[TypedPartition, list[DataFile]]()
    for file in sorted(snapshot.files, key=lambda each: each.path):
        groups.setdefault(typed_partition(values(file), types), []).append(file)
    partitions = dict[TypedPartition, Partition]()
    for typed, files in groups.items():
        expires_ms = None
        if archive is not None:
            last_ms = max(file.modified_ms for file in files)
            expires_ms = last_ms + archive.keep_days * DAY_MS
        partitions[typed] = Partition(
            typed=typed, values=values(files[0]), files=tuple(files), expires_ms=expires_ms
        )
    return partitions


def _why_it_stays(
    partition: Partition,
    facts: ArchiveFacts,
    archive: Archive,
    now_ms: int,
    replace: Selection,
) -> str:
    """Why an old partition stays in the table; empty if it leaves."""
    if any(name_in_table(file.path) is None for file in partition.files):
        return "partitions with files outside the table stay in the table"
    if facts.snapshot.on_s3 and any(f.size_bytes > _MOST_COPIED_BYTES for f in partition.files):
        return "partitions with a file above 5 GiB, which S3 cannot copy, stay in the table"
    if is_changed_by_rewrite(partition.values, types_by_name(facts.snapshot.columns)):
        return "partitions with an empty text, which Spark would write as null, stay in the table"
    restored_ms = facts.restored_ms.get(partition.typed)
    if restored_ms is not None and restored_ms + archive.older_than_days * DAY_MS > now_ms:
        return f"restored partitions stay in the table for {archive.older_than_days} days"
    # Only partitions that are archived, too, have an entry.
    operation = facts.written_by.get(partition.typed, "append")
    if operation != "append" and not partition.is_among(replace):
        return (
            f"rows that a {operation} wrote to archived partitions stay in the table, since the"
            f" archived rows may be stale (lakehouse archive {facts.snapshot.table} --replace"
            " COLUMN=VALUE replaces them)"
        )
    return ""


def _sizes(partitions: Sequence[Partition]) -> str:
    sizes = sizes_of(partitions)
    rows = "" if sizes.rows is None else f"{sizes.rows:,} rows in "
    files = count_of(sizes.files, "file")
    count = count_of(len(partitions), "partition")
    return f"{count} ({rows}{files}, {size_text(sizes.bytes)})"


def _explanation(
    leaving: Sequence[Partition], expiring: Sequence[Partition], cutoff_ms: int
) -> Explanation:
    parts = list[str]()
    sides = (
        (leaving, "moves to the archive", "move to the archive"),
        (expiring, "expires in the archive", "expire in the archive"),
    )
    for partitions, one, many in sides:
        if partitions:
            parts.append(f"{_sizes(partitions)} {one if len(partitions) == 1 else many}")
    if not parts:
        what = "partition to archive"
        return Reason.NOTHING_PAST_THE_CUTOFF.explain(what=what, cutoff=cutoff_ms)
    return Reason.PAST_THE_CUTOFF.explain(what=" and ".join(parts), cutoff=cutoff_ms)


@frozen
class RestorePlan:
    """A planned restore: the archived partitions that return to their table."""

    table: str
    version: int
    partitions: tuple[Partition, ...]

    @property
    def sentence(self) -> str:
        """The plan in words."""
        if not self.partitions:
            return "nothing to restore: the archive has no such partition"
        sizes = _sizes(self.partitions)
        return f"moves {sizes} back into the table; tables downstream do not read them again"

    def as_json(self) -> Document:
        """The documented JSON shape."""
        return {
            "table": self.table,
            "version": self.version,
            "partitions": [each.as_json() for each in self.partitions],
            "rows": sizes_of(self.partitions).rows,
            "sentence": self.sentence,
        }


def plan_restore(
    table: Table,
    snapshot: Snapshot,
    archived: Snapshot,
    chosen: Selection,
    written_by: Mapping[TypedPartition, str],
) -> RestorePlan:
    """The plan of a restore of the partitions with any of the `chosen` values; empty selects all.

    `written_by` is as in `ArchiveFacts`.

    Raises:
        Refused: the table is not partitioned by a chosen column, or has rows of a partition that
            may be the archived ones, computed again.
    """
    names = snapshot.partition_columns
    unknown = sorted({name for each in chosen for name in each}.difference(names))
    if unknown:
        raise Refused(
            f"restore of {table.key}: the table is not partitioned by {unknown[0]!r}. Use"
            f" {' or '.join(names)}"
        )
    known = partitions_in(archived, snapshot, table.archive).values()
    partitions = tuple(each for each in known if not chosen or each.is_among(chosen))
    for each in partitions:
        operation = written_by.get(each.typed, "append")
        if operation != "append":
            raise Refused(
                f"restore of {table.key}: a {operation} wrote rows of {each.text} since it was"
                " archived, so the archived rows may be in the table already. Restore other"
                f" partitions, or replace the archived rows: `lakehouse archive {table.key}"
                " --replace COLUMN=VALUE`"
            )
    return RestorePlan(table=table.key, version=snapshot.version, partitions=partitions)


def parsed_values(text: str) -> dict[str, str]:
    """The values of `COLUMN=VALUE,COLUMN=VALUE`. Raises `Refused` for any other text."""
    pairs = [part.partition("=") for part in text.split(",")]
    if any(not name or not equals for name, equals, _ in pairs):
        raise Refused(f"partition {text!r} is not one. Use COLUMN=VALUE")
    return {name: value for name, _, value in pairs}


def names_in_archive(snapshot: Snapshot, archived: Snapshot) -> dict[str, str]:
    """Column of the table -> its name in this version of the archive; others are not there.

    A column is identified by its physical name, which a rename does not change. So a column that
    was dropped and added again never gets the values of the dropped one.

    Raises:
        Refused: a column has another type, or a field inside a struct was renamed, or dropped and
            added again.
    """
    stored = _columns(archived)
    names = dict[str, str]()
    types, stored_types = (
        {each["name"]: each["type"] for each in _nullable_schema(table)["fields"]}
        for table in (snapshot, archived)
    )
    for source, column in _columns(snapshot).items():
        if source in stored:
            names[column.name] = stored[source].name
            # With the physical names of fields inside structs.
            if stored_types[stored[source].name] != types[column.name]:
                raise Refused(
                    f"archive of {snapshot.table}: column {column.name} has another type or other"
                    f" fields than in the archive. Use lakehouse archive {snapshot.table}, which"
                    " brings the archive up to date or says what to do"
                )
    return names


def archive_metadata(snapshot: Snapshot, archived: Snapshot) -> Document:
    """The `metaData` of the archive of a table: its columns, all nullable.

    `archived` is the archive at its newest version.
    """
    properties: dict[str, str] = dict.fromkeys(_RETENTIONS, _KEPT)
    if archived.files:
        gone = {*_dropped_from(archived), *_columns(archived)} - _columns(snapshot).keys()
        if gone:
            properties[_DROPPED] = json.dumps(sorted(gone))
    metadata = snapshot.definition["metaData"]
    for name, value in metadata["configuration"].items():
        if name.startswith("delta.columnMapping."):
            properties[name] = value
    return {
        "id": f"{metadata['id']}-archive",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_nullable_schema(snapshot)),
        "partitionColumns": metadata["partitionColumns"],
        "configuration": properties,
        "createdTime": metadata.get("createdTime", 0),
    }


def archive_protocol(snapshot: Snapshot) -> Document:
    """The `protocol` of an archive: the least one that can read the table's columns."""
    needed = snapshot.features.intersection(_COLUMN_FEATURES.split())
    if snapshot.physical_names:
        needed |= {"columnMapping"}
    if not needed:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    names = sorted(needed)
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": names,
        "writerFeatures": names,
    }


def _dropped_from(archived: Snapshot) -> list[str]:
    """Physical names of columns that files of an archive have, and its table has no more."""
    names: list[str] = json.loads(archived.properties.get(_DROPPED, "[]"))
    return names


def _refuse_other_columns(snapshot: Snapshot, archived: Snapshot) -> None:
    """Refuses archived files whose columns have another type, place or origin in the table."""
    if not archived.files:
        return
    for name in _dropped_from(archived):
        if name in _columns(snapshot):
            raise Refused(
                f"archive of {snapshot.table}: column {name} was dropped and added again, and"
                " archived rows have its earlier values. Either use another name, or use lakehouse"
                f" restore {snapshot.table}, which leaves them out"
            )
    is_widening = any(feature.startswith("typeWidening") for feature in snapshot.features)
    present = _columns(archived)
    for source, column in _columns(snapshot).items():
        old = present.get(source, column)
        # Fields that were added are null.
        if type_change(old.type, column.type).casts and not is_widening:
            raise Refused(
                f"archive of {snapshot.table}: column {column.name} is {column.type} now, and"
                f" {old.type} in the archive. Use lakehouse restore {snapshot.table}, so that the"
                " archive begins again"
            )
    if _partitioning(snapshot) != _partitioning(archived):
        raise Refused(
            f"archive of {snapshot.table}: the table is partitioned by"
            f" {', '.join(snapshot.partition_columns)}, and its archive by"
            f" {', '.join(archived.partition_columns)}. Use lakehouse restore {snapshot.table}"
        )


def _partitioning(snapshot: Snapshot) -> list[str]:
    return [snapshot.physical_names.get(name, name) for name in snapshot.partition_columns]


def _columns(snapshot: Snapshot) -> dict[str, Column]:
    """The columns by their physical names."""
    return {snapshot.physical_names.get(each.name, each.name): each for each in snapshot.columns}


def _nullable_schema(snapshot: Snapshot) -> Document:
    schema = snapshot.definition["metaData"]["schemaString"]
    return json.loads(schema, object_hook=_without_requirements)


def _without_requirements(part: Document) -> Document:
    """A part of a schema in which everything may be null, without defaults and constraints."""
    part |= {name: True for name in _NULLABLE if name in part}
    if "metadata" in part:
        metadata = part["metadata"].items()
        part["metadata"] = {key: each for key, each in metadata if key.startswith(_MAPPING)}
    return part
