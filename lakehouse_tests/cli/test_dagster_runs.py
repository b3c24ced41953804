"""Runs in this process, without Spark: how failures in a run are told, and what is refused before one is made."""

import json

import dagster as dg
import pytest

from lakehouse.assets.runs import errors_for_dagster
from lakehouse.base.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.cli.dagster_runs import AssetRun, run_assets
from lakehouse_tests.support.terminal import Terminal


def run_of(*assets: dg.AssetsDefinition) -> dict[str, AssetRun]:
    """What a run of the assets is told to have done."""
    keys = ["/".join(asset.key.path) for asset in assets]
    with dg.DagsterInstance.ephemeral() as instance:
        runs = run_assets(instance, dg.Definitions(assets=list(assets)), keys)
        return {run.key: run for run in runs}


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (Refused("ask otherwise: why"), Refused, "ask otherwise: why"),
        (Transient("the table is held"), Transient, "the table is held"),
        (Broken("look at it"), Broken, "look at it"),
        (ValueError("no such thing\nand more"), Broken, "a defect: ValueError: no such thing"),
    ],
)
def test_an_error_in_a_run_comes_out_as_it_was_raised_at_once(
    error: Exception, kind: type[LakehouseError], said: str
) -> None:
    tries: list[int] = []

    @dg.asset(key=["bronze", "failing"])
    def failing(context: dg.AssetExecutionContext) -> None:
        tries.append(1)
        with errors_for_dagster(context):
            raise error

    run = run_of(failing)["bronze/failing"]
    assert (run.state, type(run.error), str(run.error)) == ("failed", kind, said)
    assert len(tries) == 1


def test_what_follows_a_failure_is_skipped_and_what_does_not_is_done() -> None:
    @dg.asset(key=["bronze", "failing"])
    def failing(context: dg.AssetExecutionContext) -> None:
        with errors_for_dagster(context):
            raise Refused("no")

    @dg.asset(key=["silver", "after"], deps=[failing])
    def after() -> None: ...

    @dg.asset(key=["silver", "other"])
    def other() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={"lakehouse/plan": "a sentence"})

    runs = run_of(failing, after, other)
    expected = {"bronze/failing": "failed", "silver/after": "skipped", "silver/other": "done"}
    assert {key: run.state for key, run in runs.items()} == expected
    assert runs["silver/other"].metadata == {"lakehouse/plan": "a sentence"}


def test_what_a_run_tells_of_an_asset_that_was_not_asked_for_is_said_and_is_no_run_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @dg.asset(key=["bronze", "written"])
    def written(context: dg.AssetExecutionContext) -> None:
        told = {"lakehouse/outcome": "2 files merge"}
        context.log_event(
            dg.AssetMaterialization(dg.AssetKey(["compaction", "bronze", "written"]), metadata=told)
        )

    assert {key: run.state for key, run in run_of(written).items()} == {"bronze/written": "done"}
    assert "compaction/bronze/written: 2 files merge" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("materialize",), ("compact", "bronze/orders")])
def test_a_dead_server_is_not_hidden_by_another(told: Terminal, arguments: tuple[str, ...]) -> None:
    folder = told.home / "server"
    folder.mkdir()
    (folder / "pid").write_text(
        json.dumps({"process": {"pid": 2**22 - 1, "born": "1"}, "keeper": None, "port": 1})
    )
    assert "lakehouse server start" in told.json(*arguments, exit_code=75)["error"]["message"]


def test_a_selection_without_tables_is_refused_with_what_is_near(told: Terminal) -> None:
    for selection in ("silver/order", "compaction/silver/orders", "(("):
        assert told.refused("materialize", selection).startswith(
            f"Refused: materialize {selection!r}: "
        )
    assert "silver/orders" in told.run("materialize", "silver/order").stderr
    # One wrong word among several writes nothing.
    assert told.refused("materialize", "silver/orders", "silver/order").startswith(
        "Refused: materialize 'silver/order': "
    )
