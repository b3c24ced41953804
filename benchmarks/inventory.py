"""A scan of 100,000 files on disk and its reconciliation, in a fresh process: seconds and memory. `python -m benchmarks.inventory`.

Also how long a bucket takes to list by one thread and by many. The servers of the tests are busy with one request at a time, so that
nothing could be seen there; here the answers come from a list, and each takes as long as one of S3.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any

from lakehouse.core.settings import parse_settings
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory import reconcile_lake, scan
from lakehouse.engine.lake import open_lake
from lakehouse.engine.store.s3_walk import THREADS, ParallelWalk

ANSWER_SECONDS = 0.08
FILES, FOLDERS, LIVE_SHARE = 100_000, 1_000, 0.8
MOST_BYTES = 400_000_000
KEY = "bronze/big"


def main() -> int:
    """0 if every object was counted and memory stayed below the bound."""
    with tempfile.TemporaryDirectory() as folder:
        fewer, more = (_measured(Path(folder) / str(files), files) for files in (FILES // 5, FILES))
    for each in (fewer, more):
        print(
            f"inventory of {each['objects']:,} files: scan {each['scan_seconds']:.2f} s, peak {each['scan_bytes'] / 1e6:.0f} MB, "
            f"report {each['report_bytes'] / 1e6:.2f} MB; reconciliation {each['reconcile_seconds']:.2f} s, "
            f"peak {each['reconcile_bytes'] / 1e6:.0f} MB"
        )
    keys = sorted(f"{KEY}/day={number % FOLDERS:04}/part-{number:06}.parquet" for number in range(FILES))
    for threads in (1, THREADS):
        server, began = Answers(keys), time.perf_counter()
        count = sum(1 for _ in ParallelWalk(server, "bucket", "", threads=threads).entries())
        seconds = time.perf_counter() - began
        print(f"bucket of {count:,} keys in {FOLDERS:,} folders, {threads} thread(s): {seconds:.1f} s, {server.requests} requests")
    return int(more["reconcile_bytes"] > MOST_BYTES or more["counted"] != more["expected"])


class Answers:
    """ListObjectsV2 over a sorted list of keys, each answer after `ANSWER_SECONDS`."""

    def __init__(self, keys: list[str]) -> None:
        self.keys, self.requests = keys, 0

    def list_objects_v2(self, **asked: Any) -> dict[str, Any]:
        """One page: of keys, or of the folders below a prefix."""
        self.requests += 1
        time.sleep(ANSWER_SECONDS)  # the answer of a far server is what is measured
        prefix, most = asked["Prefix"], asked["MaxKeys"]
        place = max(bisect_right(self.keys, asked.get("StartAfter", "")), bisect_left(self.keys, prefix))
        if "Delimiter" not in asked:
            page = [key for key in self.keys[place : place + most + 1] if key.startswith(prefix)]
            return {"Contents": [{"Key": key} for key in page[:most]], "IsTruncated": len(page) > most}
        folders: list[str] = []
        while place < len(self.keys) and self.keys[place].startswith(prefix) and len(folders) < most:
            folders.append(f"{prefix}{self.keys[place].removeprefix(prefix).partition('/')[0]}/")
            place = bisect_right(self.keys, f"{folders[-1]}\U0010ffff")
        return {"CommonPrefixes": [{"Prefix": folder} for folder in folders], "IsTruncated": place < len(self.keys)}


def measure(home: Path) -> None:
    """Prints what the scan and the reconciliation of the lake in `home` took, as JSON."""
    lake = open_lake(parse_settings({"LAKEHOUSE_ROOT": str(home / "lake"), "LAKEHOUSE_REPLAY": "off"}, base=home))
    began = time.perf_counter()
    scanned = scan(lake.store, now_ms=now_ms())
    scan_seconds, scan_bytes = time.perf_counter() - began, _peak_bytes()
    began = time.perf_counter()
    found = reconcile_lake(lake, [], now_ms=now_ms()).reconciliation
    parts = {share.part.name: share.file_count for table in found.tables for share in table.shares if share.part}
    document = {
        "objects": scanned.object_count,
        "scan_seconds": scan_seconds,
        "scan_bytes": scan_bytes,
        "report_bytes": sum(file.size_bytes for file in scanned.manifest.files),
        "reconcile_seconds": time.perf_counter() - began,
        "reconcile_bytes": _peak_bytes(),
        "counted": [parts["LIVE"], parts["ORPHANED_YOUNG"]],
    }
    print(json.dumps(document))


def _measured(home: Path, files: int) -> dict[str, float]:
    names = [f"day={number % FOLDERS}/part-{number:06}.parquet" for number in range(files)]
    live = round(files * LIVE_SHARE)
    _write(home / "lake" / KEY, names, live=live)
    done = subprocess.run([sys.executable, "-m", "benchmarks.inventory", str(home)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout) | {"expected": [live, files - live]}


def _write(table: Path, names: list[str], *, live: int) -> None:
    for folder in {name.split("/")[0] for name in names}:
        (table / folder).mkdir(parents=True)
    for name in names:
        os.close(os.open(table / name, os.O_CREAT | os.O_WRONLY))
    schema = {"type": "struct", "fields": [{"name": "day", "type": "string", "nullable": True, "metadata": {}}]}
    metadata = {
        "id": "0",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": ["day"],
    }
    add = {"size": 0, "modificationTime": now_ms() - 3_600_000, "dataChange": True}
    lines = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": {**metadata, "configuration": {}}}]
    lines += [{"add": {"path": name, "partitionValues": {"day": name.split("/")[0][4:]}, **add}} for name in names[:live]]
    (table / "_delta_log").mkdir()
    (table / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)))


def _peak_bytes() -> int:
    """Of this process alone: `ru_maxrss` would begin with what its parent held."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    sys.exit(measure(Path(sys.argv[1])) if len(sys.argv) > 1 else main())
