"""The front door: everything follows from the declarations, and opening it starts nothing."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import dagster as dg
import pytest

from lakehouse.base.errors import Refused
from lakehouse.base.installation import ROOT
from lakehouse.base.settings import Settings
from lakehouse.definitions import define
from lakehouse_tests.support.example_assets import example_settings

BRONZE = """
    from lakehouse import Append, Landing, Table

    events = Table(key="bronze/events", source=Landing(prefix="landing/events/", format="json", schema="id STRING"), write=Append())
"""
INVENTORY = {f"inventory/local:{name}" for name in ("missing", "readable")}
CHECKS = ("breaker", "declaration", "log_debt", "readable", "small_files")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A tables package of this test's own, with one landed table."""
    name = f"tables_of_{request.node.name.partition('[')[0]}"
    write(tmp_path / name / "__init__.py", "")
    write(tmp_path / name / "bronze.py", BRONZE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def write(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(dedent(text))


def settings_of(package: str, tmp_path: Path) -> Settings:
    return example_settings(tmp_path / "home", LAKEHOUSE_TABLES=package)


COSTS = {"costs/chargeback"}


def listed(definitions: dg.Definitions) -> tuple[set[str], set[str], dict[str, set[str]]]:
    """Assets that can be materialized, checks, and what each sensor may ask for."""
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    repository = definitions.get_repository_def()
    sensors = {
        sensor.name: {
            key.to_user_string()
            for key in (sensor.asset_selection or sensor.job.selection).resolve(graph)
        }
        for sensor in repository.sensor_defs
    }
    return (
        {key.to_user_string() for key in graph.materializable_asset_keys},
        {f"{key.asset_key.to_user_string()}:{key.name}" for key in graph.asset_check_keys},
        sensors,
    )


def test_a_declaration_gives_asset_checks_compaction_and_its_place_in_the_sensors(
    package: str, tmp_path: Path
) -> None:
    assets, checks, sensors = listed(define(settings_of(package, tmp_path)))
    upkeep = {"compaction/bronze/events", "vacuum/bronze/events", "maintenance/records"}
    assert assets == {"bronze/events", "inventory/local", "report/daily", *upkeep, *COSTS}
    of_table = {f"bronze/events:{name}" for name in (*CHECKS, "quarantine")}
    assert checks == {"vacuum/bronze/events:deleted", *of_table, *INVENTORY}
    assert sensors == {
        "landing_sensor": {"bronze/events"},
        "automation_sensor": {
            "vacuum/bronze/events",
            "maintenance/records",
            "inventory/local",
            "report/daily",
            *COSTS,
        },
        "compaction_sensor": {"compaction/bronze/events"},
        "inventory_sensor": {"inventory/local"},
    }


def test_every_sensor_is_on_from_the_start_and_ticks_without_java(
    package: str, tmp_path: Path, no_java: None
) -> None:
    definitions = define(settings_of(package, tmp_path))
    repository = definitions.get_repository_def()
    with dg.instance_for_test() as instance:
        for sensor in repository.sensor_defs:
            assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
            if not isinstance(sensor, dg.AutomationConditionSensorDefinition):
                with dg.build_sensor_context(
                    instance=instance, repository_def=repository
                ) as context:
                    assert sensor.evaluate_tick(context).skip_message


@pytest.mark.parametrize("text", ["1 / 0", "import nothing_of_that_name", "def broken(:"])
def test_a_broken_module_is_named(package: str, tmp_path: Path, text: str) -> None:
    write(tmp_path / package / "wrong.py", text)
    sys.modules.pop(f"{package}.wrong", None)
    with pytest.raises(Refused, match=f"{package}.wrong cannot be imported"):
        define(settings_of(package, tmp_path))


def test_a_lake_without_tables_loads(package: str, tmp_path: Path) -> None:
    write(tmp_path / package / "bronze.py", "")
    assets, checks, sensors = listed(define(settings_of(package, tmp_path)))
    assert (assets, checks, sensors) == (set(), set(), {})


def test_opening_it_starts_nothing_and_loads_nothing_heavy(package: str, tmp_path: Path) -> None:
    heavy = ["boto3", "deltalake", "grpc", "matplotlib", "pandas", "pyspark.sql.connect.session"]
    code = f"import sys, lakehouse.definitions; print([name for name in {heavy} if name in sys.modules])"
    environment = {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("LAKEHOUSE_", "JAVA_"))
        },
        "PATH": "",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "LAKEHOUSE_TABLES": package,
        "LAKEHOUSE_HOME": str(tmp_path / "home"),
        "LAKEHOUSE_REPLAY": "off",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
    assert not (tmp_path / "home").exists()
