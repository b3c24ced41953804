"""The Spark Connect server that all workers of a test run share."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.base.processes import hold_lock, take_lock
from lakehouse.base.settings import Settings
from lakehouse.spark.server import server
from lakehouse.spark.server.conf import spark_conf
from lakehouse_tests.conftest import free_port, own_settings

# Room for what tests of several workers let wait in tasks, and as many files as two cores write.
_ROOMY = {
    "spark.master": "local[6]",
    "spark.default.parallelism": "2",
    "spark.sql.leafNodeDefaultParallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
# Spark sends all settings of Hadoop with each job, and zips them one by one. Two thirds of them are
# YARN's and MapReduce's, which run nothing here.
_UNUSED_SETTINGS = ("yarn-default.xml", "mapred-default.xml")


@contextmanager
def shared_server(folder: Path) -> Iterator[Settings]:
    """A server that the first who needs it starts, and stops after the last: a JVM is slow until it has done everything once."""
    with hold_lock(folder / "users.lock", shared=True) as users, ExitStack() as ours:
        with hold_lock(folder / "start.lock"):
            port, is_first = folder / "port", not (folder / "port").exists()
            if is_first:
                port.write_text(str(free_port()))
            settings = own_settings(
                folder / "home",
                LAKEHOUSE_SPARK_PORT=port.read_text(),
                LAKEHOUSE_SPARK_MEMORY="1536m",
            )
            if is_first:
                ours.enter_context(_roomy_server(settings))
                ours.callback(port.unlink)  # who comes later starts another one
                ours.callback(take_lock, users, seconds=3_600)
        yield settings


def lend_server(shared: Settings, home: Path) -> None:
    """Gives another home the shared server, as if `lakehouse server start` had started it there."""
    state = server.status(shared)
    assert state.process is not None
    lent = replace(shared, home=home)
    server.folder(lent).mkdir(parents=True)
    shutil.copyfile(server.folder(shared) / "token", server.folder(lent) / "token")
    server.remember(lent, state.process, None)


@contextmanager
def _roomy_server(settings: Settings) -> Iterator[None]:
    """A server that ends with this process, however that ends."""
    hadoop = settings.home / "hadoop"
    hadoop.mkdir(parents=True)
    for name in _UNUSED_SETTINGS:
        (hadoop / name).write_text("<configuration/>")

    def conf(*arguments: Any) -> dict[str, str]:
        usual = spark_conf(*arguments)
        jars = usual["spark.driver.extraClassPath"]
        return {**usual, **_ROOMY, "spark.driver.extraClassPath": f"{hadoop}{os.pathsep}{jars}"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "spark_conf", conf)
        with server.supervised(settings):
            yield
