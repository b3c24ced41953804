"""Writes Delta logs of any size without data files: a checkpoint in Spark's layout, and commits."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakehouse_tests.checkpoint_parquet import ADD, OTHERS, PARSED, REMOVE

KEY = "bronze/big"
NOW_MS = 1_785_000_000_000
# More files are the same actions again, under other names.
_FILES_DRAWN = 300_000
_FEATURES = ["deletionVectors"]
_PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": _FEATURES,
    "writerFeatures": _FEATURES,
}
_FIELDS = [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, kind in (("id", "long"), ("day", "date"))
]
_METADATA = {
    "id": "big",
    "format": {"provider": "parquet", "options": []},
    "schemaString": json.dumps({"type": "struct", "fields": _FIELDS}),
    "partitionColumns": ["day"],
    "configuration": {"delta.enableDeletionVectors": "true"},
    "createdTime": NOW_MS,
}


def build(
    root: Path | str,
    files: int,
    *,
    partitions: int = 1_000,
    tombstones: int | None = None,
    commits: int = 20,
) -> None:
    """Writes the log of `KEY`: a checkpoint at version 1, and `commits` after it.

    Without a number, there is a tombstone for three files.
    """
    log = Path(root, KEY, "_delta_log")
    log.mkdir(parents=True)
    random, parts = Random(1), max(1, files // _FILES_DRAWN)
    tombstones = files // 3 if tombstones is None else tombstones
    adds = [_add(random, number % partitions, number) for number in range(files // parts)]
    removes = [
        _remove(random, number % partitions, number) for number in range(tombstones // parts)
    ]
    _write_checkpoint(log / f"{1:020}.checkpoint.parquet", adds, removes, parts=parts)
    for version in range(1, commits + 2):
        gone = adds[version * 7 : version * 7 + 3] if version > 1 else []
        actions = _commit(random, version, partitions, gone=gone)
        lines = [json.dumps(action, separators=(",", ":")) for action in actions]
        (log / f"{version:020}.json").write_text("\n".join(lines) + "\n")


def copies(root: Path, count: int) -> list[str]:
    """Gives `count` more tables the log of `KEY` as links, and returns their keys."""
    keys = [f"bronze/t{number:04}" for number in range(count)]
    for key in keys:
        log = root / key / "_delta_log"
        log.mkdir(parents=True)
        for file in (root / KEY / "_delta_log").iterdir():
            os.link(file, log / file.name)
    return keys


def _day(partition: int) -> str:
    return f"{2013 + partition // 336}-{partition // 28 % 12 + 1:02}-{partition % 28 + 1:02}"


def _path(random: Random, partition: int, number: int) -> str:
    text = f"{random.getrandbits(128):032x}"
    uuid = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return f"day={_day(partition)}/part-{number:05}-{uuid}.c000.snappy.parquet"


def _add(random: Random, partition: int, number: int) -> dict[str, Any]:
    rows = random.randint(50, 500_000)
    vector = {
        "storageType": "u",
        "pathOrInlineDv": f"{random.getrandbits(120):030x}"[:20],
        "offset": 1,
        "sizeInBytes": 40,
        "cardinality": rows // 30,
    }
    bounds = {"minValues": {"id": number}, "maxValues": {"id": number + rows}}
    stats = {"numRecords": rows, **bounds, "nullCount": {"id": 0}}
    return {
        "path": _path(random, partition, number),
        "partitionValues": [("day", _day(partition))],
        "size": int(2 ** random.uniform(12, 28)),
        "modificationTime": NOW_MS - number,
        "dataChange": False,
        "deletionVector": None if number % 20 else vector,
        "stats": json.dumps(stats, separators=(",", ":")),
        "stats_parsed": {"numRecords": rows, "minValues": {"id": 1}},
    }


def _remove(random: Random, partition: int, number: int) -> dict[str, Any]:
    return {
        "path": _path(random, partition, number),
        "deletionTimestamp": NOW_MS - number * 100,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": [("day", _day(partition))],
        "size": int(2 ** random.uniform(12, 24)),
    }


def _write_checkpoint(
    path: Path, adds: list[dict[str, Any]], removes: list[dict[str, Any]], *, parts: int
) -> None:
    """Writes one file in Spark's order: the single actions, then removes, then adds.

    The actions on files are written `parts` times, each time under other names.
    """
    metadata = {**_METADATA, "configuration": [*_METADATA["configuration"].items()]}
    files = [None] * (len(adds) + len(removes))
    columns = {
        "metaData": (OTHERS["metaData"], [None, metadata, *files]),
        "protocol": (OTHERS["protocol"], [_PROTOCOL, None, *files]),
        "remove": (REMOVE, [None, None, *removes, *[None] * len(adds)]),
        "add": (pa.struct([*ADD, PARSED]), [None, None, *[None] * len(removes), *adds]),
    }
    table = pa.table({name: pa.array(rows, type_) for name, (type_, rows) in columns.items()})
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        for part in range(1, parts):
            writer.write_table(_renamed(table.slice(2), part))


def _renamed(table: pa.Table, part: int) -> pa.Table:
    """The same actions on files of other names."""
    for kind in ("remove", "add"):
        place, actions = table.column_names.index(kind), table[kind].combine_chunks()
        fields = dict(zip(actions.type.names, actions.flatten(), strict=True))
        fields["path"] = pc.replace_substring(fields["path"], "part-", f"part-{part}")
        renamed = pa.StructArray.from_arrays(
            [*fields.values()], fields=[*actions.type], mask=actions.is_null()
        )
        table = table.set_column(place, table.field(kind), renamed)
    return table


def _commit(
    random: Random, version: int, partitions: int, *, gone: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """A commit that adds 50 files and removes those in `gone`; version 1 has no actions on files."""
    yield {
        "commitInfo": {
            "timestamp": NOW_MS + version * 60_000,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
        }
    }
    for number in range(50 if version > 1 else 0):
        add = _add(random, (version * 50 + number) % partitions, version * 1_000_000 + number)
        values = {"partitionValues": dict(add["partitionValues"]), "dataChange": True}
        left_out = ("stats_parsed", "deletionVector")
        yield {"add": {**{k: v for k, v in add.items() if k not in left_out}, **values}}
    for add in gone:
        values = {"partitionValues": dict(add["partitionValues"]), "dataChange": True}
        vector = {"deletionVector": add["deletionVector"]} if add["deletionVector"] else {}
        remove = {"path": add["path"], "size": add["size"], **values, **vector}
        yield {"remove": {**remove, "deletionTimestamp": NOW_MS + version}}
