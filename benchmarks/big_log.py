"""Measures `lakehouse health` and `plan` on tables of up to a million files, each in a new process.

`python -m benchmarks.big_log [RUNS] [FILES …]`; the largest size tried is 10,000,000. deltalake and
our reader open the same tables in turn.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, alone, growth, middle, ratio
from benchmarks.fresh import fresh
from benchmarks.generated_logs import KEY, build
from lakehouse.base.settings import parse_settings
from lakehouse.lake.lake import open_lake

SIZES = (100_000, 300_000, 1_000_000)
# By the number of files: the most seconds of a command, and its most bytes.
MOST = {300_000: (2.0, 1_000), 1_000_000: (5.0, None)}
COMMANDS, READERS = ("plan", "health"), ("ours", "deltalake")
_TABLES = """
from lakehouse import Append, Landing, Table

big = Table(key="bronze/big", source=Landing(prefix="landing/big/", format="json", schema="id BIGINT, day DATE"), write=Append())
"""


def main(runs: int = 5, *sizes: int) -> list[Figure]:
    """Seconds and memory of each command and reader, by the number of files."""
    figures, seconds = list[Figure](), dict[str, list[tuple[float, float]]]()
    for files in sizes or SIZES:
        with tempfile.TemporaryDirectory() as folder:
            fresh(build, folder, files)
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
