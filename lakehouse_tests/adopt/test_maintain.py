"""Upkeep in anyone's Dagster project: found by metadata or named, in Python and in YAML. No Java."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components.core.package_entry import get_package_objects_in_module
from deltalake import DeltaTable, write_deltalake

import lakehouse
from lakehouse import (
    Archive,
    Compaction,
    MaintainedTables,
    Ttl,
    Vacuum,
    maintain,
    maintained_metadata,
)
from lakehouse.adopt.maintain import _TABLES
from lakehouse.assets.dagster_records import runs_in_flight
from lakehouse.base.errors import Refused
from lakehouse.base.settings import parse_settings
from lakehouse.declare.adopted import adopted_lines, adopted_table
from lakehouse.declare.table import Adopted, Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.lake.state_tables import vacuum_records
from lakehouse.store import DiskStore
from lakehouse_tests.log_builder import START_MS, LogBuilder
from lakehouse_tests.support.dagster_events import sensor_tick

pytestmark = pytest.mark.usefixtures("no_java")


@dg.asset(key=["sales", "orders"], metadata={"dagster/uri": "w/orders"}, pool="orders_pool")
def orders() -> None:
    """A table of the project."""


@dg.asset(metadata={"uri": dg.MetadataValue.path("w/customers")}, pool="customers_pool")
def customers() -> None:
    """Another one."""


@dg.asset(metadata={"dagster/uri": "snowflake://account/db/table"})
def elsewhere() -> None:
    """A table, but not of Delta."""


@dg.asset
def plain() -> None:
    """No table at all."""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which Dagster runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assets_of(definitions: dg.Definitions) -> set[str]:
    return {
        key.to_user_string() for key in definitions.resolve_asset_graph().materializable_asset_keys
    }


def sensors_of(definitions: dg.Definitions) -> set[str]:
    return {sensor.name for sensor in definitions.get_repository_def().sensor_defs}


def test_assets_with_an_address_get_upkeep_and_stay_their_project_s_own() -> None:
    everything = [orders, customers, elsewhere, plain]
    merged = dg.Definitions.merge(dg.Definitions(assets=everything), maintain(everything))
    upkeep = {
        f"{kind}/silver/{name}"
        for kind in ("compaction", "vacuum")
        for name in ("sales_orders", "customers")
    }
    own = {"sales/orders", "customers", "elsewhere", "plain"}
    assert assets_of(merged) == own | upkeep | {"report/maintenance"}
    expected = {"maintenance_observation", "maintenance_compaction", "maintenance_vacuum"}
    assert sensors_of(merged) == expected
    checks = {
        f"{key.asset_key.to_user_string()}:{key.name}"
        for key in merged.resolve_asset_graph().asset_check_keys
    }
    names = ("health", "readable", "small_files", "log_debt", "breaker")
    assert {f"sales/orders:{name}" for name in names} < checks
    graph = merged.resolve_asset_graph()
    compaction = graph.get(dg.AssetKey(["compaction", "silver", "sales_orders"]))
    assert compaction.metadata["lakehouse/table"] == dg.MetadataValue.asset(
        dg.AssetKey(["sales", "orders"])
    )


def test_the_compaction_waits_for_its_writer_in_the_writer_s_pool() -> None:
    definitions = maintain([orders])
    [compaction] = [each for each in definitions.assets or () if each.key.path[0] == "compaction"]  # type: ignore[union-attr]
    assert isinstance(compaction, dg.AssetsDefinition) and compaction.op.pool == "orders_pool"


def test_a_project_may_have_a_spark_of_its_own_and_call_it_twice() -> None:
    own = dg.Definitions(
        assets=[orders, customers],
        resources={"spark": dg.ResourceDefinition.hardcoded_resource("theirs")},
    )
    merged = dg.Definitions.merge(
        own, maintain([orders], name="hourly"), maintain([customers], name="daily", layer="gold")
    )
    assert {"hourly_compaction", "daily_compaction"} < sensors_of(merged)
    assert {"compaction/silver/sales_orders", "compaction/gold/customers"} < assets_of(merged)
    dg.Definitions.validate_loadable(merged)


def test_a_key_is_the_whole_asset_key_whatever_else_is_maintained() -> None:
    paths = ("raw/orders", "sales/orders")
    tables = {key: f"w/{key}" for key in paths}
    both = assets_of(maintain(tables)) - {"report/maintenance"}
    calls = [maintain({key: tables[key]}, name=key.partition("/")[0]) for key in reversed(paths)]
    merged = assets_of(dg.Definitions.merge(*calls))
    assert merged - {"report/raw", "report/sales"} == both
    assert both > {"vacuum/silver/raw_orders", "vacuum/silver/sales_orders"}


REFUSED: dict[str, tuple[Any, str]] = {
    "nothing to maintain": ([elsewhere, plain], "no asset has dagster/uri or uri in its metadata"),
    "no asset": ([object()], "is not an asset"),
    "no address": ({"orders": "gs://b/t"}, "asset orders: .*Use a folder, file:///folder or s3://"),
    "a storage that is not served": (
        [dg.AssetSpec("orders", metadata={"uri": "abfss://c@a/t"})],
        "asset orders: .* If its table is stored elsewhere, leave this asset out of the call",
    ),
    "one table twice": ({"a": "w/t", "b": "w/t"}, "are both"),
    "two asset keys of one key": (
        {"sales/orders": "w/a", "sales_orders": "w/b"},
        "sales/orders and sales_orders would both be",
    ),
    "a table inside another": ({"a": "w/t", "b": "w/t/inside/b"}, "in the folder of"),
}


@pytest.mark.parametrize(("tables", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_maintained_is_refused(tables: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        maintain(tables)


@pytest.fixture
def cloned(project: Path) -> None:
    """A table whose removed file is past its retention, and a clone that reads that."""
    store = DiskStore(project)
    LogBuilder(store, "w/orders").create().append([("live", 10), ("gone", 30)]).store_data().delete(
        ["gone"]
    )
    LogBuilder(store, "w/clone").create().append([(f"file:{project}/w/orders/gone", 30)])
    written = START_MS / 1_000 - 60
    os.utime(project / "w/orders/gone", (written, written))


def vacuumed(definitions: dg.Definitions) -> dg.ExecuteInProcessResult:
    job = definitions.resolve_implicit_global_asset_job_def()
    key = dg.AssetKey(["vacuum", "silver", "orders"])
    with dg.DagsterInstance.ephemeral() as instance:
        return job.execute_in_process(
            instance=instance, asset_selection=[key], raise_on_error=False
        )


def own_lake(project: Path) -> Lake:
    return open_lake(parse_settings({}, base=project))


@pytest.mark.usefixtures("cloned")
def test_a_vacuum_keeps_the_files_that_a_table_of_another_call_borrows(project: Path) -> None:
    first = maintain({"orders": "w/orders"}, name="first")
    maintain({"clone": "w/clone"}, name="second")
    assert vacuumed(first).success
    [vacuum] = vacuum_records(own_lake(project), "silver/orders")
    assert vacuum.kept == ["gone"]


@pytest.mark.usefixtures("cloned")
def test_a_vacuum_keeps_the_files_that_an_adopted_table_borrows(project: Path) -> None:
    """An entry for a table that is maintained is that table, under whatever key."""
    entries = [
        adopted_table("silver/clone", f"{project}/w/clone"),
        adopted_table("silver/same", f"{project}/w/orders"),
    ]
    (project / "adopted.toml").write_text("\n".join(map(adopted_lines, entries)))
    assert vacuumed(maintain({"orders": "w/orders"})).success
    [vacuum] = vacuum_records(own_lake(project), "silver/orders")
    assert vacuum.kept == ["gone"]


def test_an_adopted_table_of_a_key_that_is_maintained_holds_the_vacuum_back(project: Path) -> None:
    LogBuilder(DiskStore(project), "w/orders").create().append([("live", 10)]).store_data()
    (project / "adopted.toml").write_text(
        adopted_lines(adopted_table("silver/orders", f"{project}/w/clone"))
    )
    [failure] = [
        event
        for event in vacuumed(maintain({"orders": "w/orders"})).all_events
        if event.event_type_value == "STEP_FAILURE"
    ]
    said = f"maintain already uses the key silver/orders, for {project}/w/orders; "
    assert said in str(failure.step_failure_data.error)
    expected = "Refused"
    assert failure.step_failure_data.user_failure_data.metadata["lakehouse/error"].value == expected


def test_an_asset_records_the_state_of_its_table(project: Path) -> None:
    """Its page shows the newest materialization, and no observation."""

    @dg.asset(metadata={"dagster/uri": "w/sales"})
    def sales() -> dg.MaterializeResult[Any]:
        assert maintained_metadata("sales") == {}  # there is no table yet
        write_deltalake(project / "w/sales", pa.table({"id": [1, 2, 3]}))
        return dg.MaterializeResult(metadata=maintained_metadata("sales"))

    maintain([sales])
    result = dg.materialize([sales])
    metadata = result.asset_materializations_for_node("sales")[0].metadata
    assert metadata["dagster/row_count"].value == 3
    assert metadata["lakehouse/file_count"].value == 1
    with pytest.raises(Refused, match="no call of maintain has asset other/sales"):
        maintained_metadata("other/sales")


def test_two_calls_may_not_have_one_table() -> None:
    maintain({"orders": "w/orders"})
    with pytest.raises(Refused, match="are both"):
        maintain({"orders": "w/orders"}, name="again", layer="gold")


@pytest.mark.parametrize(
    ("own", "maintained"),
    [
        ([orders], [orders]),
        pytest.param([orders], {"sales/orders": "w/orders"}, marks=pytest.mark.long),
        pytest.param([], {"sales/orders": "w/orders"}, marks=pytest.mark.long),
    ],
    ids=["its asset", "the key of its asset", "no asset of this code location"],
)
def test_a_missing_table_is_awaited_and_compacted(project: Path, own: Any, maintained: Any) -> None:
    definitions = dg.Definitions.merge(
        dg.Definitions(assets=own), maintain(maintained, compaction=Compaction(min_small_files=2))
    )
    dg.Definitions.validate_loadable(definitions)
    repository = definitions.get_repository_def()
    with dg.instance_for_test(
        overrides={"concurrency": {"pools": {"default_limit": 1}}}
    ) as instance:
        tick = partial(sensor_tick, instance, repository)
        first = tick("maintenance_observation")
        assert not first.asset_events and not tick("maintenance_compaction").run_requests
        LogBuilder(DiskStore(project), "w/orders").create().append([("a", 1), ("b", 1)])
        assert tick("maintenance_observation", first.cursor).asset_events
        [request] = tick("maintenance_compaction").run_requests
        assert request.asset_selection == [dg.AssetKey(["compaction", "silver", "sales_orders"])]


def test_a_table_that_fails_in_a_run_of_several_fails_alone(project: Path) -> None:
    for name in ("a", "broken", "z"):
        for number in range(3):
            write_deltalake(project / "w" / name, pa.table({"id": [number]}), mode="append")
    next((project / "w/broken").glob("*.parquet")).unlink()
    tables = {name: f"w/{name}" for name in ("a", "broken", "z")}
    definitions = maintain(tables, compaction=Compaction(min_small_files=2))
    selection = [dg.AssetKey(["compaction", "silver", name]) for name in tables]
    with dg.instance_for_test() as instance:
        run = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, asset_selection=selection, raise_on_error=False
        )
    done = {event.asset_key.path[-1] for event in run.get_asset_materialization_events()}
    assert (run.success, done) == (False, {"a", "z"})
    left = {name: len(DeltaTable(project / "w" / name).file_uris()) for name in tables}
    assert left == {"a": 1, "broken": 3, "z": 1}


def test_each_word_reaches_its_tables(project: Path) -> None:
    vacuum, compaction = Vacuum(after_compaction=True), Compaction(min_small_files=7)
    made = maintain(
        {"sales/orders": "orders"},
        layer="bronze",
        orphans="delete",
        compaction=compaction,
        vacuum=vacuum,
        archive=Archive(older_than_days=62),
        vacuum_cron="15 3 * * *",
        base=project / "elsewhere",
        name="nightly",
    )
    [table] = _TABLES[str(project / "elsewhere/.lakehouse/lake")].values()
    assert table.write == Adopted(
        uri=str(project / "elsewhere/orders"), orphans="delete", asset_key=("sales", "orders")
    )
    assert (table.key, table.compaction) == ("bronze/sales_orders", compaction)
    assert table.vacuum == vacuum
    vacuums = made.resolve_asset_graph().get(dg.AssetKey(["vacuum", "bronze", "sales_orders"]))
    assert "15 3 * * *" in str(vacuums.automation_condition)
    assert table.archive == Archive(older_than_days=62)
    assert "archive/bronze/sales_orders" in assets_of(made)
    message = "silver/sales_orders is at s3://warehouse/orders, and its archive would be in"
    with pytest.raises(Refused, match=message):
        maintain({"sales/orders": "s3://warehouse/orders"}, archive=Archive(), base=project)
    assert sensors_of(made) == {"nightly_observation", "nightly_compaction", "nightly_vacuum"}


YAML = """
tables:
  sales/orders: w/orders
