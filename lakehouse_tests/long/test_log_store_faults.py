"""The log stores in Java, each in a JVM without Spark: what they write, and what they do about faults of S3 and of disks."""

import os
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import boto3
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from lakehouse.base.installation import ROOT
from lakehouse.spark.server import jars, log_store
from lakehouse.spark.server.jars import find_java
from lakehouse_tests.silent_server import COMMIT_FAULTS, Fault, faulty_server

BUCKET = "lake"
VERSION = "t/_delta_log/00000000000000000000.json"
LOST_RACE = "java.nio.file.FileAlreadyExistsException"
KEYS = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
UNKNOWN = "It is unknown whether"

pytestmark = pytest.mark.spark


@contextmanager
def jvm() -> Iterator[JavaGateway]:
    """A JVM with what of a driver's class path the log stores need."""
    spark = jars.spark_home() / "jars"
    needed = "hadoop-client-* slf4j-* log4j-* jcl-* commons-* http* netty-* guava-*"
    of_spark = (jar for pattern in needed.split() for jar in spark.glob(f"{pattern}.jar"))
    class_path = (*jars.fetch(), log_store.JAR, *of_spark)
    port, token = launch_gateway(
        jarpath=str(next(spark.glob("py4j-*.jar"))),
        classpath=os.pathsep.join(map(str, class_path)),
        java_path=str(find_java() / "bin" / "java"),
        enable_auth=True,
        die_on_exit=True,
    )
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    gateway = JavaGateway(gateway_parameters=parameters)
    yield gateway
    gateway.shutdown()


@pytest.fixture(scope="module")
def java() -> Iterator[JavaGateway]:
    with jvm() as gateway:
        yield gateway


class Storage:
    """S3's server with a bucket, behind one whose requests fail as planned, in order."""

    def __init__(self, client: Any, faults: list[Fault]) -> None:
        self.client, self.faults = client, faults
        self.puts = 0
        self.writing_thread: Any = None  # is interrupted by its first PUT

    def fault_of(self, method: str, path: str) -> Fault | None:
        """The next planned fault of a PUT of the version."""
        if method != "PUT" or not path.split("?")[0].endswith(".json"):
            return None
        self.puts += 1
        if self.writing_thread is not None:
            self.writing_thread.interrupt()
            self.writing_thread = None
        return self.faults.pop(0) if self.faults else None

    def content(self) -> str | None:
        """What the version holds, if it is there."""
        try:
            return self.client.get_object(Bucket=BUCKET, Key=VERSION)["Body"].read().decode()
        except self.client.exceptions.NoSuchKey:
            return None


@pytest.fixture
def storage(endpoint: str) -> Iterator[Storage]:
    client = boto3.client("s3", endpoint_url=endpoint, **KEYS)
    client.create_bucket(Bucket=BUCKET)
    yield Storage(client, [])
    for entry in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=entry["Key"])


def s3a(java: JavaGateway, address: str, home: Path) -> Any:
    """Hadoop's configuration for the server at an address."""
    conf = java.jvm.org.apache.hadoop.conf.Configuration()
    conf.set("hadoop.tmp.dir", str(home))
    for name, value in {
        "impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "impl.disable.cache": "true",
        "endpoint": address,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "access.key": "test",
        "secret.key": "test",
        "attempts.maximum": "1",
        "retry.limit": "1",
        "retry.interval": "1ms",
        "connection.timeout": "15s",
    }.items():
        conf.set(f"fs.s3a.{name}", value)
    return conf


@pytest.fixture
def commit(
    java: JavaGateway, storage: Storage, endpoint: str, tmp_path: Path
) -> Iterator[Callable[..., None]]:
    """Writes actions as the version, on S3."""
    with faulty_server(endpoint, storage.fault_of) as address:
        conf = s3a(java, address, tmp_path)
        store = getattr(java.jvm, log_store.ON_S3)(conf)
        path = java.jvm.org.apache.hadoop.fs.Path(f"s3a://{BUCKET}/{VERSION}")

        def write(*actions: object, overwrite: bool = False, **more: str) -> None:
            for name, value in more.items():
                conf.set(f"fs.s3a.{name.replace('_', '.')}", value)
            store.write(path, java_list(java, actions).iterator(), overwrite, conf)

        yield write


def java_list(java: JavaGateway, values: tuple[object, ...]) -> Any:
    made = java.jvm.java.util.ArrayList()
    for value in values:
        made.append(value)
    return made


