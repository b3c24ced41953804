"""Landed files found by the messages of a queue, on a server of S3's and SQS's protocols that sends its own notifications."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import boto3
import dagster as dg
import pytest

from lakehouse import Append, Landing, Table
from lakehouse.base.errors import Transient
from lakehouse.base.settings import Settings
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.land import waiting_files as sqs
from lakehouse.land.asset import landing_sensor
from lakehouse.land.ledger import PlannedBatches, landed_files
from lakehouse.land.plan.batches import Batch, LandedFile
from lakehouse.land.waiting_files import SWEEP_SECONDS, Discovery
from lakehouse.materialize.run import write_table
from lakehouse.spark.session import connect
from lakehouse.store import S3Store, StoredFile, TimeBudget
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.land.test_notifications import record, records
from lakehouse_tests.support.dagster_events import materialized, skip_text, tick_of
from lakehouse_tests.support.example_lake import rows_of


class World:
    """A lake in a bucket that tells a queue of what lands, and one table of it; `tick` is one look of the sensor."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.sqs = lake, boto3.client("sqs")
        bucket, self.queue = lake.store.bucket, f"queue-of-{lake.store.bucket}"
        self.url = self.sqs.create_queue(QueueName=self.queue)["QueueUrl"]
        rule = {"Name": "prefix", "Value": f"{lake.store.prefix}landing/"}
        told = {
            "QueueArn": self.attributes("QueueArn")[0],
            "Events": ["s3:ObjectCreated:*"],
            "Filter": {"Key": {"FilterRules": [rule]}},
        }
        boto3.client("s3").put_bucket_notification_configuration(
            Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [told]}
        )
        of_files = {"prefix": "landing/orders/", "format": "json", "schema": "id STRING"}
        self.source = Landing(**of_files, queue=self.queue)
        self.table = Table(key="bronze/orders", source=self.source, write=Append())
        self.now, self.arrived = 0.0, 0
        self.begin_anew()

    def begin_anew(self, *more: Table) -> None:
        """Another process."""
        self.discovery = Discovery(self.lake, [self.table, *more], TimeBudget())

    def land(self, *names: str, body: bytes = b"{}") -> None:
        for name in names:
            self.lake.store.put(f"landing/orders/{name}", body)

    def say(self, body: str) -> None:
        self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def say_landed(self, key: str) -> None:
        self.say(records(record(key, bucket=self.lake.store.bucket)))

    def lose_messages(self) -> None:
        while found := self.sqs.receive_message(QueueUrl=self.url).get("Messages"):
            for message in found:
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def suffer(self, random: Random, landed: Sequence[str]) -> None:
        """Messages are lost, told again or false, or the process ends; or nothing happens."""
        match random.randrange(6):
            case 0:
                self.lose_messages()
            case 1:
                name = random.choice([*landed, "never.json"])
                self.say_landed(f"{self.lake.store.prefix}landing/orders/{name}")
            case 2:
                self.begin_anew()
            case _:
                pass

    def left(self) -> int:
        """The messages that are in the queue, hidden ones, too."""
        count = "ApproximateNumberOfMessages"
        return sum(map(int, self.attributes(count, f"{count}NotVisible")))

    def attributes(self, *names: str) -> list[str]:
        """These attributes of the queue."""
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=[*names])
        return [*found["Attributes"].values()]

    def tick(self, *, seconds: float = 30, anew: bool = False) -> list[str]:
        """The names that wait."""
        self.now += seconds
        ledger = PlannedBatches(self.lake.store, self.table.key, prefix=self.source.prefix).ledger()
        newest = ledger.newest
        unfinished = newest if newest is not None and newest.number > self.arrived else None
        self.said = "; ".join(self.discovery.receive())
        found: Sequence[LandedFile] = ()
        if unfinished is None:
            found = self.discovery.waiting_files(self.table, ledger, refresh=anew, now=self.now)
        return sorted(file.name for file in found)

    def plan(self, *names: str) -> None:
        """A batch with these files, as a run plans it."""
        lying = {file.name: file for file in landed_files(self.lake.store, self.source)}
        batches = PlannedBatches(self.lake.store, self.table.key, prefix=self.source.prefix)
        files = tuple(lying[name] for name in names)
        batches.plan(Batch(number=self.arrived + 1, files=files, prefix=self.source.prefix))

    def load(self, *names: str) -> None:
        """A batch with these files that arrived."""
        self.plan(*names)
        self.arrived += 1

    def lists(self) -> int:
        """The LISTs of the store since the last call, without those of the ledger that each `tick` of this test reads anew."""
        count = self.lake.store.requests["ListObjectsV2"]
        self.lake.store.requests.clear()
        return count


