"""`lakehouse pause` and `resume`, and what a pause does to the other commands."""

import pytest

from lakehouse.base.clock import now_ms
from lakehouse_tests.support.terminal import Terminal

HOUR_MS = 3_600_000


def held(terminal: Terminal) -> dict[str, str]:
    """The reasons of the tables that are left alone."""
    reasons = {key: each["reason"] for key, each in terminal.compactions().items()}
    return {table: reason for table, reason in reasons.items() if reason == "PAUSED"}


def test_a_table_is_paused_until_it_is_resumed(told: Terminal) -> None:
    for command in ("pause", "resume"):
        assert "did you mean bronze/orders" in told.refused(command, "bronze/order")
    assert held(told) == {}
    paused = told.json("pause", "silver/orders", "--why", "a backfill\n is under way")
    assert abs(paused["since_ms"] - now_ms()) < 60_000
    pause = {
        "table": "silver/orders",
        "paused": True,
        "until_ms": None,
        "why": "a backfill is under way",
    }
    assert paused == {**pause, "since_ms": paused["since_ms"]}
    assert held(told) == {"silver/orders": "PAUSED"}
    assert (
        "until you run lakehouse resume silver/orders: a backfill is under way"
        in told.run("plan", "--verbose").stdout
    )
    assert told.json("resume", "silver/orders") == {**paused, "paused": False}
    assert held(told) == {}
    assert told.json("resume", "silver/orders")["since_ms"] is None
    assert told.run("resume", "silver/orders").stdout == "silver/orders: it was not paused\n"


@pytest.mark.parametrize(("until", "hours"), [("90m", 1.5), ("6h", 6), (" 3d ", 72)])
def test_a_pause_may_last_for_a_span(told: Terminal, until: str, hours: float) -> None:
    paused = told.json("pause", "bronze/orders", "--until", until)
    assert paused["until_ms"] == paused["since_ms"] + int(hours * HOUR_MS)
    assert held(told) == {"bronze/orders": "PAUSED"}


@pytest.mark.parametrize(
    "until", ["2999-12-01T06:00Z", "2999-12-01T06:00", "2999-12-01T07:00+01:00"]
)
def test_a_pause_may_last_until_a_moment_in_utc_by_default(told: Terminal, until: str) -> None:
    assert told.json("pause", "bronze/orders", "--until", until)["until_ms"] == 32_501_023_200_000
    assert ", until 2999-12-01 06:00 UTC" in told.run("plan", "--verbose").stdout


@pytest.mark.parametrize("until", ["0h", "1999-01-01", "soon", "3w", "", "-3h"])
def test_an_impossible_end_is_refused_and_nothing_is_paused(told: Terminal, until: str) -> None:
    result = told.refused("pause", "bronze/orders", f"--until={until}")
    assert result.startswith(f"Refused: --until is {until!r}") and "Use a future time" in result
    assert held(told) == {}


def test_a_paused_table_still_shows_its_plan_and_no_upkeep_of_it_runs(told: Terminal) -> None:
    told.run("pause", "bronze/orders", "--until", "6h", "--why", "a backfill")
    compaction, *others = told.json("plan", "bronze/orders")
    planned = told.json("compact", "bronze/orders", "--dry-run")
    assert compaction["sentence"].endswith(f": a backfill; {planned['sentence']}")
    assert {each["operation"]: each["reason"] for each in others} == {
        "vacuum": "PAUSED",
        "evolve": "UNCHANGED",
    }
