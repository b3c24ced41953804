"""Where `dagster dev` in the checkout keeps its records."""

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef

from lakehouse.base.installation import ROOT


def test_dagster_dev_without_dagster_home_keeps_its_records_in_the_home_of_the_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, home = tmp_path / "temporary", tmp_path / "home"
    temporary.mkdir()
    monkeypatch.setenv("LAKEHOUSE_HOME", str(home))
    monkeypatch.setenv("LAKEHOUSE_COMPACTION_SLOTS", "3")
    # Source: dagster 1.13, dagster/_cli/utils.py, _get_temporary_instance
    reference = InstanceRef.from_dir(str(temporary), config_dir=str(ROOT))
    with dg.DagsterInstance.from_ref(reference) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization("seen"))
        assert instance.get_concurrency_config().run_queue_config.max_concurrent_runs == 4
        assert instance.run_retries_enabled and instance.run_monitoring_enabled
        assert instance.root_directory == str(home / "dagster")
    assert not list(temporary.iterdir())
    with dg.DagsterInstance.from_config(str(home / "dagster")) as of_make_run:
        assert of_make_run.get_latest_materialization_event(dg.AssetKey("seen"))
