"""The alert sensor and the terminal, against a real HTTP server."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse.core.errors import Transient
from lakehouse.core.journal_records import Pause
from lakehouse.core.metrics.alerts import Alert
from lakehouse.defs.alerts import alert_sensors
from lakehouse.defs.health import health_check
from lakehouse.defs.keys import table_key, vacuum_key
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.metrics import alert_delivery as engine_alerts
from lakehouse.engine.metrics.alert_delivery import all_alerts, send
from lakehouse.engine.store import DiskStore
from lakehouse_tests.cli.conftest import Terminal
from lakehouse_tests.conftest import free_port
from lakehouse_tests.defs.dagster_events import materialized
from lakehouse_tests.defs.example import TABLES, AwayStore, example_lake, orders
from lakehouse_tests.memory_store import MemoryStore

pytestmark = pytest.mark.usefixtures("no_java")
SECRET = "T0/B0/very-secret"


@dataclass
class Webhook:
    """A real HTTP server that takes messages, and answers with `status`."""

    port: int
    status: int = 200
    texts: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{SECRET}"


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            taken.requests.append(f"{self.command} {self.path} {self.headers['Content-Type']}")
            if taken.status == 200:
                assert body.keys() == {"text"}
                taken.texts.append(body["text"])
            self.send_response(taken.status)
            if taken.status == 302:
                self.send_header("Location", f"/elsewhere/{SECRET}")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        taken = Webhook(server.server_address[1])
        serving = threading.Thread(target=server.serve_forever, args=[0.01])
        serving.start()
        yield taken
        server.shutdown()
        serving.join()


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def lake_with(url: str, store: MemoryStore | None = None) -> Lake:
    return example_lake(Path("/lake"), store, LAKEHOUSE_ALERT_URL=url)


def tick(instance: dg.DagsterInstance, lake: Lake, *daily: dg.AssetKey) -> str:
    """One tick; returns what the page says of it."""
    [sensor] = alert_sensors(TABLES, lake, daily=daily)
    definitions = dg.Definitions(
        assets=[dg.AssetSpec(table_key(table)) for table in TABLES],
        asset_checks=[health_check(table, lake) for table in TABLES],
        sensors=[sensor],
    )
    context = dg.build_sensor_context(instance, definitions=definitions)
    skipped = sensor(context)
    assert isinstance(skipped, dg.SkipReason)
    return skipped.skip_message or ""


def checked(instance: dg.DagsterInstance, name: str, *, passed: bool, why: str = "why") -> None:
    """An event of the instance: a check of bronze/orders ran."""
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=table_key(orders), check_name=name, passed=passed, description=why
        )
    )


def test_a_failing_check_reaches_the_webhook_once_and_once_when_it_passes(
    instance: dg.DagsterInstance, webhook: Webhook
) -> None:
    lake = lake_with(webhook.url)
    assert tick(instance, lake) == "0 alerts; no news"
    checked(instance, "quarantine", passed=False, why="3 line(s) were refused")
    checked(instance, "small_files", passed=True)
    assert tick(instance, lake) == "1 alert; a message was delivered"
    assert [tick(instance, lake) for _ in range(2)] == ["1 alert; no news"] * 2
    checked(instance, "quarantine", passed=True)
    assert tick(instance, lake) == "0 alerts; a message was delivered"
    assert tick(instance, lake) == "0 alerts; no news"
    begun, ended = webhook.texts
    assert begun.split("\n")[1].startswith(
        "check quarantine of bronze/orders: 3 line(s) were refused. "
    )
    assert (
        ended
        == "Lake /lake/lake: 0 new alerts, 1 resolved\nresolved: check quarantine of bronze/orders"
    )
    assert webhook.requests == [f"POST /{SECRET} application/json"] * 2
    assert [file.name for file in lake.store.list("_lakehouse/alerts")] == []


def test_low_health_and_a_late_vacuum_are_reported_unless_a_person_paused_it(
    instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_with(webhook.url)
    materialized(instance, orders, health_score=41.5)
    instance.report_runless_asset_event(dg.AssetMaterialization(vacuum_key(orders)))
    later_ms = now_ms() + 51 * 3_600_000
    monkeypatch.setattr("lakehouse.defs.alerts.now_ms", lambda: later_ms)
    Journal(lake.store).pause(Pause(table=orders.key, since_ms=0))
    assert tick(instance, lake, vacuum_key(orders)) == "1 alert; a message was delivered"
    Journal(lake.store).resume(orders.key)
    assert tick(instance, lake, vacuum_key(orders)) == "2 alerts; a message was delivered"
    assert [text.split("\n")[1].split(":")[0] for text in webhook.texts] == [
        "health of bronze/orders",
        "vacuum/bronze/orders is late",
    ]


def test_a_first_inventory_or_vacuum_that_never_comes_is_late(
    instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was reported before the first one. A table that is not there waits for nothing."""
    lake, inventory = lake_with(webhook.url), dg.AssetKey(["inventory", "lake"])
    daily = [vacuum_key(table) for table in TABLES]
    assert tick(instance, lake, inventory, *daily) == "0 alerts; no news"
    materialized(instance, orders, health_score=90)
    assert tick(instance, lake, inventory, *daily) == "0 alerts; no news"
    later_ms = now_ms() + 51 * 3_600_000
    monkeypatch.setattr("lakehouse.defs.alerts.now_ms", lambda: later_ms)
    materialized(instance, orders, health_score=90)
    assert tick(instance, lake, *daily) == "1 alert; a message was delivered"
    assert "\nvacuum/bronze/orders is late: it never succeeded" in webhook.texts[0]
    assert tick(instance, lake, inventory, *daily) == "2 alerts; a message was delivered"
    assert "\ninventory/lake is late: it never succeeded" in webhook.texts[1]


