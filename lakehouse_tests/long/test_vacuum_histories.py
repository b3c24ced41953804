"""Hundreds of random histories with vacuums by every mode: every version within the retention reads as it was written, to the row.

A few at once, each with a session and a lake of its own, on one server: what its JVM has compiled serves all of them. Delta keeps what it
read of a table in memory for an hour, so three hundred tables take more of it than one lake does.
`HISTORIES=20 FIRST=300 python -m pytest -s lakehouse_tests/long/test_vacuum_histories.py` runs others, or fewer, and tells of each.
"""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import local
from traceback import format_exc

from pyspark.sql import SparkSession

from lakehouse.base.settings import Settings
from lakehouse.lake.lake import open_lake
from lakehouse.spark.server import server
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.support.clients import new_session
from lakehouse_tests.support.histories import FileHistory

HISTORIES, FIRST = int(os.environ.get("HISTORIES", "300")), int(os.environ.get("FIRST", "0"))
AT_ONCE = 4


def test_no_version_within_the_retention_loses_a_row(tmp_path: Path) -> None:
    served = own_settings(tmp_path / "home", LAKEHOUSE_SPARK_MEMORY="4g")
    with server.supervised(served):
        failures = [failure for failure in _failures(served, tmp_path) if failure]
    assert not failures, "\n".join(failures)


def _failures(served: Settings, folder: Path) -> Iterator[str | None]:
    own, sessions = local(), list[SparkSession]()

    def failure_of(seed: int) -> str | None:
        settings = replace(
            served, home=_home(served, folder / f"{seed}-home"), root=str(folder / str(seed))
        )
        try:
            if not hasattr(own, "spark"):
                own.spark = new_session(settings)
                sessions.append(own.spark)
            deleted = FileHistory(open_lake(settings), own.spark, seed).run(operations=7, vacuums=2)
        except Exception as error:
            print(f"seed {seed}: failed: {error!r}", flush=True)
            return f"seed {seed}\n{format_exc()}"
        shutil.rmtree(settings.root)
        print(f"seed {seed}: {deleted} file(s) deleted, every version kept", flush=True)
        return None

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        yield from pool.map(failure_of, range(FIRST, FIRST + HISTORIES))
    for session in sessions:
        session.stop()  # a server with open sessions takes half a minute to end


def _home(served: Settings, home: Path) -> Path:
    """A home with the same server: the locks of tables lie in it, and all stories are of one name."""
    home.mkdir()
    (home / "server").symlink_to(served.home / "server")
    return home
