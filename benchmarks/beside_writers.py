"""Two hundred statements of foreign sessions beside compactions of the same tables, and what each side lost to the other.

`python -m benchmarks.beside_writers [rounds] [seed]`, on a lake and a server of its own. With `gaps` in place of figures: writers that
come every few seconds, and how many of their statements lose where compactions wait for a gap, and where they do not.
"""

import contextlib
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lakehouse.engine.compaction import run
from lakehouse.engine.lake import open_lake
from lakehouse.runtime import server
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.journeys.foreign_writers import Report, play


def main(rounds: int = 200, seed: int = 1) -> int:
    """Prints the report; 1 if a row is not as the model says, or a compaction went unverified."""
    report = _played(rounds=rounds, seed=seed)
    for name, value in asdict(report).items():
        print(f"{name:22} {value:,.1f}" if isinstance(value, float) else f"{name:22} {value:,}")
    return 1 if report.rows_differing or report.unverified or report.statements != rounds else 0


def compare_gaps(rounds: int = 40, seed: int = 1) -> int:
    """Prints how many foreign statements were lost with and without waiting for gaps."""
    for waits in (True, False):
        with contextlib.nullcontext() if waits else patch.object(run, "await_quiet", lambda *_: 0.0):
            report = _played(rounds=rounds, seed=seed, pause_seconds=3.0, rest_seconds=1.0)
        print(f"{'waiting for gaps' if waits else 'without waiting'}: {report}", flush=True)
    return 0


def _played(**choices: Any) -> Report:
    with tempfile.TemporaryDirectory() as home:
        settings = own_settings(Path(home))
        with server.supervised(settings):
            return play(open_lake(settings), tell=lambda line: print(line, flush=True), **choices)


if __name__ == "__main__":
    sys.exit(compare_gaps(*map(int, sys.argv[2:])) if sys.argv[1:2] == ["gaps"] else main(*map(int, sys.argv[1:])))
