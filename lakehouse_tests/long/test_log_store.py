"""Log stores: the jar is what its source gives, and large commits are published once."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakehouse.spark.server import log_store
from lakehouse.spark.server.log_store import build
from lakehouse_tests.long import test_log_store_faults as short
from lakehouse_tests.long.test_log_store_faults import BUCKET, LOST_RACE, Storage, error_of

java, storage, commit = short.java, short.storage, short.commit


def test_a_large_commit_is_uploaded_in_parts_and_published_once(
    commit: Callable[..., None], storage: Storage
) -> None:
    line = "x" * 1_000_000
    small = {"multipart_size": "5M", "multipart_threshold": "5M"}
    commit(*[line] * 12, **small)
    assert storage.content() == f"{line}\n" * 12
    assert error_of(commit, *["y" * 1_000_000] * 12, **small).startswith(LOST_RACE)
    assert error_of(commit, *[line] * 12, 5, **small).startswith("java.lang.ClassCastException")
    assert storage.content() == f"{line}\n" * 12
    assert not storage.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads")


@pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK")
def test_the_jar_is_what_its_source_gives(tmp_path: Path) -> None:
    build.build(tmp_path / "log-store.jar")
    assert (tmp_path / "log-store.jar").read_bytes() == log_store.JAR.read_bytes()
    assert log_store.JAR.stat().st_size < 20_000
