"""Measures scans of up to 100,000 files and their reconciliation: seconds and memory.

`python -m benchmarks.inventory [FILES …]`. It also lists a bucket with one thread and with many.
The answers come from a list, each as late as one of S3, since test servers handle one request at a
time.
"""

import json
import os
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, alone, growth, timed
from benchmarks.fresh import fresh, peak_bytes
from lakehouse.core.settings import parse_settings
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.reconcile_lake import known_report, reconcile_report
from lakehouse.engine.inventory.scan import scan
from lakehouse.engine.lake import open_lake
from lakehouse.engine.store.s3_walk import THREADS, walk_keys

ANSWER_SECONDS = 0.08
SIZES, FOLDERS, LIVE_SHARE = (20_000, 50_000, 100_000), 1_000, 0.8
MOST_BYTES = 400_000_000
KEY = "bronze/big"


def main(*sizes: int) -> list[Figure]:
    """Seconds and memory by the number of files, and a bucket listed by one thread and by many."""
    found = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        for files in sizes or SIZES:
            found.append(each := _measured(Path(folder) / str(files), files))
            print(
                f"  {each['objects']:,} files: scan {each['scan_seconds']:.2f} s, reconciliation {each['reconcile_seconds']:.2f} s",
                flush=True,
            )
    most, largest = found[-1], f"{sizes[-1] if sizes else SIZES[-1]:,} files"
    wrong = sum(each["counted"] != each["expected"] for each in found)
    return [
        Figure(
            name="sizes at which a file was counted wrongly",
            value=wrong,
            at_most=0,
            holds_at_any_size=True,
        ),
        Figure(name=f"inventory scan of {largest} on a disk", value=most["scan_seconds"], unit="s"),
        Figure(name=f"the report of {largest}", value=most["report_bytes"] / 1e6, unit="MB"),
        Figure(
            name=f"reconciliation of {largest} with the log",
            value=most["reconcile_seconds"],
            unit="s",
        ),
        Figure(
            name=f"memory of both, {largest}",
            value=most["peak_bytes"] / 1e6,
            unit="MB",
            at_most=MOST_BYTES / 1e6,
        ),
        *(
            growth(
                f"{what}, by files",
                [(each["objects"], each[f"{step}_seconds"]) for each in found],
                size_of="files",
            )
            for step, what in (("scan", "inventory scan"), ("reconcile", "reconciliation"))
        ),
        _listing(sizes[-1] if sizes else SIZES[-1]),
    ]


def _listing(files: int) -> Figure:
    """Seconds to list a bucket of this size with one thread, and with as many as a scan uses."""
    keys = sorted(
        f"{KEY}/day={number % FOLDERS:04}/part-{number:06}.parquet" for number in range(files)
    )
    seconds: dict[int, float] = {}
    for threads in (1, THREADS):
        server, began = Answers(keys), time.perf_counter()
        count = sum(1 for _ in walk_keys(server, "bucket", "", threads=threads))
        seconds[threads] = time.perf_counter() - began
        print(
            f"  bucket of {count:,} keys, {threads} thread(s): {seconds[threads]:.1f} s, {server.requests} requests",
            flush=True,
        )
    name = f"a bucket of {files:,} keys listed by {THREADS} threads, each answer after {ANSWER_SECONDS * 1_000:.0f} ms"
    return Figure(name=name, value=seconds[THREADS], unit="s", peers={"by one thread": seconds[1]})


class Answers:
    """ListObjectsV2 over a sorted list of keys, each answer after `ANSWER_SECONDS`."""

    def __init__(self, keys: list[str]) -> None:
        self.keys, self.requests = keys, 0

    def list_objects_v2(self, **asked: Any) -> dict[str, Any]:
        """One page: of keys, or of the folders below a prefix."""
        self.requests += 1
        time.sleep(ANSWER_SECONDS)  # the answer of a far server is what is measured
        prefix, most = asked["Prefix"], asked["MaxKeys"]
        place = max(
            bisect_right(self.keys, asked.get("StartAfter", "")), bisect_left(self.keys, prefix)
        )
        if "Delimiter" not in asked:
            page = [key for key in self.keys[place : place + most + 1] if key.startswith(prefix)]
            return {
                "Contents": [{"Key": key} for key in page[:most]],
                "IsTruncated": len(page) > most,
            }
        folders: list[str] = []
        while (
            place < len(self.keys) and self.keys[place].startswith(prefix) and len(folders) < most
        ):
            folders.append(f"{prefix}{self.keys[place].removeprefix(prefix).partition('/')[0]}/")
            place = bisect_right(self.keys, f"{folders[-1]}\U0010ffff")
        return {
            "CommonPrefixes": [{"Prefix": folder} for folder in folders],
            "IsTruncated": place < len(self.keys),
        }


def measure(home: str) -> dict[str, Any]:
    """Figures of a scan and a reconciliation of the lake in `home`."""
    lake = open_lake(
        parse_settings(
            {"LAKEHOUSE_ROOT": f"{home}/lake", "LAKEHOUSE_REPLAY": "off"}, base=Path(home)
        )
    )
    scan_seconds, scanned = timed(partial(scan, lake.store, now_ms=now_ms()))
    reconcile_seconds, found = timed(
        lambda: reconcile_report(lake, [], known_report(lake, now_ms=now_ms()), now_ms=now_ms())
    )
    parts = {
        share.part.name: share.file_count
        for table in found.tables
        for share in table.shares
        if share.part
    }
    return {
        "objects": scanned.object_count,
        "scan_seconds": scan_seconds,
        "report_bytes": sum(file.size_bytes for file in scanned.files),
        "reconcile_seconds": reconcile_seconds,
        "peak_bytes": peak_bytes(),
        "counted": [parts["LIVE"], parts["ORPHANED_YOUNG"]],
    }


def _measured(home: Path, files: int) -> dict[str, Any]:
    names = [f"day={number % FOLDERS}/part-{number:06}.parquet" for number in range(files)]
    live = round(files * LIVE_SHARE)
    _write(home / "lake" / KEY, names, live=live)
    return fresh(measure, str(home)) | {"expected": [live, files - live]}


def _write(table: Path, names: list[str], *, live: int) -> None:
    for folder in {name.split("/")[0] for name in names}:
        (table / folder).mkdir(parents=True)
    for name in names:
        os.close(os.open(table / name, os.O_CREAT | os.O_WRONLY))
    schema = {
        "type": "struct",
        "fields": [{"name": "day", "type": "string", "nullable": True, "metadata": {}}],
    }
    parquet = {"provider": "parquet", "options": {}}
    metadata = {
        "id": "0",
        "format": parquet,
        "schemaString": json.dumps(schema),
        "partitionColumns": ["day"],
    }
    add = {"size": 0, "modificationTime": now_ms() - 3_600_000, "dataChange": True}
    lines = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**metadata, "configuration": {}}},
    ]
    lines += [
        {"add": {"path": name, "partitionValues": {"day": name.split("/")[0][4:]}, **add}}
        for name in names[:live]
    ]
    (table / "_delta_log").mkdir()
    (table / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)))


if __name__ == "__main__":
    sys.exit(alone(main))