@pytest.mark.parametrize(
    ("status", "problem"),
    [(500, "HTTP status 500"), (404, "HTTP status 404"), (302, "HTTP status 302")],
)
def test_a_message_that_was_not_taken_is_sent_again(
    instance: dg.DagsterInstance,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    problem: str,
) -> None:
    lake = lake_with(webhook.url)
    checked(instance, "readable", passed=False)
    webhook.status = status
    said = tick(instance, lake)
    assert said == f"1 alert; not delivered ({problem}), a later tick tries again"
    assert [alert.is_sent for alert in all_alerts(lake.store)] == [False]
    webhook.status = 200
    assert tick(instance, lake) == "1 alert; no news"
    later_ms = now_ms() + 60_000
    monkeypatch.setattr("lakehouse.defs.alerts.now_ms", lambda: later_ms)
    assert tick(instance, lake) == "1 alert; a message was delivered"
    assert len(webhook.texts) == 1


def test_a_journal_that_cannot_be_written_after_a_message_repeats_it_only_after_the_pause(
    instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was repeated on every tick, without end."""
    lake = lake_with(webhook.url)
    checked(instance, "readable", passed=False)
    write_alerts = engine_alerts.write_alerts

    def failing_at_the_end(store: Any, name: str, alerts: Any) -> None:
        if any(alert.is_sent for alert in alerts):
            raise Transient("store: no space left")
        write_alerts(store, name, alerts)

    monkeypatch.setattr("lakehouse.defs.alerts.write_alerts", failing_at_the_end)
    assert "cannot be read or written now" in tick(instance, lake)
    assert [tick(instance, lake) for _ in range(3)] == ["1 alert; no news"] * 3
    assert len(webhook.texts) == 1


def test_a_webhook_that_is_dead_or_never_answers_holds_up_nothing_and_is_named_nowhere(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine_alerts, "_SECONDS", 0.2)
    checked(instance, "readable", passed=False)
    with silent_port() as port:
        for url, problem in (
            (f"http://127.0.0.1:{free_port()}/{SECRET}", "ConnectionRefusedError"),
            (f"http://127.0.0.1:{port}/{SECRET}", "no answer within 0.2 s|TimeoutError"),
            (f"http://no.such.host.invalid/{SECRET}", "gaierror|no answer within 0.2 s"),
            (f"http://127.0.0.1:{port}/{SECRET}\x7f", "InvalidURL"),
        ):
            lake = lake_with(url)
            said = tick(instance, lake)
            assert any(each in said for each in problem.split("|")), said
            stored = [lake.store.read(each.name) for each in lake.store.list("_lakehouse/alerts")]
            shown = capfd.readouterr()
            for text in (said, shown.out, shown.err, repr(lake.settings), *map(repr, stored)):
                assert "very-secret" not in text


def test_a_journal_that_cannot_be_read_sends_nothing(
    instance: dg.DagsterInstance, webhook: Webhook
) -> None:
    checked(instance, "readable", passed=False)
    assert "cannot be read or written now" in tick(instance, lake_with(webhook.url, AwayStore()))
    assert webhook.texts == []


def test_without_a_webhook_there_is_no_sensor() -> None:
    assert alert_sensors(TABLES, lake_with("")) == []


def test_the_terminal_lists_alerts_and_sends_a_test(tmp_path: Path, webhook: Webhook) -> None:
    terminal = Terminal(tmp_path / "home")
    assert "Use LAKEHOUSE_ALERT_URL" in terminal.refused("alerts")
    assert "Use LAKEHOUSE_ALERT_URL" in terminal.refused("alerts", "test")
    url = {"LAKEHOUSE_ALERT_URL": webhook.url}
    assert terminal.run("alerts", **url).stdout == "no alert is firing\n"
    assert terminal.run("alerts", "test", **url).stdout == "delivered\n"
    assert webhook.texts == [f"Lake {terminal.root}: this is a test. Alerts arrive here."]
    webhook.status = 500
    failed = terminal.run("alerts", "test", **url)
    assert (failed.exit_code, "HTTP status 500" in failed.stderr) == (75, True)
    assert "very-secret" not in failed.stderr
    firing = Alert(subject="health of gold/t", sentence="it is low", since_ms=0, is_sent=True)
    engine_alerts.write_alerts(DiskStore(terminal.root), "alert_sensor", [firing])
    listed = terminal.run("alerts")
    assert "1970-01-01 00:00 UTC" in listed.stdout and "health of gold/t" in listed.stdout
    assert "nothing updates this list" in listed.stderr


def test_a_message_is_sent_whole(webhook: Webhook) -> None:
    assert send(webhook.url, "ä\n“x” & more") == ""
    assert webhook.texts == ["ä\n“x” & more"]
