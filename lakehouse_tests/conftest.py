"""One Spark Connect server for all tests that need it, a lake of its own for each, and what keeps results from depending on the machine.

What only tests with Spark need is imported where they ask for it: tests of plans take seconds.
"""

import fcntl
import gc
import logging
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import hypothesis
import pytest

from lakehouse.base.processes import hold_lock, port_is_free
from lakehouse.base.settings import Settings, parse_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakehouse.lake.lake import Lake
    from lakehouse.store import StoredFile

pytest_plugins = [
    "lakehouse_tests.support.storage",
    "lakehouse_tests.support.dagster_lake",
    "lakehouse_tests.support.terminal",
]

type_of_client = Callable[..., "subprocess.Popen[str]"]

# The same few examples everywhere, and as long as they take; `make bench` draws new ones, and many.
_AT_ANY_PACE = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile("suite", max_examples=25, derandomize=True, **_AT_ANY_PACE)
hypothesis.settings.register_profile("bench", max_examples=1_000, **_AT_ANY_PACE)
hypothesis.settings.load_profile("suite")

# After so long a test of this folder, or with this mark, counts as hung; pyproject.toml says it for all others.
_LONG_SECONDS = {"journeys": 1_800, "long": 7_200}
# The files that take longest, by their measured seconds. What follows: other files that need Spark, or start servers; the rest; and those of
# plans, which take less than a second each.
_LONGEST = (
    "journeys/test_itself.py",
    "cli/test_through_dagster.py",
    "land/test_run.py",
    "materialize/test_run.py",
    "evolve/test_rebuild.py",
    "cdc/test_run.py",
    "land/test_peoples_files.py",
    "land/spark/test_text.py",
    "compact/test_run.py",
    "compact/test_verify.py",
    "spark/server/test_server.py",
)
# The folder that each worker collects first, see `pytest_configure`.
_COLLECTED_FIRST = ("land", "compact", "vacuum", "cli")
# Below those that the kernel gives to outgoing connections. Source: Linux, ip-sysctl, ip_local_port_range (32768 to 60999)
_PORTS = range(15_100, 32_000)
_reserved: list[IO[str]] = []


