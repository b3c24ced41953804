"""What the page is told of a table: stable keys, whole numbers, and no secret."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse.assets.dagster_records import NewestFacts
from lakehouse.assets.metadata import (
    compaction_metadata,
    declared_metadata,
    sensed_state,
    table_metadata,
)
from lakehouse.compact.assess import assess, health_of
from lakehouse.compact.plan.decision import TableState, state_of
from lakehouse.compact.plan.estimate import usd_per_opening
from lakehouse.compact.plan.history import CompactionOutcome, Comparison, Entry
from lakehouse.declare.policies import Compaction, policy_for
from lakehouse.delta.commits import LoggedCompaction, Prediction
from lakehouse.delta.log import TableFacts
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_assets import example_lake, orders
from lakehouse_tests.support.example_snapshots import plan_of

LAKE = example_lake(Path("/lake"))
NUMBERS = {
    "lakehouse/version": 3,
    "lakehouse/file_count": 3,
    "lakehouse/small_file_count": 2,
    "lakehouse/mergeable_file_count": 2,
    "lakehouse/size_bytes": 200_000_300,
    "lakehouse/average_file_bytes": 66_666_766,
    "lakehouse/tombstone_count": 0,
    "lakehouse/tombstone_bytes": 0,
    "lakehouse/log_commits": 4,
    "lakehouse/landed_batch": 2,
    "dagster/row_count": 13,
}


@pytest.fixture
def facts() -> TableFacts:
    builder = LogBuilder(key="bronze/orders").create(columns={"id": "string", "amount": "long"})
    builder.append([("a", 100, 1)])
    builder.append([("b", 200, 2)], transaction=("lakehouse/ingest/bronze/orders", 2))
    return builder.append([("c", 200_000_000, 10)]).facts()


def sensed(metadata: dict[str, Any]) -> TableState:
    facts = NewestFacts(
        storage_id=1,
        values={"lakehouse/state": json.loads(json.dumps(metadata["lakehouse/state"].value))},
    )
    return sensed_state("bronze/orders", facts)


def test_the_numbers_stand_under_their_keys(facts: TableFacts) -> None:
    metadata = table_metadata(orders, assess(LAKE, orders, facts))
    assert {name: metadata[name] for name in NUMBERS} == NUMBERS
    assert all(isinstance(metadata[name], int) for name in NUMBERS)
    assert isinstance(metadata["lakehouse/health_score"], float)
    dg.AssetMaterialization("t", metadata=metadata)  # the page can show all of it


def test_the_sensor_reads_back_what_the_log_told(facts: TableFacts) -> None:
    metadata = table_metadata(orders, assess(LAKE, orders, facts))
    health = health_of(LAKE, orders, facts)
    told = replace(
        state_of(facts.snapshot, health.plan),
        health_score=health.score,
        usd_per_opening=usd_per_opening(orders.prices, on_s3=False),
    )
    assert sensed(metadata) == told
    assert None not in (
        told.oldest_small_ms,
        told.estimate_usd,
        told.deleted_rows_share,
        told.health_score,
    )


def test_the_sensor_reads_back_what_is_mergeable_once_it_is_cold(facts: TableFacts) -> None:
    warm = replace(orders, compaction=Compaction(min_small_files=2, cold_hours=1e6))
    metadata = table_metadata(warm, assess(LAKE, warm, facts))
    state = sensed(metadata)
    cold_from_ms = facts.snapshot.files[0].modified_ms + int(1e6) * 3_600_000
    unbound = state_of(facts.snapshot, health_of(LAKE, orders, facts).plan, cold_from_ms)
    assert unbound.mergeable_file_count == 2
    assert replace(state, health_score=None, usd_per_opening=None) == unbound


def test_dagster_gets_what_it_has_a_page_for(facts: TableFacts) -> None:
    described = replace(orders, column_descriptions={"amount": "cents"})
    metadata = table_metadata(described, assess(LAKE, described, facts))
    columns = metadata["dagster/column_schema"].columns
    found = [(column.name, column.type, column.description) for column in columns]
    assert found == [("id", "string", None), ("amount", "bigint", "cents")]
    assert metadata["dagster/uri"] == facts.snapshot.uri


def test_a_compaction_shows_predicted_beside_actual(facts: TableFacts) -> None:
    plan = plan_of(facts.snapshot, policy_for(orders.layer, orders.compaction))
    counts = {"files_removed": 2, "files_added": 1, "bytes_removed": 300}
    compared = Comparison(by="content", row_count=3)
    predicted = Prediction(
        reason="", sentence="", bytes_added=300, seconds=plan.predicted["seconds"], **counts
    )
    logged = LoggedCompaction(
        version=4, committed_ms=0, bytes_added=250, predicted=predicted, **counts
    )
    entry = Entry(compaction=logged, usd=None)
    outcome = CompactionOutcome(plan=plan, entry=entry, compared=compared, facts=facts)
    metadata = compaction_metadata(outcome)
    assert next(iter(metadata)) == "lakehouse/account"
    # What Dagster plots; seconds and USD are not known yet.
    assert {name for name in metadata if "predicted" in name or "actual" in name} == {
        "lakehouse/actual_files_removed"
    }
    assert metadata["lakehouse/outcome"] == plan.sentence
    document = metadata["lakehouse/compaction"].value
    for name in counts:
        assert document["figures"][name]["predicted"] == document["figures"][name]["actual"]
    assert (document["version"], document["version_after"]) == (3, 4)
    rows = [tuple(record.data.values()) for record in metadata["lakehouse/account"].records]
    assert rows[0] == ("files removed", "2", "2", "0.0%")
    assert rows[3:5] == [("bytes added", "300 B", "250 B", "20.0%"), ("seconds", "0.53", "-", "-")]
    assert document["figures"]["seconds"]["predicted"] == 0.532
    [basis, duration] = [record.data["note"] for record in metadata["lakehouse/notes"].records]
    assert basis.startswith("predicted from defaults") and duration.startswith("OPTIMIZE")


def test_no_metadata_holds_a_secret(facts: TableFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": "tok-8391",
        "AWS_ACCESS_KEY_ID": "AKIA-7713",
        "AWS_SECRET_ACCESS_KEY": "aws-5527",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    shown: dict[str, Any] = {
        **declared_metadata(orders, LAKE),
        **table_metadata(orders, assess(LAKE, orders, facts)),
    }
    text = repr({name: getattr(value, "value", value) for name, value in shown.items()})
    assert [name for name, value in secrets.items() if value in text or name in text] == []
