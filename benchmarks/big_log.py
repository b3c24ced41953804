"""Measures `lakehouse health` and `plan` on tables of up to a million files, each in a new process.

`python -m benchmarks.big_log [RUNS] [FILES …]`. The log is written without Spark: a checkpoint in
Delta's layout and some commits. deltalake and our reader open the same tables in turn.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.figures import Figure, alone, growth, middle, ratio
from benchmarks.fresh import fresh
from lakehouse.core.settings import parse_settings
from lakehouse.engine.lake import open_lake
from lakehouse_tests.checkpoint_parquet import ADD, OTHERS, PARSED, REMOVE

FILES, PARTITIONS, TOMBSTONES, COMMITS = 300_000, 1_000, 100_000, 20
SIZES = (100_000, FILES, 1_000_000)
# By the number of files: the most seconds of a command, and its most bytes.
MOST = {FILES: (2.0, 1_000), 1_000_000: (5.0, None)}
COMMANDS, READERS = ("plan", "health"), ("ours", "deltalake")
KEY = "bronze/big"
_NOW_MS = 1_785_000_000_000
_TABLES = """
from lakehouse import Append, Landing, Table

big = Table(key="bronze/big", source=Landing(prefix="landing/big/", format="json", schema="id BIGINT, day DATE"), write=Append())
"""


def build(
    root: Path | str,
    files: int = FILES,
    partitions: int = PARTITIONS,
    tombstones: int = TOMBSTONES,
    commits: int = COMMITS,
) -> None:
    """Writes a log: a checkpoint of files and tombstones at version 1, and `commits` after it."""
    log = Path(root, KEY, "_delta_log")
    log.mkdir(parents=True)
    random, parts = Random(1), max(1, files // FILES)
    adds = [_add(random, number % partitions, number) for number in range(files // parts)]
    removes = [
        _remove(random, number % partitions, number) for number in range(tombstones // parts)
    ]
    _write_checkpoint(log / f"{1:020}.checkpoint.parquet", adds, removes, parts=parts)
    for version in range(1, commits + 2):
        lines = list(
            _commit_lines(
                random,
                version,
                partitions,
                gone=adds[version * 7 : version * 7 + 3] if version > 1 else [],
            )
        )
        (log / f"{version:020}.json").write_text(
            "\n".join(json.dumps(line, separators=(",", ":")) for line in lines) + "\n"
        )


def _day(partition: int) -> str:
    return f"{2013 + partition // 336}-{partition // 28 % 12 + 1:02}-{partition % 28 + 1:02}"


def _name(random: Random, number: int) -> str:
    text = f"{random.getrandbits(128):032x}"
    return f"part-{number:05}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}.c000.snappy.parquet"


def _add(random: Random, partition: int, number: int) -> dict[str, Any]:
    rows = random.randint(50, 500_000)
    vector = None
    if number % 20 == 0:
        identity = f"{random.getrandbits(120):030x}"[:20]
        vector = {
            "storageType": "u",
            "pathOrInlineDv": identity,
            "offset": 1,
            "sizeInBytes": 40,
            "cardinality": rows // 30,
        }
    return {
        "path": f"day={_day(partition)}/{_name(random, number)}",
        "partitionValues": [("day", _day(partition))],
        "size": int(2 ** random.uniform(12, 28)),
        "modificationTime": _NOW_MS - number,
        "dataChange": False,
        "deletionVector": vector,
        "stats": f'{{"numRecords":{rows},"minValues":{{"id":{number}}},"maxValues":{{"id":{number + rows}}},"nullCount":{{"id":0}}}}',
        "rows": rows,
    }


def _remove(random: Random, partition: int, number: int) -> dict[str, Any]:
    return {
        "path": f"day={_day(partition)}/{_name(random, number)}",
        "deletionTimestamp": _NOW_MS - number * 100,
        "dataChange": False,
        "extendedFileMetadata": True,
        "partitionValues": [("day", _day(partition))],
        "size": int(2 ** random.uniform(12, 24)),
        "deletionVector": None,
    }


def _write_checkpoint(
    path: Path, adds: list[dict[str, Any]], removes: list[dict[str, Any]], *, parts: int
) -> None:
    """Writes one file in Spark's order: the single actions, then removes, then adds.

    The actions on files are written `parts` times, each time under other names.
    """
    rows = [
        ({**add, "stats_parsed": {"numRecords": add["rows"], "minValues": {"id": 1}}})
        for add in adds
    ]
    head = [{key: _as_map(value) for key, value in line.items()} for line in _table_actions()]
    columns = {
        "metaData": [line.get("metaData") for line in head] + [None] * (len(adds) + len(removes)),
        "protocol": [line.get("protocol") for line in head] + [None] * (len(adds) + len(removes)),
        "remove": [None] * len(head) + removes + [None] * len(adds),
        "add": [None] * (len(head) + len(removes)) + rows,
    }
    types = {
        "metaData": OTHERS["metaData"],
        "protocol": OTHERS["protocol"],
        "remove": REMOVE,
        "add": pa.struct([*ADD, PARSED]),
    }
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        for part in range(1, parts):
            writer.write_table(_renamed(table.slice(len(head)), part))


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


def _as_map(value: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(part.items()) if name == "configuration" else part
        for name, part in value.items()
    }


def _table_actions() -> Iterator[dict[str, Any]]:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("day", "date"))
    ]
    features = ["deletionVectors"]
    yield {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    }
    yield {
        "metaData": {
            "id": "big",
            "format": {"provider": "parquet", "options": []},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": ["day"],
            "configuration": {"delta.enableDeletionVectors": "true"},
            "createdTime": _NOW_MS,
        }
    }


def _commit_lines(
    random: Random, version: int, partitions: int, *, gone: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    yield {
        "commitInfo": {
            "timestamp": _NOW_MS + version * 60_000,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
        }
    }
    for number in range(50 if version > 1 else 0):
        add = _add(random, (version * 50 + number) % partitions, version * 1_000_000 + number)
        plain = {
            name: value
            for name, value in add.items()
            if value is not None and name not in ("rows", "deletionVector")
        }
        yield {
            "add": {**plain, "partitionValues": dict(add["partitionValues"]), "dataChange": True}
        }
    for add in gone:
        remove = {
            "path": add["path"],
            "deletionTimestamp": _NOW_MS + version,
            "dataChange": True,
            "size": add["size"],
        }
        vector = {"deletionVector": add["deletionVector"]} if add["deletionVector"] else {}
        yield {"remove": {**remove, "partitionValues": dict(add["partitionValues"]), **vector}}


def main(runs: int = 5, *sizes: int) -> list[Figure]:
    """Seconds and memory of each command and reader, by the number of files."""
    figures, seconds = list[Figure](), dict[str, list[tuple[float, float]]]()
    for files in sizes or SIZES:
        with tempfile.TemporaryDirectory() as folder:
            fresh(build, folder, files, PARTITIONS, files // 3)
            found = _measured(Path(folder), runs)
        for name, measured in found.items():
            seconds.setdefault(name, []).append(
                (files, statistics.median(wall for wall, _ in measured))
            )
        figures += _figures(files, found)
    cost = {"plan": "lakehouse plan", "health": "lakehouse health", "ours": "reading the log"}
    return [
        *figures,
        *(
            growth(f"{what}, by files", seconds[name], size_of="files")
            for name, what in cost.items()
        ),
    ]


def _measured(root: Path, runs: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds and MB of all commands and readers, measured in turn."""
    _declare(root)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in (*COMMANDS, *READERS)}
    for _ in range(runs):
        for command in COMMANDS:
            found[command].append(_command(root, command))
        for reader in READERS:
            found[reader].append(tuple(fresh(read, reader, str(root))))
        print(
            "  "
            + ", ".join(
                f"{name} {each[-1][0]:.2f} s {each[-1][1]:.0f} MB" for name, each in found.items()
            ),
            flush=True,
        )
    return found