def error_of(write: Callable[..., None], *actions: object, **more: Any) -> str:
    with pytest.raises(Py4JJavaError) as failed:
        write(*actions, **more)
    return str(failed.value.java_exception.toString())


def test_a_version_is_written_once(commit: Callable[..., None], storage: Storage) -> None:
    commit('{"a": 1}', '{"ü": 2}')
    assert storage.content() == '{"a": 1}\n{"ü": 2}\n'
    assert error_of(commit, "{}").startswith(LOST_RACE)
    assert storage.content() == '{"a": 1}\n{"ü": 2}\n'
    commit("{}", overwrite=True)
    assert storage.content() == "{}\n"


def test_half_a_commit_is_never_published(commit: Callable[..., None], storage: Storage) -> None:
    """S3A publishes a stream that is closed, and an iterator that fails closes nothing."""
    for overwrite in (False, True):
        assert "ClassCastException" in error_of(commit, "{}", 5, overwrite=overwrite)
    assert (storage.content(), storage.puts) == (None, 0)


def test_a_lost_answer_is_no_lost_commit(commit: Callable[..., None], storage: Storage) -> None:
    """The object was stored, and 500 or silence came back. What repeats the request gets 412."""
    for fault in (Fault(status=500, reaches=True), Fault(reaches=True)):
        storage.faults.append(fault)
        commit(f'{{"{fault.status}": 1}}')
        assert storage.content() == f'{{"{fault.status}": 1}}\n'
        storage.client.delete_object(Bucket=BUCKET, Key=VERSION)
    assert storage.puts == 4
    storage.faults += [Fault(status=500, reaches=True)] * 2
    commit("{}")
    assert storage.content() == "{}\n"


@pytest.mark.parametrize("status", [409, 412])
def test_a_conflict_is_a_lost_race_only_if_another_writer_s_object_is_there(
    commit: Callable[..., None], storage: Storage, status: int
) -> None:
    storage.faults.append(Fault(status=status))
    assert UNKNOWN in error_of(commit, "{}")
    assert storage.content() is None
    storage.client.put_object(Bucket=BUCKET, Key=VERSION, Body=b"theirs")
    storage.faults.append(Fault(status=status))
    assert error_of(commit, "{}").startswith(LOST_RACE)
    storage.client.delete_object(Bucket=BUCKET, Key=VERSION)
    storage.faults.append(Fault(status=status, reaches=True))
    commit("{}")
    assert storage.content() == "{}\n"


def test_other_failures_are_unknown_outcomes(commit: Callable[..., None], storage: Storage) -> None:
    storage.client.put_object(Bucket=BUCKET, Key=VERSION, Body=b"theirs")
    storage.faults.append(Fault(status=403))
    message = error_of(commit, "{}")
    assert UNKNOWN in message and "another writer" in message
    assert "Read the table's history" in message
    assert storage.content() == "theirs"


def test_a_file_system_without_the_condition_is_refused_before_an_action_is_read(
    commit: Callable[..., None], storage: Storage
) -> None:
    message = error_of(commit, 5, create_conditional_enabled="false")
    assert "lacks fs.option.create.conditional.overwrite" in message
    assert storage.puts == 0


@pytest.mark.parametrize(
    ("fault", "is_written"),
    [(None, True), (Fault(status=500, reaches=True), True), (Fault(status=500), False)],
)
def test_an_interrupt_is_kept_and_does_not_hide_what_is_stored(
    java: JavaGateway,
    commit: Callable[..., None],
    storage: Storage,
    fault: Fault | None,
    *,
    is_written: bool,
) -> None:
    """The writing thread is interrupted while the server answers."""
    storage.faults += [fault] if fault else []
    storage.writing_thread = java.jvm.java.lang.Thread.currentThread()
    with nullcontext() if is_written else pytest.raises(Py4JJavaError, match=UNKNOWN):
        commit("{}")
    assert java.jvm.java.lang.Thread.interrupted()
    assert storage.content() == ("{}\n" if is_written else None)


