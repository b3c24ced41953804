"""The package as a wheel: built from a copy of the tree, and used where no checkout is."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
    "python-dotenv",
    "pyyaml",
    "rich",
]
# In bytes, without what Python compiles. On a disk with blocks of 4 KiB, 5 % more.
MOST_BYTES = 400_000_000
SCRIPT = """
import importlib.metadata, lakehouse
from dagster.components.core.package_entry import discover_entry_point_package_objects
from lakehouse.base.installation import ROOT
from lakehouse.spark.server.jars import pinned
found = {f"{key.namespace}.{key.name}" for key in discover_entry_point_package_objects()}
print(lakehouse.__file__, ROOT, len(pinned()) > 10, "lakehouse.MaintainedTables" in found)
"""


def test_a_wheel_has_entry_points_and_data_and_keeps_state_where_it_is_used(tmp_path: Path) -> None:
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


def test_what_every_installation_brings_is_400_megabytes_at_most() -> None:
    """At the versions of this environment; pyarrow and deltalake are three quarters of it."""
    waiting, seen = [*BASE], set[str]()
    size_bytes = sum(
        file.stat().st_size
        for file in (HOUSE / "lakehouse").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        found = distribution(name)
        size_bytes += sum(
            Path(str(file.locate())).stat().st_size
            for file in found.files or ()
            if file.suffix != ".pyc" and Path(str(file.locate())).exists()
        )
        needed = [Requirement(text) for text in found.requires or ()]
        waiting += [
            each.name
            for each in needed
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    assert size_bytes <= MOST_BYTES, f"{size_bytes / 1e6:.1f} MB: {sorted(seen)}"
