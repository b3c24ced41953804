"""A tick of a sensor has little time for storage that does not answer, and takes its tables in turns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse.base.errors import Transient
from lakehouse.lake.lake import Lake
from lakehouse.store import DiskStore, FairOrder, MountedStore, S3Store, TimeBudget
from lakehouse_tests.silent_server import SilentServer, silent_server


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentServer]:
    """A server that never answers, and an environment that leads boto3 to it."""
    with silent_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield server


def test_a_request_of_a_tick_waits_for_its_timeout_and_retries_once(silent: SilentServer) -> None:
    store = S3Store("bucket", "lake").within(TimeBudget(read_seconds=0.1))
    with pytest.raises(Transient, match=r"cannot list s3://bucket/lake/x/: Read timeout"):
        store.list("x")
    assert silent.connection_count == 2


def test_no_request_is_sent_past_a_tick_s_time_and_each_has_its_own(silent: SilentServer) -> None:
    now = [0.0]
    budget = TimeBudget(most_seconds=32, read_seconds=0.1, clock=lambda: now[0])
    mounts = {"a/b": (S3Store("other", ""), "")}
    store = MountedStore(S3Store("bucket", ""), mounts).within(budget)
    budget.begin()
    now[0] = 32
    for ask in (
        lambda: store.read("x"),
        lambda: store.stat("a/b/x"),
        lambda: [*store.read_many(["a/b/x", "a/b/y"])],
        lambda: [*store.walk("a/b")],
    ):
        with pytest.raises(Transient, match="the 32 s of this tick are used up"):
            ask()
    assert silent.connection_count == 0
    budget.begin()
    with pytest.raises(Transient, match="Read timeout"):
        store.read("x")
    assert silent.connection_count == 2


def test_a_run_is_not_bounded_by_the_ticks_of_its_lake(memory: Lake, tmp_path: Path) -> None:
    disk = DiskStore(tmp_path)
    assert disk.within(TimeBudget()) is disk
    assert memory.within(TimeBudget()).store is memory.store
    assert S3Store("bucket", "").client.meta.config.read_timeout == 60


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [
        ({}, ["abcd", "abcd"]),
        ({"a": 18}, ["a", "bcda", "bcda"]),
        ({"a": 13, "b": 13}, ["ab", "cdab", "cdab"]),
        ({"a": 60, "b": 60}, ["a", "b", "cda", "b", "cda"]),
        (dict.fromkeys("abcd", 60), ["a", "b", "c", "d", "a"]),
        (dict.fromkeys("abcd", 5), ["abcd", "abcd"]),
    ],
)
def test_what_a_tick_leaves_is_first_in_the_next(
    seconds: dict[str, float], ticks: list[str]
) -> None:
    now = [0.0]
    budget, order = TimeBudget(clock=lambda: now[0]), FairOrder("abcd")
    served: list[str] = []
    for _ in ticks:
        budget.begin()
        served.append("")
        for key in order.within(budget):
            served[-1] += key
            now[0] += seconds.get(key, 0.1)
    assert served == ticks


def test_a_tick_with_the_default_times_ends_well_before_dagster_ends_it() -> None:
    budget = TimeBudget()
    assert budget.late_seconds < budget.most_seconds
    assert budget.most_seconds + budget.connect_seconds + budget.read_seconds < 45
