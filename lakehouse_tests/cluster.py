"""A standalone Spark cluster on loopback, and a Connect server in client mode on it.

This is the topology of Apache's Spark Kubernetes Operator (`spark-connect-server-with-spark-cluster`):
master, workers, and a Connect server whose driver runs outside of them.
"""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse.runtime import jars
from lakehouse.runtime.bound_process import BoundProcess, start_bound
from lakehouse.runtime.java import find_java
from lakehouse.runtime.processes import port_answers
from lakehouse.runtime.spark_server_conf import TOKEN_VARIABLE
from lakehouse_tests.conftest import free_port, wait_until

_DEPLOY = "org.apache.spark.deploy"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A running cluster; `environment` is that of its processes, which executors inherit."""

    folder: Path
    environment: Mapping[str, str]
    port: int = field(default_factory=free_port)
    workers: list[BoundProcess] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The value of LAKEHOUSE_SPARK for a driver per run."""
        return f"spark://127.0.0.1:{self.port}"

    def start(self, name: str, command: Sequence[str]) -> BoundProcess:
        """Starts a class or script of Spark, with a log of its own; it ends with this process."""
        home = jars.spark_home()
        program = home / "bin" / ("spark-submit" if name == "connect" else "spark-class")
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            return start_bound([program, *command], cwd=folder, env=self.environment, output=log)

    def start_worker(self, *, cores: int, memory: str) -> None:
        """Starts one more worker."""
        name = f"worker-{len(self.workers)}"
        options = ["-c", str(cores), "-m", memory, "--webui-port", str(free_port())]
        options += ["--host", "127.0.0.1", "-d", str(self.folder / name)]
        worker = self.start(name, [f"{_DEPLOY}.worker.Worker", *options, self.address])
        self.workers.append(worker)

    def executors(self) -> list[int]:
        """The process ids of all executors of this cluster."""
        found = list[int]()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and self._is_executor(folder):
                found.append(int(folder.name))
        return sorted(found)

    def _is_executor(self, folder: Path) -> bool:
        try:
            command = (folder / "cmdline").read_text()
            return _EXECUTOR in command and str(self.folder) in os.readlink(folder / "cwd")
        except OSError:
            return False


@contextmanager
def standalone(
    folder: Path, environment: Mapping[str, str], *, workers: int = 2, cores: int = 1
) -> Iterator[Cluster]:
    """A master and its workers; all of their processes end with the block."""
    quiet = {"SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    java = {"JAVA_HOME": str(find_java()), "SPARK_HOME": str(jars.spark_home())}
    cluster = Cluster(folder=folder, environment={**os.environ, **environment, **quiet, **java})
    with ExitStack() as stack:
        options = ["--host", "127.0.0.1", "--port", str(cluster.port)]
        options += ["--webui-port", str(free_port())]
        master = cluster.start("master", [f"{_DEPLOY}.master.Master", *options])
        stack.callback(master.end)
        wait_until("the master answers", lambda: port_answers(cluster.port))
        stack.callback(lambda: [worker.end() for worker in cluster.workers])
        for _ in range(workers):
            cluster.start_worker(cores=cores, memory="1200m")
        yield cluster


@contextmanager
def connect_server(
    cluster: Cluster, conf: Mapping[str, str], *, name: str = "connect"
) -> Iterator[tuple[str, dict[str, str], BoundProcess]]:
    """A Connect server whose driver uses the cluster: its address, the token's variable, its process."""
    port = free_port()
    token = {TOKEN_VARIABLE: secrets.token_urlsafe(16)}
    bind = {"spark.connect.grpc.binding.address": "127.0.0.1"}
    bind["spark.connect.grpc.binding.port"] = str(port)
    command = ["--master", cluster.address, "--class", _CONNECT]
    for key, value in {**conf, **bind}.items():
        command += ["--conf", f"{key}={value}"]
    server = Cluster(
        folder=cluster.folder, environment={**cluster.environment, **token}, port=cluster.port
    ).start(name, [*command, "spark-internal"])
    try:
        wait_until("the Connect server answers", lambda: not server.is_alive or port_answers(port))
        assert server.is_alive, (cluster.folder / f"{name}.log").read_text()[-3000:]
        yield f"sc://localhost:{port}", token, server
    finally:
        server.end()
