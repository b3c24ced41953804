"""Measures vacuums of many tables on an S3 server: requests and seconds grow with the tables.

`python -m benchmarks.vacuum_lake [tables …]`. Each table has 500 files, of which a fifth is deleted
by a report of the whole lake. Delta is not asked, because its seconds per table do not depend on
the lake.
"""

import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from benchmarks.figures import Figure, alone, growth, timed
from benchmarks.own_lake import landed_table
from benchmarks.s3_server import PREFIX, ask, served
from lakehouse import Table
from lakehouse.base.clock import now_ms
from lakehouse.base.settings import parse_settings
from lakehouse.lake.lake import open_lake
from lakehouse.vacuum import run
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.run import scan

COUNTS, FILES, FOLDERS = (25, 50, 100, 200), 500, 10
# Requests for a table, from the fewest tables to the most. Tables are asked again by time, which
# adds some to a long run.
MOST_GROWTH = 1.5


def main(*counts: int) -> list[Figure]:
    """Requests per table and seconds, by the number of tables."""
    seconds, requests = list[tuple[float, float]](), list[tuple[float, float]]()
    with served() as endpoint:
        for count in counts or COUNTS:
            took, asked = _measured(endpoint, count)
            seconds.append((count, took))
            requests.append((count, asked.total()))
            kinds = ", ".join(f"{name} {number:,}" for name, number in sorted(asked.items()))
            print(
                f"  {count:4} tables of {FILES} files: {took:7.1f} s, {asked.total():8,} requests ({kinds})",
                flush=True,
            )
    each = [total / count for count, total in requests]
    grown = (
        f"requests for a table of {FILES} files, {requests[-1][0]:,} tables over {requests[0][0]:,}"
    )
    return [
        Figure(name=grown, value=each[-1] / each[0], unit="times", at_most=MOST_GROWTH, row="P13"),
        growth("requests of a vacuum, by tables", requests, size_of="tables", unit="requests"),
        growth("seconds of a vacuum, by tables", seconds, size_of="tables"),
    ]


def _measured(endpoint: str, count: int) -> tuple[float, Counter[str]]:
    tables = [
        landed_table(f"bronze/t{number:03}", "id BIGINT, day STRING") for number in range(count)
    ]
    for table in tables:
        ask(endpoint, f"seed?bucket=lake{count}&files={FILES}&folders={FOLDERS}&key={table.key}")
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as patches:
        os.environ["LAKEHOUSE_ROOT"] = root = f"s3://lake{count}/{PREFIX}"
        lake = open_lake(
            parse_settings({"LAKEHOUSE_ROOT": root, "LAKEHOUSE_REPLAY": "off"}, base=Path(home))
        )
        scan(lake, now_ms=now_ms())
        patches.enter_context(patch.object(run, "hold", lambda *_, **__: contextlib.nullcontext()))
        patches.enter_context(
            patch.object(run, "confirmed_by_delta", lambda *arguments: [*arguments[-1]])
        )
        before = Counter(lake.store.requests)
        seconds, gone = timed(lambda: _vacuumed(LakeFacts(lake, tables), tables))
        if gone != count * FILES // 5:
            raise SystemExit(f"{gone} files are gone, {count * FILES // 5} were to go")
        return seconds, lake.store.requests - before


def _vacuumed(facts: LakeFacts, tables: Sequence[Table]) -> float:
    outcomes = [run.vacuum(facts, lambda: None, table, mode="INVENTORY") for table in tables]
    return sum(outcome.figures[0].actual for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(alone(main))
