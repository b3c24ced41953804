"""Two hundred statements of foreign sessions beside compactions of the same tables, and what each side lost to the other.

`python -m benchmarks.beside_writers [rounds] [seed]`, on a lake and a server of its own.
"""

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from lakehouse.engine import server
from lakehouse.engine.lake import open_lake
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.journeys.beside import play


def main(rounds: int = 200, seed: int = 1) -> int:
    """Prints the report; 1 if a row is not as the model says, or a compaction went unverified."""
    with tempfile.TemporaryDirectory() as home:
        settings = own_settings(Path(home))
        with server.supervised(settings):
            report = play(open_lake(settings), rounds=rounds, seed=seed)
    for name, value in asdict(report).items():
        print(f"{name:22} {value:,.1f}" if isinstance(value, float) else f"{name:22} {value:,}")
    return 1 if report.rows_differing or report.unverified or report.statements != rounds else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
