"""Three hundred random histories of a table with an archive: no row is lost or doubled, whatever is killed when.

`HISTORIES=20 FIRST=300 python -m pytest -s lakehouse_tests/long/test_archive.py` plays others, or fewer,
and prints each.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from traceback import format_exc

import pytest

from lakehouse.core.settings import Settings
from lakehouse.engine.archive import restore, run
from lakehouse.engine.lake import open_lake
from lakehouse.engine.ttl import run as ttl_run
from lakehouse.runtime import server
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.engine.archive.histories import History
from lakehouse_tests.engine.clients import new_session

HISTORIES, FIRST = int(os.environ.get("HISTORIES", "300")), int(os.environ.get("FIRST", "0"))


def test_table_and_archive_have_all_rows_ever_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (restore, run, ttl_run):
        monkeypatch.setattr(module, "now_ms", module.now_ms)  # put back afterwards
    served = own_settings(tmp_path / "home", LAKEHOUSE_SPARK_MEMORY="2g")
    with server.supervised(served):
        spark = new_session(served)
        failures = [
            failure for seed in _seeds() if (failure := _failure(served, spark, tmp_path, seed))
        ]
        spark.stop()  # a server with open sessions takes half a minute to end
    assert not failures, "\n".join(failures)


def _seeds() -> range:
    return range(FIRST, FIRST + HISTORIES)


def _failure(served: Settings, spark: object, folder: Path, seed: int) -> str:
    lake = open_lake(replace(served, root=str(folder / str(seed))))
    history = History(lake, spark, seed)  # type: ignore[arg-type]
    try:
        history.check()
    except Exception as error:
        print(f"seed {seed}: failed: {error!r}", flush=True)
        return f"{'; '.join(history.told)}\n{format_exc()}"
    shutil.rmtree(folder / str(seed))
    print(f"seed {seed}: {len(history.told) - 1} steps, no row lost or doubled", flush=True)
    return ""