LEDGER = 1


@pytest.fixture
def world(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(sqs, "_WAIT_SECONDS", 0)  # nobody sends while a test waits
    return World(open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake")))


@pytest.fixture
def swept(world: World) -> World:
    """After its first look, which lists, and deletes S3's test event."""
    world.tick()
    world.lists()
    return world


def asked_of(discovery: Discovery) -> Counter[str]:
    """The requests to the queues of `discovery` from now on."""
    asked = Counter[str]()
    for queue in discovery._queues.values():
        queue._client.meta.events.register(
            "before-call.sqs", lambda model, **_: asked.update([model.name])
        )
    return asked


def test_a_file_is_found_by_its_message_and_the_prefix_is_not_listed(swept: World) -> None:
    asked = asked_of(swept.discovery)
    swept.land("d=1/a b+%ü.json")
    assert swept.tick() == ["d=1/a b+%ü.json"]
    assert swept.lists() == LEDGER + 1  # the file's own
    assert swept.tick() == ["d=1/a b+%ü.json"]
    assert swept.lists() == LEDGER
    assert swept.said == f"queue {swept.queue}: 0 messages"
    assert asked == {"ReceiveMessage": 2 + 1, "DeleteMessageBatch": 1}


FORGED = (
    "never.json",
    "",
    "_private.json",
    "../../../etc/passwd",
    "%FF",
    "\ud800.json",
    "x" * 1_024,
)
ELSEWHERE = ("some/lake/landing/others/1.json", "elsewhere/landing/orders/1.json", "")


@pytest.mark.parametrize(
    "key", [*(f"some/lake/landing/orders/{name}" for name in FORGED), *ELSEWHERE]
)
def test_a_forged_message_loads_nothing_and_goes(swept: World, key: str) -> None:
    swept.land("1.json")
    swept.lose_messages()
    swept.say_landed(key)
    assert swept.tick() == [] and swept.left() == 0


def test_a_file_gone_or_changed_before_it_is_loaded_is_looked_for_again(swept: World) -> None:
    swept.land("1.json", "2.json")
    assert swept.tick() == ["1.json", "2.json"]
    swept.lake.store.delete(["landing/orders/1.json"])
    assert swept.tick(anew=True) == ["2.json"]


def test_what_no_message_told_is_found_within_the_hour(swept: World) -> None:
    swept.land("1.json")
    swept.lose_messages()
    assert swept.tick() == []
    assert swept.tick(seconds=SWEEP_SECONDS) == ["1.json"]
    assert swept.tick() == ["1.json"]


def test_very_many_messages_end_in_a_listing(swept: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs, "MOST_MESSAGES", 20)
    monkeypatch.setattr("lakehouse.land.waiting_files.MOST_MESSAGES", 20)
    names = [f"{number:02}.json" for number in range(35)]
    swept.land(*names)
    assert swept.tick() == names
    assert swept.lists() == LEDGER + 1
    swept.tick()
    assert swept.left() == 0


def test_a_silent_queue_leads_to_listings(swept: World, monkeypatch: pytest.MonkeyPatch) -> None:
    swept.sqs.delete_queue(QueueUrl=swept.url)
    swept.land("1.json")
    assert swept.tick() == ["1.json"]
    assert "the ReceiveMessage operation" in swept.said
    assert swept.said.endswith("grant sqs:ReceiveMessage; the prefix is listed instead")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:1")
    swept.begin_anew()
    for name in ("2.json", "3.json"):
        swept.land(name)
        assert name in swept.tick()
        assert swept.said.startswith(f"queue {swept.queue}: Could not connect to the endpoint URL")


def test_a_hint_waits_for_a_silent_store(swept: World, monkeypatch: pytest.MonkeyPatch) -> None:
    swept.land("1.json")

    def away(*_: Any) -> list[StoredFile]:
        raise Transient("away")

    with monkeypatch.context() as patch:
        patch.setattr(S3Store, "find", away)
        with pytest.raises(Transient):
            swept.tick()
    assert swept.tick() == ["1.json"]


def test_two_tables_of_one_queue_each_have_their_files(swept: World) -> None:
    twin = Table(key="bronze/twin", source=swept.source, write=Append())
    swept.begin_anew(twin)
    swept.tick()
    ledger = PlannedBatches(swept.lake.store, twin.key, prefix=swept.source.prefix).ledger()
    swept.discovery.waiting_files(twin, ledger, refresh=False, now=swept.now)
    swept.land("1.json")
    swept.tick()
    swept.load("1.json")
    assert swept.tick(anew=True) == []
    [file] = swept.discovery.waiting_files(twin, ledger, refresh=False, now=swept.now)
    assert isinstance(file, LandedFile) and file.name == "1.json"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_every_file_is_in_one_batch_whatever_becomes_of_messages(swept: World, seed: int) -> None:
    random, landed = Random(seed), list[str]()
    for step in range(15):
        swept.land(
            *(
                names := [
                    f"{random.randrange(1_000):03}-{step}-{each}.json"
                    for each in range(random.randrange(4))
                ]
            )
        )
        landed += names
        swept.suffer(random, landed)
        found = swept.tick(anew=random.random() < 0.5)
        if found and random.random() < 0.7:
            swept.plan(*found[: random.randrange(1, 4)])
            if random.random() < 0.5:  # it was killed, and the next run does it again
                swept.tick(anew=True)
            swept.arrived += 1
    if found := swept.tick(seconds=SWEEP_SECONDS, anew=True):
        swept.load(*found)
    assert swept.tick(seconds=SWEEP_SECONDS, anew=True) == []
    batches = PlannedBatches(swept.lake.store, swept.table.key, prefix=swept.source.prefix)
    numbers = range(1, batches.ledger().newest_number + 1)
    taken = [file.name for number in numbers for file in batches.batch(number).files]
    assert sorted(taken) == sorted(landed)


def test_a_tick_of_the_sensor_at_rest_lists_nothing_and_says_what_the_queue_gave(
    world: World, instance: dg.DagsterInstance
) -> None:
    sensor = landing_sensor([world.table], world.lake)
    tick_of(sensor, instance)
    world.land("1.json")
    [request] = tick_of(sensor, instance).run_requests or []
    assert request.tags == {"lakehouse/batch.bronze.orders": "1"}
    world.load("1.json")
    materialized(instance, world.table, landed_batch=1)
    at_rest = (
        f"bronze/orders: nothing new has landed; 1 file known;\nqueue {world.queue}: 0 messages"
    )
    assert skip_text(tick_of(sensor, instance)) == at_rest
    world.lake.store.requests.clear()
    assert skip_text(tick_of(sensor, instance)) == at_rest
    assert not world.lake.store.requests


@pytest.mark.parametrize("on_s3", ["moto", "ministack"], indirect=True)
@pytest.mark.long
def test_every_row_is_there_once_whatever_becomes_of_messages_and_processes(
    on_s3: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqs, "_WAIT_SECONDS", 0)
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
