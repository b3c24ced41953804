"""Twelve tables that deltalake writes, maintained by a plain `dagster dev` of a project of one's own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakehouse_tests.conftest import free_port, wait_until

PROJECT = """
import dagster as dg

from lakehouse import Compaction, maintain

tables = {f"sales/t{number:02}": f"warehouse/t{number:02}" for number in range(12)}
defs = maintain(tables, compaction=Compaction(min_small_files=4))
"""


def compacted_ms(table: Path) -> int | None:
    """The time of the table's compaction by a plan of ours."""
    for commit in DeltaTable(table).history():
        if commit["operation"] == "OPTIMIZE" and "plan" in commit.get("userMetadata", ""):
            return int(commit["timestamp"])
    return None


def test_twelve_tables_share_a_run_and_are_compacted_within_a_minute_of_being_due(
    tmp_path: Path,
) -> None:
    (tmp_path / "project.py").write_text(PROJECT)
    home = tmp_path / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    dagster = Path(sys.executable).parent / "dagster"
    tables = [tmp_path / f"warehouse/t{number:02}" for number in range(12)]
    with (tmp_path / "dagster.log").open("wb") as log:
        process = subprocess.Popen(
            [dagster, "dev", "-f", "project.py", "-h", "127.0.0.1", "-p", str(free_port())],
            cwd=tmp_path,
            env={**os.environ, "DAGSTER_HOME": str(home)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        record = tmp_path / ".lakehouse"
        is_up = lambda: [*record.rglob("maintained/*.json")]  # noqa: E731
        wait_until("the sensors tick", is_up, seconds=600, every=1)
        for table in tables:
            for number in range(7):
                write_deltalake(table, pa.table({"id": [number]}), mode="append")
        due_ms = time.time() * 1000
        are_done = lambda: all(map(compacted_ms, tables))  # noqa: E731
        wait_until("all are compacted", are_done, seconds=600, every=1)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    seconds = [((compacted_ms(table) or 0) - due_ms) / 1000 for table in tables]
    print(f"compacted {min(seconds):.0f} to {max(seconds):.0f} s after being due")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        runs = instance.get_runs()
    print(f"{len(runs)} runs of {[len(run.asset_selection or ()) for run in runs]} tables")
    assert all(run.is_success for run in runs)
    assert len(runs) <= 2  # a tick may see the first tables before the last
