"""Dagster's records in a real Postgres: what is deleted of them, and what the morning page reads."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from lakehouse.base.installation import ROOT
from lakehouse.base.text import DAY_MS
from lakehouse_tests.assets.test_retention import compacted, newest, now_ms, often, rare, upkeep
from lakehouse_tests.conftest import free_port, wait_until

pytest.importorskip("dagster_postgres")
psycopg2 = pytest.importorskip("psycopg2")
_DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
_PROGRAMS = Path(shutil.which("initdb") or [*_DEBIAN, Path("absent")][-1] / "initdb").parent


@pytest.fixture(scope="module")
def address() -> Iterator[dict[str, str]]:
    """The variables of deploy/dagster.yaml for a Postgres that ends with these tests."""
    if not (_PROGRAMS / "initdb").exists():
        pytest.skip("needs Postgres (Debian, Ubuntu: apt install postgresql)")
    user = "nobody" if os.getuid() == 0 else None  # Postgres refuses to run as root
    folder, port = Path(tempfile.mkdtemp(prefix="lakehouse-postgres-")), str(free_port())
    if user:
        shutil.chown(folder, user)
    data = folder / "data"
    options = ["-U", "dagster", "--auth=trust", "-E", "UTF8", "--no-sync"]
    made = [_PROGRAMS / "initdb", "-D", data, *options]
    subprocess.run(made, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
    listens = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}"]
    command = [_PROGRAMS / "postgres", "-D", data, "-p", port, *listens]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log)
    try:
        wait_until("Postgres", lambda: answers(port))
        yield {
            "POSTGRES_HOST": "127.0.0.1",
            "POSTGRES_PORT": port,
            "POSTGRES_DB": "postgres",
            "POSTGRES_USER": "dagster",
            "POSTGRES_PASSWORD": "none",
        }
    finally:
        server.terminate()
        server.wait(timeout=30)
        shutil.rmtree(folder)


def answers(port: str) -> bool:
    try:
        psycopg2.connect(host="127.0.0.1", port=port, user="dagster", dbname="postgres").close()
    except psycopg2.OperationalError:
        return False
    return True


@pytest.fixture
def instance(
    address: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dg.DagsterInstance]:
    """An instance by deploy/dagster.yaml, with the output of runs on disk."""
    for name, value in address.items():
        monkeypatch.setenv(name, value)
    config = yaml.safe_load((ROOT / "deploy" / "dagster.yaml").read_text())
    del config["compute_logs"]
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(config))
    with dg.DagsterInstance.from_config(str(tmp_path)) as opened:
        yield opened


def test_retention_in_postgres_keeps_the_newest_of_each_asset(instance: dg.DagsterInstance) -> None:
    for asset in (rare, compacted, often, often, often, often):
        assert dg.materialize([asset], instance=instance).success
    for number in range(5):
        tags = {"number": str(number)}
        instance.report_runless_asset_event(dg.AssetMaterialization("ranking", tags=tags))
    runs = [run.run_id for run in reversed(instance.get_runs())]
    before, later = newest(instance), now_ms() + 8 * DAY_MS
    assert upkeep(instance, now_ms=later) == runs[2:5]
    assert [run.run_id for run in reversed(instance.get_runs())] == [*runs[:2], runs[5]]
    assert newest(instance) == before
    left = instance.fetch_materializations(dg.AssetKey("ranking"), limit=10).records
    assert [each.asset_materialization.tags["number"] for each in left] == ["4"]  # type: ignore[union-attr]
    assert upkeep(instance, now_ms=later) == []