def _figures(files: int, found: dict[str, list[tuple[float, float]]]) -> Iterator[Figure]:
    seconds = {name: [wall for wall, _ in measured] for name, measured in found.items()}
    most_seconds, most_mb = MOST.get(files, (None, None))
    for command in COMMANDS:
        yield middle(
            f"lakehouse {command}, {files:,} files",
            seconds[command],
            unit="s",
            row="P3",
            at_most=most_seconds,
        )
        peak = max(mb for _, mb in found[command])
        yield Figure(
            name=f"memory of lakehouse {command}, {files:,} files",
            value=peak,
            unit="MB",
            row="P3",
            at_most=most_mb,
        )
    beside = {
        "deltalake opens the table and lists its files": statistics.median(seconds["deltalake"])
    }
    yield middle(
        f"reading the log, {files:,} files", seconds["ours"], unit="s", row="P3", peers=beside
    )
    name = f"reading the log over deltalake's opening and listing, {files:,} files"
    yield ratio(
        name, seconds["ours"], seconds["deltalake"], row="P3", at_most=1.0 if most_seconds else None
    )


def _declare(root: Path) -> None:
    package = root / "package" / "big_tables"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(_TABLES)


def _command(root: Path, command: str) -> tuple[float, float]:
    """Seconds and peak MB of one command in a new process."""
    own = {
        "LAKEHOUSE_HOME": str(root),
        "LAKEHOUSE_ROOT": str(root),
        "LAKEHOUSE_TABLES": "big_tables",
        "LAKEHOUSE_REPLAY": "off",
    }
    path = os.pathsep.join([str(root / "package"), str(Path(__file__).parent.parent)])
    began = time.perf_counter()
    arguments = [sys.executable, "-m", "lakehouse", command, KEY]
    child = subprocess.Popen(
        arguments, env={**os.environ, **own, "PYTHONPATH": path}, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"lakehouse {command} ended with {child.returncode}")
    return time.perf_counter() - began, used.ru_maxrss * 1024 / 1e6


def read(reader: str, root: str) -> tuple[float, float]:
    """Seconds and peak MB of one reader in this process, after its imports."""
    if reader == "deltalake":
        from deltalake import DeltaTable

        began = time.perf_counter()
        count = len(DeltaTable(f"{root}/{KEY}").file_uris())
    else:
        # Arrow imports it when it is needed for the first time.
        import pyarrow.compute  # noqa: F401

        lake = open_lake(
            parse_settings({"LAKEHOUSE_ROOT": root, "LAKEHOUSE_REPLAY": "off"}, base=Path(root))
        )
        began = time.perf_counter()
        facts = lake.facts(KEY)
        count = facts.snapshot.file_count if facts else 0
    seconds = time.perf_counter() - began
    if not count:
        raise SystemExit(f"{reader} found no files")
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(alone(main))