orphans: delete
layer: gold
min_small_files: 4
target_file_bytes: 1048576
vacuum_cron: 15 3 * * *
ttl:
  column: at
  days: 30
name: hourly
"""


def test_the_component_gives_the_same_in_yaml_from_the_project_s_root(tmp_path: Path) -> None:
    component = MaintainedTables.resolve_from_yaml(YAML)
    assert (component.tables, component.min_small_files) == ({"sales/orders": "w/orders"}, 4)
    context = dg.ComponentTree.for_test().load_context
    definitions = component.build_defs(context)
    assert sensors_of(definitions) == {"hourly_observation", "hourly_compaction", "hourly_vacuum"}
    assert {"compaction/gold/sales_orders", "vacuum/gold/sales_orders"} <= assets_of(definitions)
    [table] = _TABLES[str(context.project_root / ".lakehouse/lake")].values()
    assert table.compaction == Compaction(min_small_files=4, target_file_bytes=1_048_576)
    assert table.ttl == Ttl(column="at", days=30)
    assert isinstance(table.write, Adopted) and table.write.orphans == "delete"
    vacuum = definitions.resolve_asset_graph().get(dg.AssetKey(["vacuum", "gold", "sales_orders"]))
    assert "15 3 * * *" in str(vacuum.automation_condition)


def test_dagster_finds_the_component_behind_the_entry_point() -> None:
    import tomllib

    project = tomllib.loads((Path(lakehouse.__file__).parents[1] / "pyproject.toml").read_text())
    expected = {"lakehouse": "lakehouse"}
    assert project["project"]["entry-points"]["dagster_dg_cli.registry_modules"] == expected
    assert dict(get_package_objects_in_module(lakehouse)) == {"MaintainedTables": MaintainedTables}


def test_a_job_of_the_project_is_waited_for_by_the_tables_that_it_writes_and_no_others(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    @dg.op
    def unrelated() -> None: ...

    @dg.job
    def other() -> None:
        unrelated()

    minutely = dg.define_asset_job("minutely", [orders])
    definitions = dg.Definitions(assets=[orders, customers], jobs=[minutely, other])
    tables = [
        Table(key=f"silver/{name}", write=Adopted(uri=f"{tmp_path}/{name}", asset_key=asset_key))
        for name, asset_key in (("orders", ("sales", "orders")), ("customers", ("customers",)))
    ]
    for name in ("minutely", "other"):
        instance.create_run_for_job(definitions.resolve_job_def(name))
    found = runs_in_flight(instance, tables)
    assert [(each.table, each.is_compaction) for each in found] == [("silver/orders", False)]
