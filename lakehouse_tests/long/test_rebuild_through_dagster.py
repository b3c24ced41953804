"""A rebuild from the terminal, through Dagster."""

import dagster as dg

from lakehouse.base.settings import Settings
from lakehouse_tests.cli.test_through_dagster import LATEST, ORDERS, land, records, run, settings
from lakehouse_tests.support.shapes import documented, shape

__all__ = ["settings"]  # fixtures


def test_a_rebuild_is_planned_done_and_on_the_page_of_its_table(settings: Settings) -> None:
    """New rows are a materialization, which tables downstream follow. The same rows are an observation."""
    land(settings, "1.json", {"id": "a", "amount": 1, "d": "1"})
    run(settings, "materialize", ORDERS, LATEST)
    planned = run(settings, "rebuild", LATEST, "--dry-run")
    assert (planned["plan"]["source"], planned["plan"]["version"]) == ("inputs", 0)
    done = run(settings, "rebuild", LATEST)
    assert shape(done) == shape({**documented()["rebuild"], "plan": done["plan"]})
    assert done["plan"]["readers"] == ["gold/totals (Overwrite) computes all its rows again"]
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
