"""A standalone Spark cluster on loopback, and a Connect server in client mode on it.

This is the topology of Apache's Spark Kubernetes Operator (`spark-connect-server-with-spark-cluster`):
master, workers, and a Connect server whose driver runs outside of them.

Its tests are long ones: even on `local-cluster[2,1,1024]`, with the JVM options of `make test`, a
session, three appends and an OPTIMIZE take 37 CPU seconds.
"""

import os
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from lakehouse.base.installation import ROOT
from lakehouse.base.processes import BoundProcess, port_answers
from lakehouse.spark.server import jars
from lakehouse.spark.server.conf import TOKEN_VARIABLE, s3a_conf
from lakehouse.spark.server.jars import find_java
from lakehouse.spark.server.log_store import JAR
from lakehouse_tests.conftest import free_port, wait_until

_DEPLOY = "org.apache.spark.deploy"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A running cluster; `environment` is that of its processes, which executors inherit."""

    folder: Path
    environment: Mapping[str, str]
    cores: int = 1
    memory: str = "1200m"
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
            return BoundProcess([program, *command], cwd=folder, env=self.environment, output=log)

    def start_worker(self) -> None:
        """Starts one more worker."""
        name = f"worker-{len(self.workers)}"
        options = ["-c", str(self.cores), "-m", self.memory, "--webui-port", str(free_port())]
        options += ["--host", "127.0.0.1", "-d", str(self.folder / name)]
        worker = self.start(name, [f"{_DEPLOY}.worker.Worker", *options, self.address])
        self.workers.append(worker)

    def replace_worker(self) -> None:
        """Kills the newest worker with its executors, as a machine dies, and starts another one."""
        os.kill(self.workers[-1].pid, signal.SIGKILL)
        self.start_worker()

    def kill_executors(self) -> None:
        """Kills all executors; the workers start others."""
        for pid in self.executors():
            os.kill(pid, signal.SIGKILL)

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
    environment = {**os.environ, **environment, **quiet, **java}
    cluster = Cluster(folder=folder, environment=environment, cores=cores)
    with ExitStack() as stack:
        options = ["--host", "127.0.0.1", "--port", str(cluster.port)]
        options += ["--webui-port", str(free_port())]
        master = cluster.start("master", [f"{_DEPLOY}.master.Master", *options])
        stack.callback(master.end)
        wait_until("the master answers", lambda: port_answers(cluster.port))
        stack.callback(lambda: [worker.end() for worker in cluster.workers])
        for _ in range(workers):
            cluster.start_worker()
        yield cluster


@dataclass(slots=True, kw_only=True)
class ConnectServer:
    """A Connect server whose driver uses the cluster; a restart keeps its address and token."""

    cluster: Cluster
    conf: Mapping[str, str]
    port: int = field(default_factory=free_port)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    process: BoundProcess | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What the environment of a client says to reach it."""
        return {"LAKEHOUSE_SPARK": f"sc://localhost:{self.port}", TOKEN_VARIABLE: self.token}

    def start(self) -> None:
        """Starts it and waits until it answers."""
        command = ["--master", self.cluster.address, "--class", _CONNECT]
        bind = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
        }
        for key, value in {**self.conf, **bind}.items():
            command += ["--conf", f"{key}={value}"]
        environment = {**self.cluster.environment, TOKEN_VARIABLE: self.token}
        starting = replace(self.cluster, environment=environment)
        self.process = process = starting.start("connect", [*command, "spark-internal"])
        wait_until(
            "the Connect server answers", lambda: not process.is_alive or port_answers(self.port)
        )
        assert process.is_alive, (self.cluster.folder / "connect.log").read_text()[-3000:]

    def kill(self) -> None:
        """Kills its JVM, as the kernel does when memory is short."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.end()

    @contextmanager
    def running(self) -> Iterator["ConnectServer"]:
        """Runs it for the block."""
        self.start()
        try:
            yield self
        finally:
            if self.process is not None:
                self.process.end()


def deployed_conf(told: Mapping[str, str]) -> dict[str, str]:
    """The configuration that deploy/ gives to a Connect server, with this machine's jars and storage."""
    lines = (ROOT / "deploy" / "spark-defaults.conf").read_text().splitlines()
    conf = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    all_jars = [str(jar) for jar in (*jars.fetch(), JAR)]
    return {
        **conf,
        **s3a_conf(told),
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": os.pathsep.join(all_jars),
        "spark.jars": ",".join(all_jars),
    }
