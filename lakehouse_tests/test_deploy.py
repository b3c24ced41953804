"""The files in deploy/: they parse, name settings, images and programs that exist, and hold no secret."""

import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._core.instance.ref import InstanceRef

from lakehouse.base.installation import ROOT
from lakehouse.base.settings import parse_settings
from lakehouse.spark.server.conf import STORED_TIMES, s3a_conf, spark_conf
from lakehouse.spark.server.log_store import JAR, ON_S3, log_store_setting

DEPLOY = ROOT / "deploy"
FILES = [file for file in sorted(DEPLOY.rglob("*")) if file.suffix in {".yaml", ".yml"}]
SECRETS = re.compile(r"(?i)(password|secret|token|access_key)")
BUILT = {"lakehouse", "lakehouse-spark"}
SPARK = version("pyspark")


def documents(name: str) -> list[Any]:
    return [each for each in yaml.safe_load_all((DEPLOY / name).read_text()) if each]


def of_kind(kind: str) -> list[Any]:
    manifests = documents("kubernetes/lakehouse.yaml") + documents("kubernetes/spark.yaml")
    return [each for each in manifests if each["kind"] == kind]


def entries(value: Any) -> Iterator[tuple[str, Any]]:
    """The keys and values at all depths; an element of a list has the key of the list."""
    for key, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict | list):
            yield from entries(each)
        else:
            yield key, each
    for each in value if isinstance(value, list) else ():
        yield from entries(each)


def compose() -> Any:
    """The compose file, with variables of the environment as compose fills them in."""
    text = (DEPLOY / "compose.yaml").read_text()
    filled = {"LAKE_BUCKET": "my-bucket", "AWS_REGION": "eu-central-1"}
    filled["POSTGRES_PASSWORD"] = "filled"
    variable = re.compile(r"\$\{(\w+)(?::[-?][^}]*)?\}")
    return yaml.safe_load(variable.sub(lambda each: filled.get(each[1], "''"), text))


def config_map() -> dict[str, str]:
    [found] = of_kind("ConfigMap")
    return found["data"]


@pytest.mark.parametrize("environ", [compose()["services"]["code"]["environment"], config_map()])
def test_settings_are_accepted_and_name_a_lake_on_a_foreign_server(environ: dict[str, str]) -> None:
    """A name that is not a setting is refused."""
    settings = parse_settings(environ, base=ROOT)
    assert settings.root == f"s3://{environ['LAKE_BUCKET']}/lake"
    assert settings.spark == "sc://spark-connect:15002"
    assert {name for name, each in environ.items() if not isinstance(each, str)} == set()


def test_no_file_holds_a_secret_and_each_comes_from_the_environment() -> None:
    found = [
        (file.name, key, value)
        for file in FILES
        for document in yaml.safe_load_all(file.read_text())
        for key, value in entries(document)
        if SECRETS.search(key) and not re.fullmatch(r"\$\{\w+(:[-?][^}]*)?\}", str(value))
    ]
    assert found == []
    [instance] = documents("dagster.yaml")
    database = instance["storage"]["postgres"]["postgres_db"]
    assert database["password"] == {"env": "POSTGRES_PASSWORD"}
    example = [line for line in (DEPLOY / "env.example").read_text().splitlines() if "=" in line]
    assert [line for line in example if not line.startswith("#") and not line.endswith("=")] == []