def free_port() -> int:
    """A TCP port that nobody listens on, and that no other test process is given while this one lives."""
    folder = Path(tempfile.gettempdir(), f"lakehouse-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    for _ in _PORTS:
        port = random.SystemRandom().choice(_PORTS)
        file = (folder / str(port)).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            continue
        _reserved.append(file)  # the lock ends with the process
        if port_is_free(port):
            return port
    raise AssertionError("no port is free")


def wait_until(
    what: str, holds: Callable[[], object], *, seconds: float = 240, every: float = 0.05
) -> None:
    """Returns when `holds()` does; fails with `what` after `seconds`, which are for a hang and not for a slow machine."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not seen within {seconds:.0f} s: {what}"
        # Between two looks at another process; nothing is assumed of the time that passes.
        time.sleep(every)


def own_settings(home: Path, **values: str) -> Settings:
    """Settings of a lake with a home, and so a server, of its own."""
    environ = {
        "LAKEHOUSE_HOME": str(home),
        "LAKEHOUSE_SPARK_PORT": str(free_port()),
        "LAKEHOUSE_SPARK_MEMORY": "1g",
        "LAKEHOUSE_METRICS_PORT": "0",
        **values,
    }
    return parse_settings({"LAKEHOUSE_REPLAY": "off", **environ}, base=home)


@pytest.fixture(scope="session")
def for_all_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test run share, and those of other runs for which the environment names the same."""
    if named := os.environ.get("SHARED_BY_TEST_RUNS"):
        return Path(named)
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def shared_settings(
    for_all_workers: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """Settings of the one server of all workers, in a home of this worker's own: a home holds the locks of its tables."""
    from lakehouse.spark.server.server import folder
    from lakehouse.spark.session import _sessions
    from lakehouse_tests.spark_server import shared_server

    home = tmp_path_factory.mktemp("shared")
    with shared_server(for_all_workers) as its, pytest.MonkeyPatch.context() as patch:
        # The lakes of all tests would fight for the names of their tables (`query/test_catalog.py`).
        patch.setattr("lakehouse.query.run.name_tables", lambda *_: None)
        (home / "server").symlink_to(folder(its))
        yield replace(its, home=home, root=str(home / "lake"))
        if address := {(its.spark, its.spark_port)} & _sessions.keys():
            # A server with open sessions takes half a minute to end.
            _sessions.pop(address.pop())[1].stop()


@pytest.fixture
def spark(shared_settings: Settings) -> "SparkSession":
    """This process's session on the shared server; a new one where the last was lost, as everywhere in the lakehouse."""
    from lakehouse.spark.session import connect

    return connect(shared_settings)


@pytest.fixture(autouse=True)
def the_shared_session_is_active(request: pytest.FixtureRequest) -> None:
    """PySpark keeps the first session of a process as the active one, also when that session's server, of another test, is gone."""
    if "spark" in request.fixturenames:
        from pyspark.sql.connect.session import SparkSession

        session = request.getfixturevalue("spark")
        if isinstance(session, SparkSession):  # some tests have a setting of this name
            SparkSession._active_session.session = session
            # Without this mark, which a test of another driver may have removed, PySpark's functions
            # do not build columns of Connect.
            os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"


@pytest.fixture(scope="session", autouse=True)
def nothing_is_flushed() -> Iterator[None]:
    """No test cuts the power, so neither files nor Dagster's records wait for the disk."""

    def unflushed(connection: Any, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        if "sqlalchemy" in sys.modules:  # not where only plans are tested
            from sqlalchemy import event
            from sqlalchemy.engine import Engine

            event.listen(Engine, "connect", unflushed)
        yield


@pytest.fixture(autouse=True)
def no_token_of_another_test() -> None:
    """A test that opens a session without its server's token fails always, and not only where a test before it left another one's."""
    os.environ.pop("SPARK_CONNECT_AUTHENTICATE_TOKEN", None)


@pytest.fixture
def settings(shared_settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a fresh lake on the shared server."""
    return replace(shared_settings, root=str(tmp_path / "lake"))


@pytest.fixture
def lake(settings: Settings) -> "Lake":
    """A fresh lake on the shared server."""
    from lakehouse.lake.lake import open_lake

    return open_lake(settings)


@pytest.fixture
def log_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often this process has listed, and so read, the log of each table that lies on disk."""
    from lakehouse.store import DiskStore

    reads, real = Counter[str](), DiskStore.list

    def listed(store: DiskStore, prefix: str) -> "list[StoredFile]":
        key, slash, _ = prefix.partition("/_delta_log")
        reads.update([key] if slash else [])
        return real(store, prefix)

    monkeypatch.setattr(DiskStore, "list", listed)
    return reads


@pytest.fixture
def plans_made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often this process has planned the compaction of each table."""
    from lakehouse.compact.plan import compaction as plan

    made, real = Counter[str](), plan._priced

    def priced(now: Any, found: Any) -> Any:
        made[now.snapshot.table] += 1
        return real(now, found)

    monkeypatch.setattr(plan, "_priced", priced)
    return made


@pytest.fixture
def new_client() -> Iterator[type_of_client]:
    """Starts a Python program as a client of its own, with a lake's settings in its environment; ends it with the test."""
    clients: list[subprocess.Popen[str]] = []

    def start(
        program: str, settings: Settings, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        mine = {
            name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")
        }
        clients.append(
            subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env={**mine, **settings.as_environ(), **(environ or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return clients[-1]

    yield start
    for client in clients:
        client.kill()
        client.communicate()


@pytest.fixture(scope="session")
def prepared_home(for_all_workers: Path) -> Path:
    """A home that holds the replay's year, prepared once for all workers, beside what a killed preparation left."""
    from lakehouse.replay.play import data_version, prepare

    with hold_lock(for_all_workers / "year.lock"):
        if not (home := for_all_workers / "year").exists():
            killed = home / "replay" / f".{data_version()}-2"
            killed.mkdir(parents=True)
            (killed / "events.parquet").write_bytes(b"half")
            prepare(home)
    return home


def link_year(prepared: Path, home: Path) -> Path:
    """Puts the prepared year into another home, without a copy."""
    shutil.copytree(
        prepared,
        home,
        copy_function=lambda source, target: Path(target).hardlink_to(source),
        dirs_exist_ok=True,
    )
    return home


def pytest_configure(config: pytest.Config) -> None:
    """Python collects no garbage while pytest collects tests, and workers begin with different folders.

    A fresh clone has to be compiled. If all workers collected in the same order, each would compile
    all of it.
    """
    gc.disable()
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or config.args != config.getini("testpaths"):
        return
    here = Path(__file__).parent
    parts = {*here.glob("test_*.py"), *(file.parent for file in here.glob("*/__init__.py"))}
    parts -= {Path(ignored).resolve() for ignored in config.option.ignore or ()}
    first = _COLLECTED_FIRST[int(worker.removeprefix("gw")) % len(_COLLECTED_FIRST)]
    config.args[:] = map(str, sorted(parts, key=lambda part: (part.name != first, part)))


def pytest_collection_finish() -> None:
    """What exists now stays to the end, so no later collection of garbage has to look at it."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """At its exit PySpark releases the sessions of servers that were stopped by then, and would say so into a stream that is closed."""
    logging.getLogger("pyspark.sql.connect.logging").disabled = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first and the shortest last, so that no worker is left alone with something long. Long ones have more time, too.

    The order is the same in each worker. Whatever asks for the shared server is marked, so that
    `-m "not spark"` needs no Java.
    """
    with_spark = {
        item.path for item in items if "shared_settings" in getattr(item, "fixturenames", ())
    }

    def place(item: pytest.Item) -> tuple[int, int, Path]:
        file = item.path.relative_to(Path(__file__).parent)
        if file.as_posix() in _LONGEST:
            return 0, _LONGEST.index(file.as_posix()), file
        default = 1 if item.path in with_spark else 2
        if "plan" in file.parts:
            return 3, 0, file
        return 1 if "server" in file.parts else default, 0, file

    items.sort(key=place)
    for item in items:
        if "shared_settings" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if "long" in item.path.parts:
            item.add_marker(pytest.mark.long)
        kinds = {*item.path.parts, *(mark.name for mark in item.iter_markers())}
        if seconds := max((_LONG_SECONDS[kind] for kind in kinds & {*_LONG_SECONDS}), default=0):
            item.add_marker(pytest.mark.timeout(seconds))
