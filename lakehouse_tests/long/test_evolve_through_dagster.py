"""A changed declaration from the terminal, through Dagster."""

from dataclasses import replace

import pytest

from lakehouse.base.settings import Settings
from lakehouse_tests.cli.test_through_dagster import ORDERS, land, run, settings
from lakehouse_tests.support import example_terminal as example
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
