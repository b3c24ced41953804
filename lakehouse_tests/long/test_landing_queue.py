"""Files are told of by a queue and loaded by Spark, against two servers of S3's and SQS's protocols that have no code in common."""

import json
from collections.abc import Iterator
from random import Random

import pytest

from lakehouse.base.settings import Settings
from lakehouse.lake.lake import open_lake
from lakehouse.land import waiting_files as queue
from lakehouse.land.waiting_files import SWEEP_SECONDS
from lakehouse.materialize.run import write_table
from lakehouse.spark.session import connect
from lakehouse_tests.land.test_waiting_files import World
from lakehouse_tests.s3_servers import lake_on_s3
from lakehouse_tests.support.example_lake import rows_of


@pytest.fixture(scope="module", params=["moto", "ministack"])
def on_s3(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """Settings of a lake in a bucket of a server that runs as a process of its own."""
    with lake_on_s3(request.param, tmp_path_factory.mktemp(request.param)) as settings:
        yield settings


def test_every_row_is_there_once_whatever_becomes_of_messages_and_processes(
    on_s3: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_WAIT_SECONDS", 0)
    world, spark, random = World(open_lake(on_s3)), connect(on_s3), Random(5)
    landed = list[str]()
    for step in range(16):
        for each in range(random.randrange(4)):
            landed.append(f"d={step}/{random.randrange(1_000):03} +%ü-{each}.json")
            world.land(landed[-1], body=json.dumps({"id": landed[-1]}).encode())
        world.suffer(random, landed)
        if world.tick(anew=True) and random.random() < 0.7:
            write_table(world.lake, spark, world.table)
            facts = world.lake.facts(world.table.key)
            world.arrived = 0 if facts is None else max(facts.snapshot.transactions.values())
    world.tick(seconds=SWEEP_SECONDS, anew=True)
    write_table(world.lake, spark, world.table)
    assert rows_of(spark, world.lake, world.table.key, "id") == [(name,) for name in sorted(landed)]
