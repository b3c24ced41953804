"""`lakehouse metrics`: what Prometheus gets to know about a lake, read back by Prometheus' own parser."""

import socket
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from lakehouse.base.clock import now_ms
from lakehouse.store import DiskStore
from lakehouse.watch.metrics.run import LakeCollector
from lakehouse_tests.lake.test_vacuums import past_vacuum, record_vacuum
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_terminal import latest_orders
from lakehouse_tests.support.terminal import Terminal, type_of_story
from lakehouse_tests.watch.metrics.test_run import LABELS, NAMES

type_of_values = dict[tuple[str, str], float]


def parsed(text: str) -> type_of_values:
    """The values by name and by the labels but `layer`, joined by commas."""
    found = type_of_values()
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            others = [each.labels[name] for name in sorted(each.labels) if name != "layer"]
            others.sort(key=lambda value: value != each.labels.get("table"))
            found[each.name, ",".join(others)] = each.value
    return found


def values(terminal: Terminal) -> type_of_values:
    """What `lakehouse metrics` prints."""
    result = terminal.run("metrics")
    assert result.exit_code == 0, result.stderr
    return parsed(result.stdout)


# Metric of a table -> its name in the document of `lakehouse health`.
OF_HEALTH = {
    **{f"{kind}files": f"{kind}file_count" for kind in ("", "small_", "mergeable_")},
    "health_score": "score",
    "rows": "row_count",
}


def test_metrics_are_those_of_health_and_of_the_sensors_decision(told: Terminal) -> None:
    found = values(told)
    orders, latest, _ = told.json("health")
    for key, health in (("bronze/orders", orders), ("silver/orders", latest)):
        for metric, name in OF_HEALTH.items():
            assert found[f"lakehouse_table_{metric}", key] == health[name]
        assert found["lakehouse_table_bytes", f"{key},live"] == health["size_bytes"]
        assert found["lakehouse_table_bytes", f"{key},tombstoned"] == health["tombstone_bytes"]
    decisions = {key: each["reason"] for key, each in told.compactions().items()}
    shown = {labels for name, labels in found if name == "lakehouse_table_decision"}
    expected = {f"{key},compaction,{decisions[key]}" for key in ("bronze/orders", "silver/orders")}
    assert shown == expected


def test_what_is_unknown_is_absent_and_never_zero(told: Terminal) -> None:
    """The third table was never written, and there was neither a vacuum nor an inventory."""
    found = values(told)
    assert [key for key in found if "gold/totals" in key[1]] == []
    names = {name for name, _ in found}
    assert names.isdisjoint(
        {
            "lakehouse_table_last_vacuum_timestamp_seconds",
            "lakehouse_inventory_snapshot_timestamp_seconds",
            "lakehouse_dagster_records_bytes",
        }
    )
    expected = 1_700_000_180
    assert found["lakehouse_table_last_compaction_timestamp_seconds", "silver/orders"] == expected
    assert ("lakehouse_table_last_compaction_timestamp_seconds", "bronze/orders") not in found


def test_a_table_that_cannot_be_read_is_named_and_the_others_are_there(told: Terminal) -> None:
    log = told.root / "bronze/orders/_delta_log"
    (log / f"{1:020}.json").write_text("{ damaged")
    found = values(told)
    assert found["lakehouse_table_readable", "bronze/orders"] == 0
    assert [
        key for key in found if key[1].startswith("bronze/orders") and "readable" not in key[0]
    ] == []
    assert found["lakehouse_table_readable", "silver/orders"] == 1
    assert found["lakehouse_table_files", "silver/orders"] == 1


def test_quarantine_pause_vacuum_inventory_are_shown(told: Terminal, story: type_of_story) -> None:
    story("quarantine/bronze/orders").create().append([("q", 10, 3)])
    told.json("pause", "silver/orders")
    vacuumed_ms = now_ms() - 5_000
    record_vacuum(told.lake, latest_orders, past_vacuum(vacuumed_ms))
    created_ms = told.scan().created_ms
    found = values(told)
    assert found["lakehouse_quarantined_rows", "bronze/orders"] == 3
    assert ("lakehouse_quarantined_rows", "silver/orders") not in found  # it is never landed
    paused = {
        key: found["lakehouse_table_paused", key] for key in ("bronze/orders", "silver/orders")
    }
    assert paused == {"bronze/orders": 0, "silver/orders": 1}
    expected = vacuumed_ms / 1000
    assert found["lakehouse_table_last_vacuum_timestamp_seconds", "silver/orders"] == expected
    assert found["lakehouse_inventory_snapshot_timestamp_seconds", ""] == created_ms / 1_000
    (told.root / "quarantine/bronze/orders/_delta_log" / f"{1:020}.json").write_text("{ damaged")
    found = values(told)
    assert found["lakehouse_table_readable", "quarantine/bronze/orders"] == 0
    assert ("lakehouse_quarantined_rows", "bronze/orders") not in found
    assert found["lakehouse_table_readable", "bronze/orders"] == 1


def test_an_inventory_that_cannot_be_read_is_named(told: Terminal) -> None:
    LogBuilder(DiskStore(told.root), "inventory/local").create()
    (told.root / "inventory/local/_delta_log" / f"{0:020}.json").write_text("{ damaged")
    found = values(told)
    assert found["lakehouse_source_readable", "inventory"] == 0
    assert found["lakehouse_source_readable", "operations"] == 1


def test_a_single_reading_has_no_counters_because_they_begin_with_the_process(
    told: Terminal,
) -> None:
    record_vacuum(told.lake, latest_orders, past_vacuum(now_ms()))
    assert not any(name.endswith("_total") for name, _ in values(told))


def test_no_label_names_a_run_a_file_or_a_partition_and_every_name_has_one_prefix() -> None:
    allowed = {"table", "layer", "part", "operation", "reason", "outcome", "kind"}
    assert allowed | {"check", "source", "version"} >= LABELS
    assert {name for name in NAMES if not name.startswith("lakehouse_")} == set()


def test_a_table_by_its_address_has_metrics_too(terminal: Terminal, warehouse: Path) -> None:
    found = parsed(terminal.run("metrics", str(warehouse / "events")).stdout)
    assert [value for (name, _), value in found.items() if name == "lakehouse_table_files"] == [12]


def test_scrapes_share_a_reading_and_a_failure_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    readings = list[int]()

    def read() -> list[GaugeMetricFamily]:
        readings.append(1)
        if len(readings) > 1:
            raise RuntimeError("planted")
        return [GaugeMetricFamily("files", "Live files.", value=5)]

    collector = LakeCollector(read, max_age_seconds=3600)
    for reading in (1, 1, 1, 2, 3):
        if reading > 1:
            collector._due = 0.0  # the last reading is too old
        [family] = collector.collect()
        assert [each.value for each in family.samples] == [5]
        assert len(readings) == reading
    assert {each.getMessage() for each in caplog.records} == {"the metrics cannot be read"}


def test_the_endpoint_needs_a_free_port(told: Terminal) -> None:
    """`lakehouse up` starts it (`cli/test_foreground.py`)."""
    said = "LAKEHOUSE_METRICS_PORT is 0"
    assert said in told.refused("metrics", "--serve", LAKEHOUSE_METRICS_PORT="0")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        taken = told.refused("metrics", "--serve", LAKEHOUSE_METRICS_PORT=port)
    assert f"port {port} cannot be opened" in taken
