"""A home that works on one table, in a process of its own, with its own Spark driver: for `long/test_two_homes.py`.

    python -m lakehouse_tests.working_home

It answers each command of the standard input (a line of JSON) with a line.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from lakehouse import SHORT_RETENTION_RISK, Archive, Compaction, Vacuum
from lakehouse.base.errors import LakehouseError
from lakehouse.base.settings import parse_settings
from lakehouse.compact.run import compact
from lakehouse.evolve.rebuild import run_rebuild
from lakehouse.evolve.run import declared_request
from lakehouse.lake import lease
from lakehouse.lake.lake import Lake, TableSession, open_lake
from lakehouse.materialize.run import write_table
from lakehouse.retain.run.archive import run_archive
from lakehouse.retain.run.read import run_restore
from lakehouse.spark.session import connect
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.run import vacuum
from lakehouse_tests.kills import WRITES
from lakehouse_tests.retain.example_days import DAYS

# Removed files stay for two minutes: longer than an operation takes, and shorter than the test.
TABLE = replace(
    DAYS,
    archive=Archive(older_than_days=6, clock="newest_row"),
    compaction=Compaction(min_small_files=2),
    vacuum=Vacuum(retention_hours=1 / 30, accepts_short_retention=SHORT_RETENTION_RISK),
)


def run(lake: Lake, spark: Any, command: Mapping[str, Any]) -> None:
    """One operation of a home."""
    session = TableSession(lake=lake, spark=spark, table=TABLE)
    match command["operation"]:
        case "load":
            write_table(lake, spark, TABLE)
        case "archive":
            run_archive(lake, TABLE, lambda: spark)
        case "restore":
            run_restore(session, command["partitions"])
        case "compaction":
            by_engine = replace(TABLE.compaction, engine=command["engine"])
            compact(lake, spark, replace(TABLE, compaction=by_engine))
        case "rebuild":
            run_rebuild(session, declared_request(session), [TABLE])
        case "vacuum":
            vacuum(LakeFacts(lake, [TABLE]), lambda: spark, TABLE, mode="FULL")


def die_at_write(patch: pytest.MonkeyPatch, store: type, number: int, when: str) -> None:
    """Ends this process `before` or `after` its n-th write to storage."""
    writes = count(1)

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any, **options: Any) -> Any:
            is_last = next(writes) == number
            if is_last and when == "before":
                os.kill(os.getpid(), SIGKILL)
            result = real(*arguments, **options)
            if is_last:
                os.kill(os.getpid(), SIGKILL)
            return result

        return write

    for name in WRITES:
        patch.setattr(store, name, deadly(getattr(store, name)))


def main() -> None:
    """Does what each command says, and answers how it went."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    settings = parse_settings(os.environ, base=Path.cwd())
    spark = connect(settings)
    lake = open_lake(settings, tables=[TABLE])
    waits, real_take = list[float](), lease._Lease.take

    def timed_take(self: Any, wait_seconds: float) -> None:
        started = time.monotonic()
        try:
            real_take(self, wait_seconds)
        finally:
            waits.append(time.monotonic() - started)

    print("{}", file=answers, flush=True)
    for command in map(json.loads, sys.stdin):
        waits.clear()
        result, why, started = "done", "", time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lease._Lease, "take", timed_take)
            die_at_write(patch, type(lake.store), command["dies_at"], command["when"])
            for name in ("take", "start", "give_back") if command["no_lease"] else ():
                patch.setattr(lease._Lease, name, lambda *_: None)
            try:
                run(lake, spark, command)
            except Exception as error:
                result = type(error).__name__
                why = str(error) if isinstance(error, LakehouseError) else f"{error!r} {error}"
        figures = {"seconds": time.monotonic() - started, "waited": max(waits, default=0.0)}
        answer = {"result": result, "why": why, **figures}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
