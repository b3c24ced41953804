"""What the report lists for a person, and the command that helps."""

from typing import Any

import pytest

from lakehouse import Append, Landing, Table
from lakehouse.core.attention import (
    LATE_HOURS,
    attention_to_checks,
    attention_to_inventory,
    attention_to_table,
)
from lakehouse.core.reasons import Reason
from lakehouse.core.units import HOUR_MS

KEY = "bronze/orders"
NOW_MS = 1_800_000_000_000


def table(**changed: Any) -> dict[str, Any]:
    """A table of the report in good health."""
    health = {"score": 90.0, "sentence": "good", "quarantine_rows": 0, **changed.pop("health", {})}
    fleet = {
        "reason": "BELOW_THRESHOLD",
        "sentence": "",
        "request": False,
        **changed.pop("fleet", {}),
    }
    plan = {"fleet": fleet}
    return {"table": KEY, "problem": "", "paused": "", "health": health, "plan": plan, **changed}


@pytest.mark.parametrize(
    ("changed", "level", "sentence", "command"),
    [
        ({"problem": "version 3 is missing"}, "bad", "version 3 is missing", "health"),
        ({"health": {"score": 49.0}}, "fair", "good", "plan"),
        ({"health": {"quarantine_rows": 2}}, "fair", "2 records in quarantine", "quarantine show"),
        ({"paused": "paused by hand"}, "fair", "paused by hand", "resume"),
    ],
)
def test_each_problem_of_a_table_has_the_command_that_helps(
    changed: dict[str, Any], level: str, sentence: str, command: str
) -> None:
    [found] = attention_to_table(table(**changed))
    assert (found.level, found.table, found.sentence) == (level, KEY, sentence)
    assert found.command == f"lakehouse {command} {KEY}"


def test_a_stopped_table_is_listed_once_and_a_good_one_never() -> None:
    stopped = {"reason": Reason.BREAKER_OPEN.name, "sentence": "3 failed in a row"}
    [found] = attention_to_table(table(fleet=stopped, health={"score": 10.0}))
    assert (found.sentence, found.command) == (
        "3 failed in a row",
        f"lakehouse history {KEY} --compactions",
    )
    assert attention_to_table(table()) == []
    # The sensor will compact it.
    waits = table(fleet={"reason": Reason.NO_SLOT.name}, health={"score": 10.0})
    assert attention_to_table(waits) == []
    [late] = attention_to_table(table(), late_vacuum_ms=0)
    assert late.sentence == "the last vacuum began at 1970-01-01 00:00 UTC"


def test_failed_checks_are_those_of_the_declared_tables_and_of_the_lake() -> None:
    source = Landing(prefix="landing/orders/", format="json", schema="id STRING")
    failed = [
        (KEY, "fresh"),
        (f"vacuum/{KEY}", "deleted"),
        ("inventory/bucket", "missing"),
        ("theirs", "good"),
        (KEY, "breaker"),
    ]
    found = attention_to_checks(failed, [Table(key=KEY, source=source, write=Append())])
    assert [(each.table, each.sentence.partition(" failed")[0]) for each in found] == [
        (KEY, f"the check fresh of {KEY}"),
        ("", "the check missing of inventory/bucket"),
        (KEY, f"the check deleted of vacuum/{KEY}"),
    ]


def test_an_inventory_is_missing_or_late_after_two_days() -> None:
    assert "there is no inventory" in attention_to_inventory(None, now_ms=NOW_MS)[0].sentence
    limit_ms = NOW_MS - LATE_HOURS * HOUR_MS
    assert attention_to_inventory(limit_ms, now_ms=NOW_MS) == []
    assert len(attention_to_inventory(limit_ms - 1, now_ms=NOW_MS)) == 1
