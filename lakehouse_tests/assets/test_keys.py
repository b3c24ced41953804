"""The times of upkeep reach its assets and schedules, and the pages for users name them."""

import inspect
from pathlib import Path

from lakehouse.adopt.maintain import MaintainedTables, maintain
from lakehouse.assets.keys import NIGHTLY_CRON, REPORT_CRON
from lakehouse.declare.policies import read_cron
from lakehouse.vacuum.inventory.asset import daily_and_once_soon
from lakehouse_tests.support.example_assets import TABLES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_inventory_and_the_vacuums_of_maintain_run_at_the_nightly_hour() -> None:
    default = inspect.signature(maintain).parameters["vacuum_cron"].default
    assert default == MaintainedTables.model_fields["vacuum_cron"].default == NIGHTLY_CRON
    assert NIGHTLY_CRON in str(daily_and_once_soon(TABLES))


def test_the_pages_for_users_name_the_nightly_hour() -> None:
    minutes, hours, *_ = read_cron(NIGHTLY_CRON)
    assert (
        f"runs daily at {min(hours):02}:{min(minutes):02} UTC" in (DOCS / "vacuum.md").read_text()
    )
    minutes, hours, *_ = read_cron(REPORT_CRON)
    assert (
        f"every morning at {min(hours):02}:{min(minutes):02} UTC"
        in (DOCS / "metrics.md").read_text()
    )
    assert f'`vacuum_cron` | `"{NIGHTLY_CRON}"`' in (DOCS / "your-dagster.md").read_text()
