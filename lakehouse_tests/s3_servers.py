"""Servers of S3's protocol without common code, a process each: moto's, and MiniStack, which `make bench` installs."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from lakehouse.base.settings import Settings
from lakehouse.spark.server import server
from lakehouse_tests.conftest import free_port, own_settings, wait_until

BUCKET = "lake"
MINISTACK = Path(sys.prefix, "ministack")


@contextmanager
def s3_server(
    name: str, home: Path, *, key: str = "test", secret: str = "test", region: str = "us-east-1"
) -> Iterator[dict[str, str]]:
    """What the environment says to reach a fresh server, `moto` or `ministack`, with an empty bucket `lake`; `home` holds its scratch."""
    port = free_port()
    told = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": region,
    }
    command, environ = _start_of(name, port)
    environ = {**os.environ, "TMPDIR": str(home), **environ}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-m", *command], env=environ, **quiet) as process:
        try:
            wait_until(
                f"{name} has the bucket",
                lambda: process.poll() is not None or _made_bucket(told, region),
            )
            assert process.poll() is None, f"{name} ended with {process.returncode}"
            yield told
        finally:
            process.terminate()


@contextmanager
def lake_on_s3(name: str, home: Path) -> Iterator[Settings]:
    """Settings of a lake in the bucket of such a server, with a Spark server of its own; this process's environment leads there, too."""
    with s3_server(name, home) as told, pytest.MonkeyPatch.context() as patch:
        for variable, value in told.items():
            patch.setenv(variable, value)
        settings = own_settings(home, LAKEHOUSE_ROOT=f"s3://{BUCKET}/some/where")
        with server.supervised(settings):
            yield settings


def s3_client(told: Mapping[str, str]) -> Any:
    """A client of a server that owes nothing to this process's environment."""
    return boto3.client(
        "s3",
        endpoint_url=told["AWS_ENDPOINT_URL"],
        aws_access_key_id=told["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=told["AWS_SECRET_ACCESS_KEY"],
        region_name=told["AWS_DEFAULT_REGION"],
    )


def _start_of(name: str, port: int) -> tuple[list[str], dict[str, str]]:
    if name == "moto":
        return ["moto.server", "-H", "127.0.0.1", "-p", str(port)], {}
    assert MINISTACK.is_dir(), f"{MINISTACK} is not there: make .venv/ministack"
    # Or it listens on fixed ports, too.
    needed = {"SERVICES": "s3", "IOT_MTLS_ENABLED": "0", "DOCKER_HOST": "unix:///nowhere"}
    return ["ministack"], {
        "PYTHONPATH": str(MINISTACK),
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        **needed,
    }


def _made_bucket(told: Mapping[str, str], region: str) -> bool:
    """Whether the server answers, and has made it."""
    where = (
        {}
        if region == "us-east-1"
        else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    )
    try:
        s3_client(told).create_bucket(Bucket=BUCKET, **where)
    except EndpointConnectionError:
        return False
    return True
