"""The landing sensor of a lake on S3 with a queue: what a tick asks, and what the run that it asks for is given."""

from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import dagster as dg
import pytest
from dagster import SensorResult

from lakehouse import Append, Landing, Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.land import waiting_files as queue
from lakehouse.land.asset import landing_sensor
from lakehouse.land.ledger import PlannedBatches, landed_files
from lakehouse.land.plan.batches import Batch
from lakehouse_tests.support.dagster_events import materialized, skip_text, tick_of
from lakehouse_tests.support.example_assets import example_settings

LANDING = Landing(prefix="landing/orders/", format="json", schema="id STRING", queue="landing")
orders = Table(key="bronze/orders", source=LANDING, write=Append())
type_of_tick = Callable[[], SensorResult]


@pytest.fixture
def lake(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A lake whose landing area tells its queue."""
    monkeypatch.setattr(queue, "_WAIT_SECONDS", 0)
    sqs = boto3.client("sqs")
    url = sqs.create_queue(QueueName="landing")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    prefix = {"Key": {"FilterRules": [{"Name": "prefix", "Value": "lake/landing/"}]}}
    told = {
        "QueueConfigurations": [
            {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"], "Filter": prefix}
        ]
    }
    boto3.client("s3").put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration=told
    )
    yield open_lake(example_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/lake"))
    sqs.delete_queue(QueueUrl=url)


@pytest.fixture
def tick(lake: Lake, instance: dg.DagsterInstance) -> type_of_tick:
    """Ticks of one long-lived sensor."""
    sensor = landing_sensor([orders], lake)
    return lambda: tick_of(sensor, instance)


def loaded(lake: Lake, instance: dg.DagsterInstance, number: int, *names: str) -> None:
    """A batch that was planned and arrived."""
    files = tuple(file for file in landed_files(lake.store, LANDING) if file.name in names)
    PlannedBatches(lake.store, orders.key, prefix=LANDING.prefix).plan(
        Batch(number=number, files=files, prefix=LANDING.prefix)
    )
    materialized(instance, orders, landed_batch=number)


def test_a_tick_at_rest_lists_nothing_and_says_what_the_queue_gave(
    lake: Lake, instance: dg.DagsterInstance, tick: type_of_tick
) -> None:
    tick()
    lake.store.put("landing/orders/1.json", b"{}")
    [request] = tick().run_requests or []
    assert request.tags == {"lakehouse/batch.bronze.orders": "1"}
    loaded(lake, instance, 1, "1.json")
    at_rest = "bronze/orders: nothing new has landed; 1 file known;\nqueue landing: 0 messages"
    assert skip_text(tick()) == at_rest
    lake.store.requests.clear()
    assert skip_text(tick()) == at_rest
    assert not lake.store.requests
