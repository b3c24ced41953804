"""An S3 server in this process with an empty bucket for each test that asks for one, and every kind of store."""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lakehouse.base.settings import Settings
from lakehouse.lake.lake import Lake
from lakehouse.store import DiskStore, S3Store, Store, s3
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.memory_store import MemoryStore


@pytest.fixture(scope="session", autouse=True)
def one_loader() -> Iterator[None]:
    """Botocore parses its descriptions of the services once, and not for each client."""
    if "boto3" not in sys.modules:  # not where only plans are tested
        yield
        return
    import botocore.session

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", cache(botocore.session.create_loader))
        yield


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Where the server listens."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same, with an environment that leads boto3 there; between two tries nobody waits."""
    monkeypatch.setattr(s3, "_PAUSES_SECONDS", (0.0,) * 5)
    key = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    place = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in {**key, **place}.items():
        monkeypatch.setenv(name, value)
    return endpoint


@pytest.fixture
def bucket(aws: str, request: pytest.FixtureRequest) -> str:
    """The name of an empty bucket."""
    import boto3

    name = f"lake-{abs(hash(request.node.nodeid)):x}"
    boto3.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="module")
def on_s3(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """Settings of a lake in a bucket of a server that runs as a process of its own: moto's, unless the test names another."""
    from lakehouse_tests.s3_servers import lake_on_s3

    name = getattr(request, "param", "moto")
    with lake_on_s3(name, tmp_path_factory.mktemp(name)) as settings:
        yield settings


@pytest.fixture
def memory(tmp_path: Path) -> Lake:
    """A lake without tables, in memory."""
    return Lake(settings=own_settings(tmp_path), store=MemoryStore())


@pytest.fixture(params=["disk", "s3", "memory"])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store of each kind."""
    match request.param:
        case "disk":
            return DiskStore(request.getfixturevalue("tmp_path") / "lake")
        case "s3":
            return S3Store(request.getfixturevalue("bucket"), "some/lake")
        case _:
            return MemoryStore()
