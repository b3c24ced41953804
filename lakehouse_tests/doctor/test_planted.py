"""`lakehouse doctor` on configurations with one planted fault each: it is found, named, and nothing else fails."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
import pytest
from moto import settings as moto_settings
from moto.core.responses import ActionAuthenticatorMixin
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from lakehouse.base.settings import Settings
from lakehouse.doctor import checks
from lakehouse.spark import session as open_session
from lakehouse.store.s3 import TAKEN
from lakehouse_tests.conftest import free_port
from lakehouse_tests.support.terminal import Terminal

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
# moto has a right of its own for HeadBucket; on AWS it is s3:ListBucket.
READER = ("s3:ListBucket", "s3:HeadBucket", "s3:GetObject")

type_of_states = Mapping[str, str]


class PlantedS3:
    """A WSGI application before moto's, which may drop a condition of a request."""

    def __init__(self) -> None:
        self.app = DomainDispatcherApplication(create_backend_app)
        self.deaf_to = ""  # a method whose conditions are ignored

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] == self.deaf_to:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        return self.app(environ, start_response)


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[PlantedS3, str]]:
    """The application, and where it listens."""
    app = PlantedS3()
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield app, f"http://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join()


@pytest.fixture
def on_s3(s3: tuple[PlantedS3, str], tmp_path: Path, request: pytest.FixtureRequest) -> Terminal:
    """A terminal whose lake is in an empty bucket; its environment leads there."""
    name = f"doctor-{abs(hash(request.node.nodeid)):x}"
    where = {"AWS_ENDPOINT_URL": s3[1], "AWS_DEFAULT_REGION": "eu-west-3", "AWS_MAX_ATTEMPTS": "1"}
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in {**KEYS, **where}.items():
            patch.setenv(variable, value)
        place = {"LocationConstraint": "eu-west-3"}
        boto3.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration=place)
    return free_terminal(tmp_path, LAKEHOUSE_ROOT=f"s3://{name}/some/lake", **KEYS, **where)


@pytest.fixture
def on_disk(tmp_path: Path) -> Terminal:
    """A terminal whose lake does not exist yet."""
    return free_terminal(tmp_path)


def free_terminal(folder: Path, **settings: str) -> Terminal:
    ports = {
        name: str(free_port())
        for name in ("LAKEHOUSE_PORT", "LAKEHOUSE_SPARK_PORT", "LAKEHOUSE_METRICS_PORT")
    }
    return Terminal(folder / "home", **(ports | settings))


def examine(terminal: Terminal, *options: str, **environ: str) -> dict[str, tuple[str, str]]:
    """Name -> state and sentence of each check; the exit code and the counts are checked here."""
    result = terminal.run("doctor", "--json", *options, **environ)
    document = json.loads(result.stdout)
    findings = {each["name"]: (each["state"], each["sentence"]) for each in document["checks"]}
    states = [state for state, _ in findings.values()]
    assert document["failed"] == states.count("failed")
    assert "failed" not in states[:-1]
    assert result.exit_code == (2 if document["failed"] else 0), findings
    return findings


def only_failure(
    terminal: Terminal, *options: str, without_spark: bool = True, **environ: str
) -> tuple[str, str]:
    """Name and sentence of the one check that fails, which is the last."""
    quick = ("--no-spark",) if without_spark else ()
    findings = examine(terminal, *quick, *options, **environ)
    name, (state, sentence) = findings.popitem()
    assert state == "failed"
    return name, sentence


