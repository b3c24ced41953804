"""1,000 commits of two Spark drivers and deltalake to one table, with faults: none is lost, none is there twice.

Each driver merges now and then, one compacts, both are killed in a commit, and the requests of both fail in every way. Spark
takes so long to prepare a commit that two drivers seldom meet. So two bare log stores then race on the same storage, first ours,
then the one that Delta comes with: the same faults, no Spark. A table shows what each lost.
"""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse.spark.server import log_store
from lakehouse_tests.committing_driver import DELTALAKE_SHARE
from lakehouse_tests.conftest import wait_until
from lakehouse_tests.long.test_log_store_faults import race
from lakehouse_tests.s3_servers import BUCKET, MINISTACK, s3_server
from lakehouse_tests.silent_server import COMMIT_FAULTS, Fault, faulty_server

HOUSE = Path(__file__).resolve().parents[2]
DRIVERS = ("one", "two")
# Of a driver; deltalake commits `DELTALAKE_SHARE` times as often: 341 per storage, 1,023 in all.
COMMITS = 31
STORAGES = ("moto", "ministack", "disk")
# Of a log store in the race: ours, and Delta's own.
RACED = {"moto": 100, "ministack": 100, "disk": 250}
_ON_S3 = (log_store.ON_S3, "io.delta.storage.S3SingleDriverLogStore")
_ON_DISK = (log_store.ON_DISK, "io.delta.storage.HDFSLogStore")
_SHARE_OF_FAULTS = 0.12
_KILLED_AFTER = 15
# The driver that is killed, once: what starts again takes half a minute of a core.
_KILLED = "two"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the commits of all writers: a row of the table."""

    storage: str
    writers: str
    store: str
    acknowledged: int
    lost: int
    doubled: int
    seconds: float

    def __str__(self) -> str:
        what = f"{self.storage:10} {self.writers:27} {self.store:23}"
        counts = f"{self.acknowledged:12} {self.lost:5} {self.doubled:8}"
        return f"{what} {counts} {self.seconds:8.0f}"


class Driver:
    """A process that commits. It is killed while it commits, if it is to be, and started again."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self._command, self._environ = command, environ
        self._random = Random(" ".join(command[-3:]))
        self._log = Path(environ["LAKEHOUSE_HOME"]) / f"{command[3]}.log"
        self._until_kill = self._next_kill()
        self.kills_left = int(command[3] == _KILLED)
        self.faults = Counter[str]()
        self.start()

    def start(self) -> None:
        """Starts the process; it goes on where the one before it ended."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environ, cwd=HOUSE, stdout=log, stderr=log
            )

    def fault_of(self, method: str, path: str) -> Fault | None:
        """The fault of a request, drawn at random; only commits have any."""
        if method != "PUT" or "_delta_log" not in path or ".json" not in path:
            return None
        self._until_kill -= 1
        if self.kills_left and not self._until_kill:
            self.kill()
            return self._random.choice((Fault(status=500, reaches=True), Fault(status=500)))
        if self._random.random() > _SHARE_OF_FAULTS:
            return None
        fault = self._random.choice(COMMIT_FAULTS)
        self.faults[f"{fault.status}{' stored' if fault.reaches else ''}"] += 1
        return fault

    def kill(self) -> None:
        """SIGKILL: nothing of the process is left to finish its commit."""
        self.kills_left -= 1
        self._until_kill = self._next_kill()
        self.faults["kill"] += 1
        # The JVM is a child of the process, and would end with it only after a while.
        for child in psutil.Process(self.process.pid).children(recursive=True):
            child.kill()
        self.process.kill()

    def _next_kill(self) -> int:
        return self._random.randint(12, 24)


@contextmanager
def storage_at(name: str, home: Path) -> Iterator[tuple[str, Callable[[list[str]], Driver]]]:
    """The table's address, and how a driver there is started."""
    environ = {**os.environ, "LAKEHOUSE_HOME": str(home), "LAKEHOUSE_SPARK": "local[1]"}
    environ |= {"LAKEHOUSE_SPARK_MEMORY": "700m", "PYTHONPATH": str(HOUSE)}
    with ExitStack() as held:
        if name == "disk":
            environ["LAKEHOUSE_ROOT"] = str(home / "lake")
            yield str(home / "lake/silver/t"), lambda command: Driver(command, environ)
            return
        there = held.enter_context(s3_server(name, home))
        environ |= {**there, "AWS_EC2_METADATA_DISABLED": "true"}
        environ["LAKEHOUSE_ROOT"] = f"s3://{BUCKET}/lake"
        in_turn = threading.Lock()

        def start(command: list[str]) -> Driver:
            found: list[Driver] = []

            def fault_of(method: str, path: str) -> Fault | None:
                return found[0].fault_of(method, path) if found else None

            faulty = faulty_server(there["AWS_ENDPOINT_URL"], fault_of, in_turn=in_turn)
            address = held.enter_context(faulty)
            found.append(Driver(command, {**environ, "AWS_ENDPOINT_URL": address}))
            return found[0]

        with pytest.MonkeyPatch.context() as patch:
            for variable, value in {**there, "AWS_ALLOW_HTTP": "true"}.items():
                patch.setenv(variable, value)
            yield f"s3a://{BUCKET}/lake/silver/t", start


