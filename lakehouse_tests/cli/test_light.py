"""The commands that only look: in a process of their own they load nothing heavy, and start nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from deltalake import DeltaTable

from lakehouse_tests.support.terminal import Terminal

HEAVY = {"pyspark", "dagster", "boto3", "botocore", "pandas", "matplotlib", "deltalake", "py4j"}

# For each command its exit code, and what was loaded and which processes were started until then: a line each on standard error.
PROBE = """
import json, sys
started = []
def hear(event, arguments):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"):
        started.append(str(arguments[0]) if arguments else event)
sys.addaudithook(hear)
from lakehouse.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv, code = ["lakehouse", *arguments], None
    try:
        main()
    except SystemExit as end:
        code = end.code
    loaded = sorted({name.partition(".")[0] for name in sys.modules})
    print(json.dumps({"code": code, "loaded": loaded, "started": started}), file=sys.stderr)
"""
LOOKS = (
    ("tables",),
    ("health",),
    ("plan",),
    ("pause", "bronze/orders"),
    ("landing", "bronze/orders"),
    ("resume", "bronze/orders"),
    ("history", "silver/orders"),
    ("compact", "bronze/orders", "--dry-run"),
    ("backtest", "silver/orders", "--min-small-files", "4"),
    ("server",),
    ("doctor", "--settings"),
)


def ended(command: list[str], environ: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


def test_commands_that_look_load_nothing_heavy_and_start_no_process(told: Terminal) -> None:
    DeltaTable(str(told.root / "bronze/orders")).create_checkpoint()
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")},
        **told.environ,
        "PATH": "",
    }
    environ.pop("JAVA_HOME", None)
    metrics = ("metrics",)
    commands = (*((*arguments, "--json") for arguments in LOOKS), metrics)
    done = ended([sys.executable, "-c", PROBE, json.dumps(commands)], environ)
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"code"')]
    told_of = [
        (each["code"] or 0, HEAVY.intersection(each["loaded"]), each["started"]) for each in seen
    ]
    assert dict(zip(commands, told_of, strict=True)) == dict.fromkeys(commands, (0, set(), []))
    documents, text = 0, done.stdout.partition("\n# HELP ")[0].strip()
    while text:
        _, end = json.JSONDecoder().raw_decode(text)
        documents, text = documents + 1, text[end:].strip()
    assert documents == len(LOOKS)


def test_the_module_and_the_command_are_the_same_and_give_their_exit_code(told: Terminal) -> None:
    environ = {**os.environ, **told.environ}
    for arguments, code in ((["plan", "bronze/orders"], 0), (["plan", "nothing/here"], 2)):
        done = ended([sys.executable, "-m", "lakehouse", *arguments], environ)
        assert done.returncode == code, done.stderr


def test_a_reader_that_stops_reading_is_no_defect(told: Terminal) -> None:
    command = f"{sys.executable} -m lakehouse plan --verbose | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = ended(["bash", "-c", command], {**os.environ, **told.environ})
    assert "Traceback" not in done.stderr, done.stderr
