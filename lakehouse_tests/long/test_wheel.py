"""The package as a wheel: built from a copy of the tree, and used where no checkout is."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

HOUSE = Path(__file__).resolve().parents[2]
# What every installation brings. One more library has to be worth its megabytes to those without Spark.
BASE = [
    "click",
    "dagster",
    "deltalake",
    "jinja2",
    "prometheus_client",
    "psutil",
    "pyarrow",
    "pyyaml",
    "rich",
]
SCRIPT = """
import importlib.metadata, lakehouse
from dagster.components.core.package_entry import discover_entry_point_package_objects
from lakehouse.runtime.checkout import ROOT
from lakehouse.runtime.jars import pinned
found = {f"{key.namespace}.{key.name}" for key in discover_entry_point_package_objects()}
print(lakehouse.__file__, ROOT, len(pinned()) > 10, "lakehouse.MaintainedTables" in found)
"""


def test_a_wheel_has_its_entry_points_and_data_and_keeps_its_state_where_it_is_used(
    tmp_path: Path,
) -> None:
    tree, site, work = tmp_path / "tree", tmp_path / "site", tmp_path / "work"
    shutil.copytree(
        HOUSE / "lakehouse", tree / "lakehouse", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(HOUSE / name, tree)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        ".",
        "--no-deps",
        "--no-build-isolation",
        "--quiet",
        "--wheel-dir",
        str(tmp_path),
    ]
    subprocess.run(build, cwd=tree, check=True)
    [wheel] = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    [metadata] = site.glob("*.dist-info/METADATA")
    asked = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata.read_text(), re.MULTILINE)
    assert sorted(asked) == BASE
    work.mkdir()
    write_deltalake(work / "orders", pa.table({"id": [1]}))
    own = {
        name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")
    } | {"PYTHONPATH": str(site)}

    def run(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=work,
            env=own,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    assert run("-c", SCRIPT).split() == [
        str(site / "lakehouse/__init__.py"),
        str(work),
        "True",
        "True",
    ]
    assert "added to" in run("-m", "lakehouse", "adopt", "./orders")
    assert (work / "adopted.toml").is_file()