def committed(name: str, home: Path, count: int) -> tuple[Outcome, str]:
    """What became of the commits of two drivers and deltalake, and a sentence about what happened."""
    home.mkdir()
    began = time.monotonic()
    writers = (*DRIVERS, "deltalake")
    with storage_at(name, home) as (address, start):
        seen = address.replace("s3a://", "s3://")
        write_deltalake(seen, pa.table({"writer": ["none"], "number": pa.array([0], pa.int64())}))
        module = [sys.executable, "-m", "lakehouse_tests.committing_driver"]
        drivers = {writer: start([*module, writer, str(count), address]) for writer in writers}
        run_all(drivers, home, is_on_disk=name == "disk")
        table = DeltaTable(seen)
        rows = table.to_pyarrow_table().to_pylist()
        operations = Counter(entry["operation"] for entry in table.history())
    found = Counter((row["writer"], row["number"]) for row in rows)
    del found["none", 0]
    counts = {**dict.fromkeys(DRIVERS, count), "deltalake": count * DELTALAKE_SHARE}
    wanted = {(writer, number) for writer in writers for number in range(counts[writer])}
    assert not found.keys() - wanted
    faults = sum((driver.faults for driver in drivers.values()), Counter[str]())
    outcome = Outcome(
        storage=name,
        writers="2 drivers and deltalake",
        store=_class_name(log_store.ON_DISK if name == "disk" else log_store.ON_S3),
        acknowledged=sum(len((home / each).read_text().splitlines()) for each in writers),
        lost=len(wanted - found.keys()),
        doubled=sum(times > 1 for times in found.values()),
        seconds=time.monotonic() - began,
    )
    return outcome, f"{table.version()} versions {dict(operations)}, faults {dict(faults)}"


def raced(name: str, home: Path, store: str) -> Outcome:
    """What became of the commits of two bare log stores that write as fast as they can."""
    place = home / "race"
    began = time.monotonic()
    with ExitStack() as held:
        if name == "disk":
            (place / "_delta_log").mkdir(parents=True)
            writers, found = race(str(place), home, RACED[name], store, None)
        else:
            place.mkdir(parents=True)
            there = held.enter_context(s3_server(name, place))["AWS_ENDPOINT_URL"]
            writers, found = race(f"s3a://{BUCKET}/race", home, RACED[name], store, there)
    acknowledged = {row: at for writer in writers for row, at in writer.acknowledged.items()}
    return Outcome(
        storage=name,
        writers="2 bare log stores, racing",
        store=_class_name(store),
        acknowledged=len(acknowledged),
        lost=sum(version not in found.get(row, ()) for row, version in acknowledged.items()),
        doubled=sum(len(versions) > 1 for versions in found.values()),
        seconds=time.monotonic() - began,
    )


def _class_name(store: str) -> str:
    return store.rpartition(".")[2]


def run_all(drivers: dict[str, Driver], home: Path, *, is_on_disk: bool) -> None:
    """Waits for all drivers, and starts those again that were killed. On S3, a request kills."""

    def is_done() -> bool:
        for writer, driver in drivers.items():
            progress = home / writer
            done = len(progress.read_text().splitlines()) if progress.exists() else 0
            if is_on_disk and driver.kills_left and done >= _KILLED_AFTER:
                driver.kill()
            code = driver.process.poll()
            assert code in (None, 0, -9), (home / f"{writer}.log").read_text()[-3_000:]
            if code == -9:
                driver.start()
        return all(driver.process.poll() == 0 for driver in drivers.values())

    try:
        wait_until("all drivers have committed", is_done, seconds=3_600)
    finally:
        for driver in drivers.values():
            driver.process.kill()


@pytest.mark.parametrize("name", STORAGES)
def test_no_commit_is_lost_and_none_is_there_twice(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "ministack" and not MINISTACK.is_dir():
        pytest.skip("make bench installs MiniStack")
    drivers, sentence = committed(name, tmp_path / "drivers", COMMITS)
    stores = _ON_DISK if name == "disk" else _ON_S3
    ours, of_delta = (raced(name, tmp_path / _class_name(store), store) for store in stores)
    with capsys.disabled():
        print(f"\n{name}: {sentence}")
        print(f"{'storage':10} {'writers':27} {'store':23} acknowledged  lost  doubled  seconds")
        print(drivers, ours, of_delta, sep="\n")
    count = COMMITS * (len(DRIVERS) + DELTALAKE_SHARE)
    assert (drivers.acknowledged, drivers.lost, drivers.doubled) == (count, 0, 0)
    assert (ours.lost, ours.doubled) == (0, 0)