def keys_in(terminal: Terminal) -> list[str]:
    bucket = terminal.environ["LAKEHOUSE_ROOT"].split("/")[2]
    client = boto3.client(
        "s3",
        endpoint_url=terminal.environ["AWS_ENDPOINT_URL"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="eu-west-3",
    )
    return [each["Key"] for each in client.list_objects_v2(Bucket=bucket).get("Contents", ())]


@contextmanager
def rights_checked(endpoint: str, actions: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Keys of a user who may do only that; meanwhile the server checks every request."""
    where = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    iam = boto3.client("iam", aws_access_key_id="test", aws_secret_access_key="test", **where)
    user = f"user-{len(iam.list_users()['Users'])}"
    iam.create_user(UserName=user)
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName=user, PolicyName="rights", PolicyDocument=policy)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moto_settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        patch.setattr(ActionAuthenticatorMixin, "request_count", 0)
        yield {
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        }


def test_a_sound_configuration_passes_and_nothing_stays(on_disk: Terminal, on_s3: Terminal) -> None:
    for terminal in (on_disk, on_s3):
        findings = examine(terminal, "--no-spark")
        assert {state for state, _ in findings.values()} == {"ok"}
        assert [*findings] == ["settings", "home", "tables", "storage"]
    assert not [path for path in on_disk.home.glob("**/*") if path.is_file()]
    assert keys_in(on_s3) == [f"some/lake/{TAKEN}"]


def test_the_lines_for_a_person_end_in_a_count(on_disk: Terminal) -> None:
    lines = on_disk.run("doctor", "--no-spark").stdout.splitlines()
    assert lines[0].startswith("ok      settings            the lake is ")
    assert lines[-1] == f"{len(lines) - 1} checks: 0 failed"


def test_a_bad_setting(on_disk: Terminal) -> None:
    name, sentence = only_failure(on_disk, LAKEHOUSE_SPARK="spark//cluster")
    assert name == "settings"
    assert "Use server, local[N], spark://host:port or sc://host:port" in sentence


def test_a_tables_package_that_cannot_be_imported(on_disk: Terminal) -> None:
    name, sentence = only_failure(on_disk, LAKEHOUSE_TABLES="no_such_package")
    assert name == "tables" and "LAKEHOUSE_TABLES is no_such_package" in sentence


def test_a_home_that_is_a_file(on_disk: Terminal, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    name, sentence = only_failure(on_disk, LAKEHOUSE_HOME=str(tmp_path / "file"))
    assert name == "home"
    assert sentence.startswith(f"cannot write to {tmp_path}/file: File exists. Give this user")


def test_an_endpoint_without_a_server(on_s3: Terminal) -> None:
    name, sentence = only_failure(on_s3, AWS_ENDPOINT_URL=f"http://127.0.0.1:{free_port()}")
    assert name == "storage" and "Could not connect to the endpoint URL" in sentence


def test_a_bucket_that_does_not_exist(on_s3: Terminal) -> None:
    assert only_failure(on_s3, LAKEHOUSE_ROOT="s3://no-such-bucket/lake") == (
        "storage",
        (
            "store: cannot list s3://no-such-bucket/lake/: there is no such bucket. Create it first, "
            "or correct its name"
        ),
    )


def test_keys_that_the_server_does_not_know(on_s3: Terminal, s3: tuple[PlantedS3, str]) -> None:
    with rights_checked(s3[1], READER):
        name, sentence = only_failure(on_s3)
    assert name == "storage" and "InvalidAccessKeyId" in sentence


def test_rights_to_read_only(on_s3: Terminal, s3: tuple[PlantedS3, str]) -> None:
    with rights_checked(s3[1], READER) as keys:
        name, sentence = only_failure(on_s3, **keys)
    assert name == "storage" and "Grant s3:PutObject" in sentence


def test_rights_without_deletes(on_s3: Terminal, s3: tuple[PlantedS3, str]) -> None:
    with rights_checked(s3[1], (*READER, "s3:PutObject")) as keys:
        name, sentence = only_failure(on_s3, **keys)
    assert name == "storage" and "s3:DeleteObject" in sentence


@pytest.mark.parametrize("method", ["PUT", "POST"])  # POST ends an upload in parts
def test_ignored_conditions(on_s3: Terminal, s3: tuple[PlantedS3, str], method: str) -> None:
    s3[0].deaf_to = method
    try:
        name, sentence = only_failure(on_s3)
    finally:
        s3[0].deaf_to = ""
    assert name == "storage" and "If-None-Match" in sentence


@pytest.fixture
def with_spark(on_disk: Terminal, settings: Settings, spark: object) -> Terminal:
    """The terminal with the shared Spark server, and a token that it accepts."""
    on_disk.home.mkdir()
    (on_disk.home / "server").symlink_to(settings.home / "server")
    return Terminal(
        on_disk.home, **(on_disk.environ | {"LAKEHOUSE_SPARK_PORT": str(settings.spark_port)})
    )


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_what_this_process_writes_and_commits(with_spark: Terminal) -> None:
    findings = examine(with_spark)
    assert {state for state, _ in findings.values()} == {"ok"}
    assert [*findings][4:] == ["java", "jars", "spark", "spark's storage", "commit"]
    assert not [path for path in with_spark.root.glob("**/*") if path.is_file()]


@pytest.mark.spark
def test_another_version_of_spark(with_spark: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "spark_version", lambda: "4.1.0")
    name, sentence = only_failure(with_spark, without_spark=False)
    assert name == "spark" and "Spark 4.2.0, but this environment has Spark 4.1.0" in sentence


@pytest.mark.spark
def test_a_token_the_server_refuses(with_spark: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_session, "_sessions", {})
    spark = f"sc://localhost:{with_spark.environ['LAKEHOUSE_SPARK_PORT']}"
    name, sentence = only_failure(
        with_spark,
        without_spark=False,
        LAKEHOUSE_SPARK=spark,
        SPARK_CONNECT_AUTHENTICATE_TOKEN="wrong",
    )
    assert name == "spark" and "refused the token" in sentence
