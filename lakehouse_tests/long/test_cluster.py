"""A lake in a bucket on a standalone cluster of two workers: by a driver per run, and by a Connect server on the cluster.

Only settings differ from a lake with a server of its own.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lakehouse_tests.cluster import ConnectServer, deployed_conf, standalone
from lakehouse_tests.conftest import link_year
from lakehouse_tests.journeys.world import World
from lakehouse_tests.long.test_s3_moto import (
    KEY,
    MATERIALIZE,
    REGION,
    REPLAY,
    ROOT,
    SECRET,
    begin_replay,
)
from lakehouse_tests.s3_servers import BUCKET, s3_client, s3_server


class ClusterWorld(World):
    """A lakehouse of commands that each run in a process of their own, as a driver per run needs."""

    def ask(self, *arguments: str) -> Any:
        done = self.command(*arguments, "--json")
        assert done.returncode == 0, (arguments, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = super().command(*arguments)
        assert KEY not in done.stdout + done.stderr and SECRET not in done.stdout + done.stderr
        return done


@pytest.fixture(scope="module", params=["spark", "sc"])
def kind(request: pytest.FixtureRequest) -> str:
    """How runs reach the cluster."""
    return request.param


@pytest.fixture(scope="module")
def bucket(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with a bucket `lake`; what the environment says to reach it."""
    home = tmp_path_factory.mktemp(f"moto-{kind}")
    with s3_server("moto", home, key=KEY, secret=SECRET, region=REGION) as told:
        yield told


@pytest.fixture(scope="module")
def world(
    kind: str,
    bucket: dict[str, str],
    prepared_home: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """A lake whose day has landed and is in all tables, computed by the cluster."""
    folder = tmp_path_factory.mktemp(f"cluster-{kind}")
    with ExitStack() as stack:
        cluster = stack.enter_context(standalone(folder, bucket))
        spark = {"LAKEHOUSE_SPARK": cluster.address, "SPARK_LOCAL_IP": "127.0.0.1"}
        if kind == "sc":
            server = ConnectServer(cluster=cluster, conf=deployed_conf(bucket))
            spark = stack.enter_context(server.running()).environment
        settings = {
            "LAKEHOUSE_ROOT": f"s3://{BUCKET}/{ROOT}",
            **bucket,
            **spark,
        }
        world = ClusterWorld(
            link_year(prepared_home, folder / "home"), dagster_dev=False, **settings
        )
        # A driver that starts on a busy machine may take longer than the doctor waits.
        examined = world.ask("doctor", *(("--no-spark",) if kind == "spark" else ()))
        wrong = [each for each in examined["checks"] if each["state"] in ("failed", "warning")]
        assert wrong == []
        begin_replay(s3_client(bucket))
        world.ask("replay", "--hours", "12")
        world.ask("materialize", "bronze/flight_events")
        world.ask(*REPLAY)
        world.ask(*MATERIALIZE)
        yield world
