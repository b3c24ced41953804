"""The commands that only look: in a process of their own they load nothing heavy, and start nothing."""

import json
import os
import subprocess
import sys

import pytest

from lakehouse_tests.cli.conftest import Terminal

HEAVY = {"pyspark", "dagster", "boto3", "botocore", "pandas", "matplotlib", "deltalake", "py4j"}

# What the command loaded and which processes it started, on standard error's last line.
PROBE = """
import json, sys
started = []
def hear(event, arguments):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"):
        started.append(str(arguments[0]) if arguments else event)
sys.addaudithook(hear)
from lakehouse.cli import main
try:
    main()
finally:
    loaded = sorted({name.partition(".")[0] for name in sys.modules})
    print(json.dumps({"loaded": loaded, "started": started}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("tables", "--json"),
        ("health", "--json"),
        ("plan", "--json"),
        ("pause", "bronze/orders", "--json"),
        ("landing", "bronze/orders", "--json"),
        ("schema", "bronze/orders", "--json"),
        ("resume", "bronze/orders", "--json"),
        ("history", "silver/orders", "--json"),
        ("compact", "bronze/orders", "--dry-run", "--json"),
        ("backtest", "silver/orders", "--policy", "min_small_files=4", "--compare", "--json"),
        ("inventory", "scan", "--json"),
        ("server", "status", "--json"),
        ("config", "--json"),
    ],
)
def test_a_command_that_only_looks_loads_neither_spark_nor_dagster_and_starts_no_process(
    told: Terminal, arguments: tuple[str, ...]
) -> None:
    environ = {**{name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")}, **told.environ, "PATH": ""}
    environ.pop("JAVA_HOME", None)
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    seen = json.loads(done.stderr.splitlines()[-1])
    assert HEAVY.intersection(seen["loaded"]) == set()
    assert seen["started"] == []


def test_the_module_and_the_command_are_the_same_and_give_their_exit_code(told: Terminal) -> None:
    environ = {**os.environ, **told.environ}
    for arguments, code in ((["plan", "bronze/orders"], 0), (["plan", "nothing/here"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "lakehouse", *arguments], env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr


def test_a_reader_that_stops_reading_is_no_defect(told: Terminal) -> None:
    command = f"{sys.executable} -m lakehouse plan --verbose | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, **told.environ}, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
