"""Two homes at work on one table, on disk and on S3, with kills: no row is lost or doubled, and no run is interrupted.

A home is a process with its own LAKEHOUSE_HOME and its own Spark driver. In each round, both run a random operation on the same table at the
same time, and a reader reads the table with its archive again and again. In half of the rounds, one home is killed, at a random moment or at
one of its writes to storage. In some rounds, one works without a lease, as after a pause that was longer than the lease.
`ROUNDS=300 SEED=2` plays others.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from lakehouse.base.settings import parse_settings
from lakehouse.lake import lease
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.retain.run.archive import read_state
from lakehouse_tests.retain.example_days import KEY
from lakehouse_tests.s3_servers import BUCKET, s3_server
from lakehouse_tests.support.example_lake import land
from lakehouse_tests.working_home import TABLE

HOUSE = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("ROUNDS", "30"))
SEED = int(os.environ.get("SEED", "1"))
OPERATIONS = ("load", "load", "archive", "restore", "compaction", "rebuild", "rebuild", "vacuum")
HOMES = ("one", "two")
ALLOWED = ("done", "killed", "Refused", "Transient")


class Home:
    """The process of a home."""

    def __init__(self, name: str, folder: Path) -> None:
        self._environ = {**os.environ, "LAKEHOUSE_HOME": str(folder / name)}
        self._log = folder / f"{name}.log"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "lakehouse_tests.working_home"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with self._log.open("ab") as log:
            self.process: subprocess.Popen[str] = subprocess.Popen(
                command, env=self._environ, cwd=HOUSE, text=True, stderr=log, **pipes
            )
        self._is_ready = False

    def send(self, command: Mapping[str, Any]) -> None:
        if not self._is_ready:
            assert self.answer() == {}, self._log.read_text()[-3_000:]
            self._is_ready = True
        print(json.dumps(command), file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, Any] | None:
        """Its answer, or `None` if it was killed first."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def kill(self) -> None:
        for child in psutil.Process(self.process.pid).children(recursive=True):
            child.kill()
        self.process.kill()


