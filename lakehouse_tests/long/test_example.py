"""The example project as its README tells it: deltalake writes, the sensors see it, and Spark compacts what deltalake reads on."""

import importlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
import yaml
from deltalake import DeltaTable

from lakehouse.base.settings import Settings
from lakehouse_tests.support.dagster_events import sensor_tick

if TYPE_CHECKING:
    pass

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "warehouse"
pytestmark = pytest.mark.spark


@pytest.fixture
def definitions(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dg.Definitions:
    """Its definitions, with its tables in a folder of this test, and its runs on the shared server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name, value in settings.as_environ().items():
        monkeypatch.setenv(name, value)
    for name in [name for name in sys.modules if name.startswith("warehouse_project")]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("warehouse_project.definitions").defs


def test_what_deltalake_writes_is_observed_compacted_and_read_on(
    definitions: dg.Definitions, tmp_path: Path
) -> None:
    repository, job = (
        definitions.get_repository_def(),
        definitions.resolve_implicit_global_asset_job_def(),
    )
    with dg.instance_for_test(
        overrides=yaml.safe_load((EXAMPLE / "dagster.yaml").read_text())
    ) as instance:

        def run(*keys: str) -> Any:
            done = job.execute_in_process(
                instance=instance,
                asset_selection=[dg.AssetKey.from_user_string(key) for key in keys],
            )
            assert done.success
            return done

        tick = partial(sensor_tick, instance, repository)
        for _ in range(5):
            run("sales/orders")
        run("sales/customers")
        before = DeltaTable(tmp_path / "warehouse/orders").to_pyarrow_table().sort_by("order")
        tick("maintenance_observation")
        [request] = tick("maintenance_compaction").run_requests
        [key] = request.asset_selection
        assert key == dg.AssetKey(["compaction", "silver", "sales_orders"])
        done = run(key.to_user_string())
        [event] = done.asset_materializations_for_node(key.to_python_identifier())
        after = DeltaTable(tmp_path / "warehouse/orders")
        removed = event.metadata["lakehouse/compaction"].value["figures"]["files_removed"]
        assert removed["actual"] == removed["predicted"] > 2
        assert after.to_pyarrow_table().sort_by("order").equals(before)
        assert len(after.file_uris()) < 5
        assert not (tmp_path / "warehouse/orders/_lakehouse").exists()
        tick("maintenance_observation")
        assert not tick("maintenance_compaction").run_requests
        run("vacuum/silver/sales_orders", "vacuum/silver/sales_customers")
        assert DeltaTable(tmp_path / "warehouse/orders").to_pyarrow_table().num_rows == 5
        run("sales/orders")