class Writer:
    """A driver's log store that commits the next free version again and again, while its requests fail at random."""

    def __init__(self, java: JavaGateway, name: str, conf: Any, root: str) -> None:
        self._java, self._name, self._root = java, name, root
        self.conf = conf
        self.puts = 0
        self.faults = Counter[Fault]()
        self.acknowledged: dict[str, int] = {}
        self.unknown: list[str] = []

    def fault_of(self, method: str, path: str) -> Fault | None:
        """Every third commit fails, each time in the next way."""
        if method != "PUT" or ".json" not in path:
            return None
        self.puts += 1
        if self.puts % 3:
            return None
        fault = COMMIT_FAULTS[self.puts // 3 % len(COMMIT_FAULTS)]
        self.faults[fault] += 1
        return fault

    def commit(self, count: int, log_store_class: str) -> None:
        """Commits rows of its own, one in a version; as Delta does, it tries the next after a lost race."""
        store = getattr(self._java.jvm, log_store_class)(self.conf)
        version = 0
        for number in range(count):
            row, is_done = f"{self._name} {number}", False
            while not is_done:
                name = f"{self._root}/_delta_log/{version:020}.json"
                path = self._java.jvm.org.apache.hadoop.fs.Path(name)
                try:
                    store.write(path, java_list(self._java, (row,)).iterator(), False, self.conf)
                    self.acknowledged[row], is_done = version, True
                except Py4JJavaError as error:
                    if not str(error.java_exception.toString()).startswith(LOST_RACE):
                        self.unknown.append(row)
                        is_done = True
                version += 1


def race(
    place: str, home: Path, count: int, log_store_class: str, server: str | None
) -> tuple[list[Writer], dict[str, list[int]]]:
    """Two JVMs that commit to one log at once; and the versions at which each row is found."""
    writers, in_turn = list[Writer](), threading.Lock()
    with ExitStack() as held:
        for name in ("one", "two"):
            java = held.enter_context(jvm())
            if server is None:
                conf = java.jvm.org.apache.hadoop.conf.Configuration()
                writers.append(Writer(java, name, conf, f"file:{place}"))
                continue
            writer = Writer(java, name, None, place)
            writers.append(writer)
            address = held.enter_context(faulty_server(server, writer.fault_of, in_turn=in_turn))
            writer.conf = s3a(java, address, home)
            writer.conf.set("fs.s3a.impl.disable.cache", "false")
        given = [count, log_store_class]
        threads = [threading.Thread(target=each.commit, args=given) for each in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found: dict[str, list[int]] = {}
    for name, content in contents(place, server):
        found.setdefault(content.strip(), []).append(int(name.rpartition("/")[2].split(".")[0]))
    return writers, found


def contents(place: str, server: str | None) -> Iterator[tuple[str, str]]:
    """Each version in the log, by name."""
    if server is None:
        yield from ((file.name, file.read_text()) for file in Path(place).glob("_delta_log/*.json"))
        return
    client = boto3.client("s3", endpoint_url=server, **KEYS)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="race/"):
        for entry in page["Contents"]:
            body = client.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"]
            yield entry["Key"], body.read().decode()


@pytest.fixture
def link(java: JavaGateway, tmp_path: Path) -> Callable[..., None]:
    """Writes actions as a version, on disk."""
    conf = java.jvm.org.apache.hadoop.conf.Configuration(False)
    store = getattr(java.jvm, log_store.ON_DISK)(conf)
    (tmp_path / "a b%20ü/_delta_log").mkdir(parents=True)

    def write(*actions: object, number: int = 0, overwrite: bool = False) -> None:
        file = java.jvm.java.io.File(str(tmp_path / f"a b%20ü/_delta_log/{number:020}.json"))
        path = java.jvm.org.apache.hadoop.fs.Path(file.toURI())
        store.write(path, java_list(java, actions).iterator(), overwrite, conf)

    return write


def log_of(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.glob("a b%20ü/_delta_log/*")}


def test_a_version_on_disk_is_written_once(link: Callable[..., None], tmp_path: Path) -> None:
    name = f"{0:020}.json"
    link('{"ü": 1}')
    assert error_of(link, "{}").startswith(LOST_RACE)
    assert "ClassCastException" in error_of(link, "{}", 5, number=1)
    assert log_of(tmp_path) == {name: '{"ü": 1}\n'}
    (tmp_path / f"a b%20ü/_delta_log/.{name}.crc").write_bytes(b"of another log store")
    link("{}", overwrite=True)
    assert log_of(tmp_path) == {name: "{}\n"}


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
    jar = tmp_path / "log-store.jar"
    make = ["make", "--assume-old=.venv/.ready", "jar", f"JAR={jar}"]
    # The suite's options for Spark ask for more memory than the program `jar` gets.
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    subprocess.run(make, cwd=ROOT, env=environ, check=True)
    assert jar.read_bytes() == log_store.JAR.read_bytes()
    assert log_store.JAR.stat().st_size < 20_000