def test_ports_are_published_on_loopback_only() -> None:
    services = compose()["services"].values()
    ports = [port for service in services for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:3000:3000"]
    assert {each["spec"].get("type", "ClusterIP") for each in of_kind("Service")} == {"ClusterIP"}
    [policy] = of_kind("NetworkPolicy")
    [application] = of_kind("SparkApplication")
    labels = policy["spec"]["podSelector"]["matchLabels"]
    assert labels["spark.operator/spark-app-name"] == application["metadata"]["name"]


def test_images_are_those_that_are_built_here_and_spark_has_the_version_of_its_clients() -> None:
    services = compose()["services"].values()
    manifests = [*documents("kubernetes/lakehouse.yaml"), *documents("kubernetes/spark.yaml")]
    images = {service["image"] for service in services}
    assert images == {*BUILT, "postgres:15"}
    kinds = ("image", "spark.kubernetes.container.image")
    assert {value for key, value in entries(manifests) if key in kinds} == BUILT
    bases = re.findall(r"^FROM (\S+) AS (\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert bases == [("python:3.11-slim-bookworm", "lakehouse"), (f"apache/spark:{SPARK}", "spark")]
    targets = {service["build"]["target"] for service in services if "build" in service}
    assert targets == {"lakehouse", "spark"}
    assert {value for key, value in entries(manifests) if key == "sparkVersion"} == {SPARK}


def test_commands_name_programs_modules_and_files_that_exist() -> None:
    commands = [service.get("command", []) for service in compose()["services"].values()]
    commands += [
        container["args"]
        for deployment in of_kind("Deployment")
        for container in deployment["spec"]["template"]["spec"]["containers"]
    ]
    words = [word for command in commands for part in command for word in str(part).split()]
    programs = {word for word in words if word.startswith("dagster") and "/" not in word}
    folder = str(Path(sys.executable).parent)
    assert programs == {"dagster", "dagster-daemon", "dagster-webserver"}
    assert [each for each in programs if shutil.which(each, path=folder) is None] == []
    modules = {word for word in words if word.startswith("lakehouse.")}
    assert modules == {"lakehouse.definitions", "lakehouse.assets.runs"}
    assert [each for each in modules if find_spec(each) is None] == []
    files = {word for word in words if word.startswith("deploy")}
    assert [each for each in files if not (ROOT / each).exists()] == []


def test_page_and_daemon_find_the_code_where_it_listens() -> None:
    [location] = documents("workspace.yaml")[0]["load_from"]
    host, port = location["grpc_server"]["host"], str(location["grpc_server"]["port"])
    assert f"-p {port} -m lakehouse.definitions" in compose()["services"][host]["command"][-1]
    [code] = [each for each in of_kind("Deployment") if each["metadata"]["name"] == host]
    [container] = code["spec"]["template"]["spec"]["containers"]
    assert container["args"][-3] == port
    ports = {each["metadata"]["name"]: each["spec"]["ports"] for each in of_kind("Service")}
    wanted = {"code": int(port), "page": 3000, "spark-connect": 15002}
    assert ports == {name: [{"port": number}] for name, number in wanted.items()}


@pytest.mark.parametrize(
    ("folder", "environ"),
    [
        (".", compose()["services"]["code"]["environment"]),
        ("kubernetes", config_map() | {"POSTGRES_PASSWORD": "in the Secret"}),
    ],
)
def test_dagster_accepts_its_instance_and_pools_keep_writers_apart(
    folder: str, environ: dict[str, str]
) -> None:
    """Locks in files hold on one machine, so pools are what keeps runs of several machines apart."""
    ref = InstanceRef.from_dir(str(DEPLOY / folder))
    assert ref.storage_data.class_name == "DagsterPostgresStorage"
    assert ref.compute_logs_data.class_name == "S3ComputeLogManager"
    instance = yaml.safe_load((DEPLOY / folder / "dagster.yaml").read_text())
    concurrency = instance["concurrency"]
    assert concurrency["pools"] == {"default_limit": 1, "granularity": "op"}
    own = {name: each for name, each in environ.items() if name.startswith("LAKEHOUSE_")}
    slots = parse_settings(own, base=ROOT).compaction_slots
    assert concurrency["runs"]["max_concurrent_runs"] > slots
    assert {value for key, value in entries(instance) if key == "env"} <= environ.keys()
    prefix = instance["compute_logs"]["config"]["prefix"]
    assert f"s3://{environ['LAKE_BUCKET']}/{prefix}".startswith(environ["LAKEHOUSE_ROOT"] + "/")


def test_kubernetes_differs_by_the_launcher_of_runs_alone() -> None:
    [plain], [kubernetes] = documents("dagster.yaml"), documents("kubernetes/dagster.yaml")
    launcher = kubernetes.pop("run_launcher")
    assert kubernetes == plain
    assert launcher["config"]["dagster_home"] == config_map()["DAGSTER_HOME"]
    [policy] = of_kind("NetworkPolicy")
    allowed = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert launcher["config"]["labels"] == allowed


def test_the_connect_server_has_tables_times_and_storage_of_the_lake_s_own(tmp_path: Path) -> None:
    lines = (DEPLOY / "spark-defaults.conf").read_text().splitlines()
    conf = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    environ = {"LAKEHOUSE_HOME": str(tmp_path), "LAKEHOUSE_SPARK": "spark://spark-master:7077"}
    own = spark_conf(parse_settings(environ, base=ROOT), [])
    sized = {"spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"}
    sized.add("spark.sql.sources.parallelPartitionDiscovery.parallelism")
    same = conf.keys() & own.keys() - sized
    assert {name: conf[name] for name in same} == {name: own[name] for name in same}
    needed = {"spark.sql.extensions", "spark.sql.catalog.spark_catalog", *STORED_TIMES}
    region = "spark.hadoop.fs.s3a.endpoint.region"
    needed |= {"spark.sql.session.timeZone", *s3a_conf({})} - {region}
    assert needed <= same
    assert conf[log_store_setting("s3a")] == ON_S3
    assert f"COPY {JAR.relative_to(ROOT)} /opt/spark/jars/" in (DEPLOY / "Dockerfile").read_text()
    [application] = of_kind("SparkApplication")
    assert conf.items() <= application["spec"]["sparkConf"].items()
    spark_connect = compose()["services"]["spark-connect"]
    assert f"--conf={region}=eu-central-1" in spark_connect["command"]
    assert application["spec"]["sparkConf"][region] == config_map()["AWS_REGION"]
