"""Rules and dashboard against a real Prometheus that scrapes the real endpoint."""

import json
import os
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from lakehouse.base.clock import now_ms
from lakehouse.base.operation import Figure
from lakehouse.base.text import DAY_MS, MINUTE_MS
from lakehouse.store import DiskStore
from lakehouse.vacuum.inventory.run import scan
from lakehouse_tests.conftest import free_port, wait_until
from lakehouse_tests.lake.test_vacuums import past_vacuum, record_vacuum
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_terminal import latest_orders, orders
from lakehouse_tests.support.terminal import Terminal, write_example_tables
from lakehouse_tests.watch.metrics.test_run import FOLDER, rules

# Of alerts that must fire for the lake below; the others must not.
FIRING = {
    "LakehouseFilesMissing",
    "LakehouseInventoryLate",
    "LakehousePaused",
    "LakehouseQuarantine",
    "LakehouseTableUnreadable",
    "LakehouseVacuumLate",
}


def program(name: str) -> str:
    """The path of a program of Debian's package `prometheus`."""
    found = shutil.which(name)
    assert found, (
        f"{name} is missing. Use: apt-get install prometheus; or, without installing it: apt-get "
        "download prometheus && dpkg -x prometheus_*.deb folder, and folder/usr/bin in PATH"
    )
    return found


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A lake with quarantine, a pause, an old vacuum and inventory, and a damaged table."""
    home = tmp_path_factory.mktemp("lake") / "home"
    terminal = Terminal(home, LAKEHOUSE_METRICS_PORT=str(free_port()))
    write_example_tables(terminal)
    store = DiskStore(terminal.root)
    LogBuilder(store, "quarantine/bronze/orders").create().append([("q", 10, 3)])
    days_ago_ms = now_ms() - 3 * DAY_MS
    scan(terminal.lake, now_ms=days_ago_ms)
    figures = (Figure("files", 3, 2),)
    record_vacuum(terminal.lake, latest_orders, past_vacuum(days_ago_ms), figures=figures)
    # Counters count what ends after the endpoint has started.
    soon = past_vacuum(now_ms() + MINUTE_MS)
    record_vacuum(terminal.lake, orders, soon, reason="VACUUM_DUE", usd=0.01)
    LogBuilder(store, "gold/totals").create()
    (terminal.root / "gold/totals/_delta_log" / f"{0:020}.json").write_text("{ damaged")
    terminal.json("pause", "bronze/orders")
    home = terminal.home / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        key = dg.AssetKey(["silver", "orders"])
        failed = dg.AssetCheckEvaluation(asset_key=key, check_name="readable", passed=False)
        instance.report_runless_asset_event(failed)
    return terminal


@contextmanager
def running(command: list[str], log: Path, **environ: str) -> Iterator[None]:
    """A process that ends with the block."""
    environment = {**os.environ, **environ}
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as started,
    ):
        try:
            yield
        finally:
            started.terminate()


@pytest.fixture(scope="module")
def prometheus(lake: Terminal, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has scraped the lake's endpoint."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    [job] = config["scrape_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{lake.environ['LAKEHOUSE_METRICS_PORT']}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(FOLDER / "alerts.yml", folder)
    endpoint = [sys.executable, "-m", "lakehouse", "metrics", "--serve"]
    server = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    address = f"http://127.0.0.1:{port}"
    with (
        running(endpoint, folder / "endpoint.log", **lake.environ),
        running(server, folder / "server.log"),
    ):
        wait_until("the first scrapes", lambda: has_scraped(address), seconds=60)
        yield address


def has_scraped(address: str) -> bool:
    try:
        found = query(address, "count_over_time(lakehouse_metrics_read_timestamp_seconds[1m])")
    except OSError:
        return False
    return bool(found) and float(found[0]["value"][1]) >= 3


def query(address: str, text: str) -> list[dict[str, Any]]:
    """The result of an instant query; fails if Prometheus does not take it."""
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': text})}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        document = json.load(answer)
    assert document["status"] == "success", document
    return document["data"]["result"]


def checked(*arguments: str, text: str = "") -> tuple[int, str]:
    """The exit code and the words of promtool."""
    command = [program("promtool"), "check", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_promtool_accepts_rules_and_configuration() -> None:
    for what, name in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        code, said = checked(what, str(FOLDER / name))
        assert code == 0, said


def test_the_endpoint_s_text_is_as_promtool_wants_it(lake: Terminal) -> None:
    assert checked("metrics", text=lake.run("metrics").stdout) == (0, "")


def test_exactly_the_alerts_of_this_lake_fire(prometheus: str) -> None:
    firing = {rule["alert"] for rule in rules() if query(prometheus, rule["expr"])}
    assert firing == FIRING


def test_every_query_of_the_dashboard_has_an_answer(prometheus: str) -> None:
    dashboard = json.loads((FOLDER / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    filled = [each.replace("$layer", ".*").replace("$table", ".*") for each in queries]
    assert [each for each in filled if not query(prometheus, each)] == []
