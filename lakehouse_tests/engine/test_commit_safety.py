"""Where commits are not conditional, one driver writes to a lake: whoever comes second is refused, and reads on."""

import json
import shutil
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from os import getpid
from pathlib import Path
from typing import Any

import pytest

from lakehouse.cli.commands.up import check_owner
from lakehouse.core.errors import Broken, Refused
from lakehouse.engine import commit_safety, table_lock
from lakehouse.engine.commit_safety import claim, commits_sentence, owner_of, take_over
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.store import DiskStore, S3Store
from lakehouse.runtime import foreground, server
from lakehouse.runtime.foreground import run_all
from lakehouse.runtime.log_store import (
    ON_S3,
    known_conditions,
    log_store_conf,
    remember_conditions,
)
from lakehouse.runtime.processes import identify
from lakehouse_tests.conftest import free_port, own_settings

type_of_home = Callable[..., Lake]
RECORD = "_lakehouse/owner.json"


class Counted(DiskStore):
    """Counts what is asked of it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[str] = []

    def read(self, name: str) -> bytes:
        self.asked.append(f"read {name}")
        return super().read(name)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.asked.append(f"put {name}")
        return super().put_if_absent(name, data)


@pytest.fixture(autouse=True)
def another_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets what this process has compared, as a new one would."""
    monkeypatch.setattr(commit_safety, "_claimed", set())
    return commit_safety._claimed.clear