class Play:
    """A lake and its two homes; what was landed, what was surely loaded, and what happened."""

    def __init__(self, lake: Lake, homes: list[Home], random: Random) -> None:
        self._lake, self._homes, self._random = lake, homes, random
        self.landed, self.loaded = set[int](), set[int]()
        self._days = list[str]()
        self.counts, self.waited = Counter[str](), 0.0
        self._typical_seconds = dict.fromkeys(OPERATIONS, 4.0)

    def land(self) -> None:
        """A file with rows of the newest day, and some late ones."""
        self._days.append((date(2013, 1, 1) + timedelta(days=len(self._days))).isoformat())
        days = [self._days[-1], *self._random.choices(self._days, k=self._random.randint(1, 3))]
        rows = [{"id": len(self.landed) + place, "day": day} for place, day in enumerate(days)]
        land(self._lake, f"{len(self._days)}.json", rows, prefix=TABLE.landing.prefix)
        self.landed |= {row["id"] for row in rows}

    def commands(self) -> Iterator[dict[str, Any]]:
        """What the two homes do in a round."""
        draw = self._random
        dying, unleased = draw.choice(HOMES), draw.choice((*HOMES, ""))
        fate = draw.choice(("lives", "lives", "killed", "dies"))
        for name in HOMES:
            partitions = draw.choice(([], [{"day": draw.choice(self._days)}]))
            yield {
                "operation": draw.choice(OPERATIONS),
                "engine": draw.choice(("auto", "spark", "deltalake")),
                "partitions": partitions,
                "no_lease": name == unleased,
                "dies_at": draw.randint(1, 9) if (fate, name) == ("dies", dying) else 0,
                "when": draw.choice(("before", "after")),
                "killed_at": draw.random() * 1.1 if (fate, name) == ("killed", dying) else None,
            }

    def check(self) -> None:
        """A reader of the table and its archive gets each row once."""
        state = read_state(self._lake, KEY) if self._lake.facts(KEY) else None
        ids = Counter[int]()
        versions = dict[str, int]()
        if state is not None:
            versions[KEY] = state.facts.snapshot.version
            versions[f"archive/{KEY}"] = state.applied.version
        for key, version in versions.items():
            if version >= 0:
                address = self._lake.settings.table_uri(key).replace("s3a://", "s3://")
                rows = DeltaTable(address, version=version).to_pyarrow_table(columns=["id"])
                ids.update(rows["id"].to_pylist())
        assert not [id_ for id_, times in ids.items() if times > 1], "doubled"
        assert not self.loaded - ids.keys(), "lost"
        assert ids.keys() <= self.landed
        self.loaded |= ids.keys()

    def round(self, commands: list[dict[str, Any]]) -> None:
        """Both homes at once, and the reader; a killed home is started again."""
        landed, ended = {*self.landed}, threading.Event()
        for home, command in zip(self._homes, commands, strict=True):
            home.send(command)
        with ThreadPoolExecutor(1) as pool:
            reads = pool.submit(lambda: [self.check() for _ in iter(ended.is_set, True)])
            for home, command in zip(self._homes, commands, strict=True):
                if command["killed_at"] is not None:
                    # Between two looks at other processes; nothing is assumed of the time that passes.
                    time.sleep(command["killed_at"] * self._typical_seconds[command["operation"]])
                    home.kill()
            answers = [home.answer() for home in self._homes]
            ended.set()
        reads.result()
        for home, command, answer in zip(self._homes, commands, answers, strict=True):
            self._account(home, command, answer or {"result": "killed"})
            if command["operation"] == "load" and answer and answer["result"] == "done":
                self.loaded |= landed
        for answer, other in zip(answers, reversed(answers), strict=True):
            if answer is not None:
                self.waited = max(self.waited, answer["waited"])
                most_seconds = lease.LEASE_SECONDS + (other["seconds"] if other else 0.0)
                assert answer["waited"] <= most_seconds, "it waited longer than the lease"
        self.check()

    def _account(self, home: Home, command: dict[str, Any], answer: dict[str, Any]) -> None:
        operation, result = command["operation"], answer["result"]
        print(command, answer, flush=True)
        self.counts[f"{operation} {result}"] += 1
        assert result in ALLOWED, answer
        if result == "killed" or command["killed_at"] is not None:
            self.counts["kills"] += 1
            home.start()
        if result != "killed":
            self._typical_seconds[operation] = answer["seconds"]


@contextmanager
def storage(name: str, folder: Path) -> Iterator[dict[str, str]]:
    """The environment of both homes."""
    environ = {"LAKEHOUSE_SPARK": "local[1]", "LAKEHOUSE_SPARK_MEMORY": "700m"}
    environ |= {"PYTHONPATH": str(HOUSE), "LAKEHOUSE_ROOT": str(folder / "lake")}
    if name == "disk":
        yield environ
        return
    with s3_server(name, folder) as told:
        environ |= {"LAKEHOUSE_ROOT": f"s3://{BUCKET}/lake", "AWS_EC2_METADATA_DISABLED": "true"}
        yield environ | told | {"AWS_ALLOW_HTTP": "true"}


@pytest.mark.parametrize("name", ["disk", "moto"])
def test_two_homes_lose_and_double_no_row_and_interrupt_nobody(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with storage(name, tmp_path) as environ, pytest.MonkeyPatch.context() as patch:
        for variable, value in {**environ, "LAKEHOUSE_HOME": str(tmp_path / "reader")}.items():
            patch.setenv(variable, value)
        lake = open_lake(parse_settings(os.environ, base=tmp_path), tables=[TABLE])
        homes = [Home(each, tmp_path) for each in HOMES]
        play = Play(lake, homes, Random(f"{SEED} {name}"))
        load = {"operation": "load", "no_lease": False, "dies_at": 0, "when": "", "killed_at": None}
        try:
            for number in range(ROUNDS + 2):
                play.land()
                is_between = 0 < number <= ROUNDS
                play.round([*play.commands()] if is_between else [load, load])
        finally:
            for home in homes:
                home.kill()
    with capsys.disabled():
        print(f"\n{name}: {ROUNDS} rounds, {play.waited:.1f} s waited at most, {dict(play.counts)}")
    assert play.loaded == play.landed
