"""A changed declaration and a rebuild from the terminal, through Dagster."""

from dataclasses import replace

import dagster as dg
import pytest

from lakehouse.base.settings import Settings
from lakehouse_tests.cli.test_through_dagster import LATEST, ORDERS, land, records, run, settings
from lakehouse_tests.support import example_terminal as example
from lakehouse_tests.support.shapes import documented, shape
from lakehouse_tests.support.terminal import Terminal

__all__ = ["settings"]  # fixtures


def test_a_changed_declaration_is_planned_and_applied(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wider type and a new name of a landed column; files with the earlier name load afterwards."""
    land(settings, "1.json", {"id": "a", "amount": 1, "d": "1"})
    run(settings, "materialize", ORDERS)
    assert run(settings, "evolve", ORDERS, "--dry-run")[0]["changes"] == []
    wider = replace(
        example.orders,
        source=replace(example.orders.landing, schema="id STRING, cents DECIMAL(20,0), d STRING"),
        renamed={"amount": "cents"},
    )
    monkeypatch.setattr(example, "orders", wider)
    monkeypatch.setattr(example, "latest_orders", None)
    monkeypatch.setattr(example, "totals", None)
    land(settings, "2.json", {"id": "b", "amount": 2, "d": "1"})
    refused = Terminal(settings.home, **settings.as_environ()).run("materialize", ORDERS)
    assert refused.exit_code == 2
    assert f"Use `lakehouse evolve {ORDERS} --dry-run`" in refused.stderr
    [planned] = run(settings, "evolve", ORDERS, "--dry-run")
    assert [(each["kind"], each["blocks"]) for each in planned["changes"]] == [
        ("COLUMN_RENAMED", True),
        ("TYPE_WIDENED", True),
    ]
    assert (planned["rebuild"]["source"], planned["rebuild"]["rows"]) == ("rows", "same")
    [applied] = run(settings, "evolve", ORDERS)
    assert applied["rebuild"]["actual"]["rows_written"] == 1
    assert applied["left"]["changes"] == []
    [done] = run(settings, "materialize", ORDERS)
    assert (done["rows_written"], done["version"]) == (1, 2)
    assert run(settings, "evolve", ORDERS)[0]["sentences"] == [
        "nothing to apply: the declaration and the table agree"
    ]


def test_a_rebuild_is_planned_done_and_on_the_page_of_its_table(settings: Settings) -> None:
    """New rows are a materialization, which tables downstream follow. The same rows are an observation."""
    land(settings, "1.json", {"id": "a", "amount": 1, "d": "1"})
    run(settings, "materialize", ORDERS, LATEST)
    planned = run(settings, "rebuild", LATEST, "--dry-run")
    assert (planned["plan"]["source"], planned["plan"]["version"]) == ("inputs", 0)
    done = run(settings, "rebuild", LATEST)
    assert shape(done) == shape({**documented()["rebuild"], "plan": done["plan"]})
    assert done["plan"]["readers"] == []
    assert (done["actual"]["version_after"], done["actual"]["rows_written"]) == (1, 1)
    assert run(settings, "rebuild", ORDERS)["plan"]["rows"] == "same"
    with records(settings) as instance:
        materialized = instance.get_latest_materialization_event(dg.AssetKey(LATEST.split("/")))
        orders = dg.AssetKey(ORDERS.split("/"))
        observed = instance.fetch_observations(orders, limit=1).records
    assert materialized is not None and materialized.asset_materialization is not None
    metadata = materialized.asset_materialization.metadata
    assert metadata["lakehouse/version"].value == 1
    assert observed[0].asset_observation is not None
    assert observed[0].asset_observation.metadata["lakehouse/version"].value == 1
