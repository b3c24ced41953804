import fcntl
import os
import re
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

from lakehouse.base.installation import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BOOTSTRAP = (ROOT / "bootstrap.txt").read_text()
LOCK = BOOTSTRAP + (ROOT / "requirements.txt").read_text()


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    return {
        plain(name): version
        for name, version in re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([^ ]+)", LOCK, re.MULTILINE)
    }


def test_every_locked_package_has_sums_and_nothing_names_a_host() -> None:
    blocks = re.split(r"\n(?=[\w])", LOCK.replace("-r bootstrap.txt\n", ""))
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert re.findall(r"https?:|--(?:extra-)?index|--find-links|--trusted", LOCK) == []


def test_the_lock_holds_what_the_project_asks_for() -> None:
    asked = [*PYPROJECT["project"]["dependencies"]]
    for extra in PYPROJECT["project"]["optional-dependencies"].values():
        asked += [each for each in extra if not each.startswith("lakehouse[")]
    exact = dict(
        re.fullmatch(r"([\w-]+)(?:\[\w+\])?==([\w.]+).*", each).groups()
        for each in asked
        if "==" in each.split(";")[0]
    )  # type: ignore[union-attr]
    assert {name: pins()[plain(name)] for name in exact} == exact
    names = [re.match(r"[\w-]+", each)[0] for each in asked]  # type: ignore[index]
    assert [name for name in names if plain(name) not in pins()] == []


def checkout_of_the_makefile(folder: Path) -> Path:
    for name in re.findall(r"^LOCK := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[
        0
    ].split():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "Makefile", folder)
    return folder


def test_a_second_make_waits_for_the_first_and_finds_its_work_done(tmp_path: Path) -> None:
    folder = checkout_of_the_makefile(tmp_path)
    with (folder / "Makefile").open() as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second = subprocess.Popen(["make", "setup"], cwd=folder, stdout=subprocess.PIPE)
        time.sleep(2)
        assert second.poll() is None and not (folder / ".venv").exists()
        (folder / ".venv").mkdir()
        (folder / ".venv" / ".ready").touch()
    assert b"installing" not in second.communicate(timeout=60)[0]
    assert second.returncode == 0 and os.listdir(folder / ".venv") == [".ready"]


def test_the_jars_are_of_the_release_of_delta_that_is_locked() -> None:
    jars = (ROOT / "lakehouse" / "spark" / "server" / "jars.sha256").read_text()
    assert f"-{pins()['delta-spark']}.jar" in jars


def test_clean_leaves_every_lake_and_says_so() -> None:
    done = subprocess.run(
        ["make", "-n", "clean"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    removed = " ".join(
        line for line in done.splitlines() if line.startswith(("rm", "find"))
    ).split()
    assert [
        each
        for each in removed
        if each in (".lakehouse", ".lakehouse/", ".lakehouse/lake", ".lakehouse/dagster")
    ] == []
    assert "kept: .lakehouse/lake" in done


@pytest.mark.parametrize("name", ["ivy.xml", "ivysettings.xml", "jars.sha256", "log4j2.properties"])
def test_what_the_runtime_reads_beside_its_code_is_packaged(name: str) -> None:
    assert name in PYPROJECT["tool"]["setuptools"]["package-data"]["lakehouse.spark.server"]
    assert (ROOT / "lakehouse" / "spark" / "server" / name).exists()


def test_ci_runs_the_suite() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "make test"