@pytest.fixture(autouse=True)
def log_stores_of_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark commits through the log stores that Delta comes with."""
    monkeypatch.setattr(commit_safety, "commits_conditionally", lambda _log_store: False)


@pytest.fixture
def home(tmp_path: Path) -> type_of_home:
    """A lake, the same whatever the home, as the settings of a home see it."""

    def lake_of(name: str, **values: str) -> Lake:
        settings = replace(own_settings(tmp_path / name, **values), root=str(tmp_path / "lake"))
        return Lake(settings=settings, store=Counted(tmp_path / "lake"))

    return lake_of


def asked(lake: Lake) -> list[str]:
    assert isinstance(lake.store, Counted)
    return lake.store.asked


def test_a_new_lake_belongs_to_the_first_who_writes_and_each_process_of_that_home_asks_once(
    home: type_of_home, another_process: Callable[[], None]
) -> None:
    first = home("a")
    for _ in range(3):
        claim(first, asked="write")
    assert asked(first) == [f"read {RECORD}", f"put {RECORD}", f"read {RECORD}"]
    another_process()
    second = home("a")
    for _ in range(3):
        claim(second, asked="write")
    assert asked(second) == [f"read {RECORD}"]


def test_a_second_home_is_refused_with_both_names_and_the_way_out_and_nothing_changes(
    home: type_of_home, tmp_path: Path
) -> None:
    claim(home("a"), asked="write of bronze/orders")
    before = (tmp_path / "lake" / RECORD).read_bytes()
    with pytest.raises(Refused) as refusal:
        claim(home("b"), asked="write of bronze/orders")
    message = str(refusal.value)
    assert message.startswith(
        f"write of bronze/orders: the lake {tmp_path / 'lake'} belongs to the home {tmp_path / 'a'} (id "
    )
    assert f"; this is the home {tmp_path / 'b'} (id " in message and message.endswith(
        "lakehouse server take-over"
    )
    assert (tmp_path / "lake" / RECORD).read_bytes() == before


def test_a_home_that_was_copied_or_made_anew_is_another(
    home: type_of_home, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    claim(home("a"), asked="write")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    shutil.rmtree(tmp_path / "a")
    another_process()
    for name in ("copy", "a"):
        with pytest.raises(Refused, match="belongs to"):
            claim(home(name), asked="write")


def test_the_same_home_at_the_same_path_of_another_machine_is_another(
    home: type_of_home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    another_process: Callable[[], None],
) -> None:
    (tmp_path / "machine-id").write_text("the-machine-s-own\n")
    monkeypatch.setattr(commit_safety, "_MACHINE_ID", tmp_path / "machine-id")
    claim(home("a"), asked="write")
    (tmp_path / "machine-id").write_text("77aa\n")
    another_process()
    with pytest.raises(Refused, match="belongs to"):
        claim(home("a"), asked="write")
    (tmp_path / "machine-id").write_text("the-machine-s-own\n")
    claim(home("a"), asked="write")
    assert (
        "the-machine-s-own" not in (tmp_path / "lake" / RECORD).read_text()
    )  # machine-id(5): it is not to be shown as it is


def test_a_home_is_the_same_by_a_link_and_between_its_server_and_a_driver_in_the_process(
    home: type_of_home, tmp_path: Path, another_process: Callable[[], None]
) -> None:
    claim(home("a"), asked="write")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    another_process()
    claim(home("link"), asked="write")
    another_process()
    claim(home("a", LAKEHOUSE_SPARK="local[2]"), asked="write")


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("sc://cluster:15002", "sc://Cluster/;use_ssl=true", True),
        ("sc://cluster:15002", "sc://cluster:15003", False),
        ("sc://cluster:15002", "server", False),
        ("spark://cluster:7077", "spark://cluster:7077", False),
        ("sc://localhost:15002", "sc://localhost", True),
        ("local[2]", "server", False),
    ],
)
def test_a_connect_server_elsewhere_is_one_driver_whoever_uses_it(
    home: type_of_home, another_process: Callable[[], None], first: str, second: str, is_same: bool
) -> None:
    claim(home("a", LAKEHOUSE_SPARK=first), asked="write")
    another_process()
    with nullcontext() if is_same else pytest.raises(Refused, match="belongs to"):
        claim(home("b", LAKEHOUSE_SPARK=second), asked="write")


def test_of_two_homes_that_claim_a_new_lake_at_once_the_first_gets_it(
    home: type_of_home, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = home("a"), home("b")
    put, put_if_absent = second.store.put, second.store.put_if_absent

    def after_the_first(
        write: Callable[[str, bytes], bool | None], name: str, data: bytes
    ) -> bool | None:
        """The first home claims the lake after the second found it free."""
        claim(first, asked="write")
        return write(name, data)

    monkeypatch.setattr(second.store, "put", partial(after_the_first, put))
    monkeypatch.setattr(second.store, "put_if_absent", partial(after_the_first, put_if_absent))
    with pytest.raises(Refused, match=f"belongs to the home {first.settings.home} "):
        claim(second, asked="write")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"driver": "me"}', b"\xff"])
def test_a_record_that_cannot_be_read_lets_nobody_write_until_it_is_taken_over(
    home: type_of_home, content: bytes
) -> None:
    lake = home("a")
    lake.store.put(RECORD, content)
    with pytest.raises(Broken, match="owner"):
        claim(lake, asked="write")
    mine, before = take_over(lake)
    assert before is None and owner_of(lake) == mine
    claim(lake, asked="write")


def test_a_lake_that_is_taken_over_belongs_to_the_new_home_alone(
    home: type_of_home, another_process: Callable[[], None]
) -> None:
    old, new = home("a"), home("b")
    claim(old, asked="write")
    mine, before = take_over(new)
    assert before is not None and (before.home, mine.home) == (
        str(old.settings.home),
        str(new.settings.home),
    )
    claim(new, asked="write")
    another_process()
    with pytest.raises(Refused, match="belongs to"):
        claim(old, asked="write")


def test_a_lake_is_not_taken_over_from_a_server_that_runs_on_this_machine(
    home: type_of_home, tmp_path: Path
) -> None:
    old, new = home("a"), home("b")
    claim(old, asked="write")
    me = identify(getpid())
    assert me is not None
    server.folder(old.settings).mkdir()
    (server.folder(old.settings) / "pid").write_text(
        json.dumps({"process": asdict(me), "keeper": None, "port": 1})
    )
    with pytest.raises(Refused, match=f"runs on this machine as process {getpid()}. First stop"):
        take_over(new)
    (server.folder(old.settings) / "pid").unlink()
    assert take_over(new)[0].home == str(tmp_path / "b")


def test_whoever_takes_a_table_to_write_it_is_the_owner_or_refused_before_anything_else(
    home: type_of_home, tmp_path: Path
) -> None:
    claim(home("a"), asked="write")
    lake: Lake = home("b")
    no_session: Any = None
    held = table_lock.hold(lake, no_session, "bronze/orders", owner="write of bronze/orders")
    with pytest.raises(Refused, match=r"^write of bronze/orders: the lake .* belongs to"), held:
        pass
    assert not (lake.settings.home / "locks").exists()


def test_a_second_home_does_not_even_come_up(
    home: type_of_home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("a server was to be started")

    monkeypatch.setattr(foreground, "_spark", start)
    claim(home("a"), asked="write")
    settings = replace(home("b").settings, port=free_port())
    with pytest.raises(Refused, match=r"^lakehouse up: the lake .* belongs to"):
        run_all(settings, print, check=partial(check_owner, settings))
    assert server.status(settings).condition == "stopped"


def test_what_only_reads_is_never_asked(home: type_of_home) -> None:
    claim(home("a"), asked="write")
    lake = home("b")
    assert lake.facts("bronze/orders") is None
    assert asked(lake) == []


@pytest.fixture
def conditional(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Sets whether the drivers of the next claims commit conditionally, as new processes do."""

    def choose(is_so: bool) -> None:
        monkeypatch.setattr(commit_safety, "commits_conditionally", lambda _log_store: is_so)
        commit_safety._claimed.clear()

    return choose


def test_homes_with_conditional_commits_share_a_lake(
    home: type_of_home, conditional: Callable[[bool], None]
) -> None:
    conditional(True)
    for lake in (home("a"), home("b"), home("c", LAKEHOUSE_SPARK="local[2]")):
        claim(lake, asked="write")
        owner = owner_of(lake)
        assert (
            owner is not None and owner.conditional and owner.home == str(home("a").settings.home)
        )
    conditional(False)
    with pytest.raises(
        Refused, match=r"and other drivers with conditional commits.*are not conditional"
    ):
        claim(home("a"), asked="write")


def test_a_lake_of_one_driver_is_shared_once_this_driver_commits_conditionally(
    home: type_of_home, conditional: Callable[[bool], None]
) -> None:
    claim(home("a"), asked="write")
    conditional(True)
    with pytest.raises(Refused, match="belongs to the home"):
        claim(home("b"), asked="write")
    claim(home("a"), asked="write")
    claim(home("b"), asked="write")
    mine, before = take_over(home("b"))
    assert before is not None and before.conditional and mine.conditional


@pytest.mark.parametrize(
    ("spark", "is_so", "sentence"),
    [
        ("server", True, "conditional: any number of Spark drivers"),
        ("sc://host", False, "no conditional log store was seen on the Connect server"),
        (
            "server",
            False,
            "an earlier version of this program started the Spark server; restart the server",
        ),
    ],
)
def test_who_may_write_is_said(
    home: type_of_home,
    conditional: Callable[[bool], None],
    spark: str,
    sentence: str,
    *,
    is_so: bool,
) -> None:
    conditional(is_so)
    assert sentence in commits_sentence(home("a", LAKEHOUSE_SPARK=spark))


def test_a_server_that_ignores_conditions_leaves_one_driver(tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT="s3://bucket"))
    assert log_store_conf(lake.settings, ())["spark.delta.logStore.s3a.impl"] == ON_S3
    remember_conditions(lake.settings, "s3a://bucket/t", is_honoured=False)
    assert "ignores If-None-Match in the bucket bucket" in commits_sentence(lake)
    assert [*log_store_conf(lake.settings, ())] == ["spark.delta.logStore.file.impl"]


def test_buckets_of_one_server_are_asked_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver has one log store for all of them, so it is Delta's own if one bucket ignores conditions."""
    settings = own_settings(tmp_path, LAKEHOUSE_ROOT="s3://bucket")
    remember_conditions(settings, "s3://bucket", is_honoured=True)
    assert known_conditions(settings, "s3a://bucket/t") is True
    assert known_conditions(settings, "s3://another/t") is None
    assert log_store_conf(settings, ())["spark.delta.logStore.s3a.impl"] == ON_S3
    remember_conditions(settings, "s3://another/t", is_honoured=False)
    assert known_conditions(settings, "s3://bucket") is True
    assert "s3a" not in str(log_store_conf(settings, ()))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere")
    assert known_conditions(settings, "s3://another/t") is None
    assert log_store_conf(settings, ())["spark.delta.logStore.s3a.impl"] == ON_S3


@pytest.mark.parametrize("ignores", [False, True])
def test_a_server_is_asked_about_large_commits_too(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch, *, ignores: bool
) -> None:
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}"))
    assert isinstance(lake.store, S3Store)
    monkeypatch.setattr(commit_safety, "store_at", lambda _root: lake.store)

    def unheard(request: Any, **_: Any) -> None:
        del request.headers["If-None-Match"]

    if ignores:
        events = lake.store.client.meta.events
        events.register("before-sign.s3.CompleteMultipartUpload", unheard)
    claim(lake, asked="write")
    assert known_conditions(lake.settings, f"s3://{bucket}") is not ignores
    assert "Uploads" not in lake.store.client.list_multipart_uploads(Bucket=bucket)


def test_a_conditional_log_store_of_delta_comes_first(tmp_path: Path) -> None:
    jar = tmp_path / "delta-storage-9.9.9.jar"
    with zipfile.ZipFile(jar, "w") as packed:
        packed.writestr("io/delta/storage/S3LogStore.class", b"")
    conf = log_store_conf(own_settings(tmp_path, LAKEHOUSE_ROOT="s3://bucket"), [jar])
    assert conf["spark.delta.logStore.s3a.impl"] == "io.delta.storage.S3LogStore"
