"""Each alert is sent once, and once when it is over; what is unknown changes nothing."""

from dataclasses import replace

from lakehouse.core.check_result import CheckResult
from lakehouse.core.metrics.alerts import (
    Alert,
    AlertFacts,
    delivered,
    message_of,
    next_alerts,
    tried,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000


def of_check(ok: bool | None) -> AlertFacts:
    result = (
        None if ok is None else CheckResult(name="readable", ok=ok, sentence="2 files are gone")
    )
    return AlertFacts(checks={("bronze/orders", "readable"): result})


def of_score(score: float | None) -> AlertFacts:
    return AlertFacts(scores={"bronze/orders": None if score is None else (score, "many files")})


def of_vacuum(done_ms: int | None) -> AlertFacts:
    return AlertFacts(done_ms={"vacuum/bronze/orders": done_ms})


def subjects(alerts: tuple[Alert, ...]) -> list[str]:
    return [alert.subject for alert in alerts if not alert.is_over]


def test_a_failing_check_is_sent_once_with_its_way_out_and_once_when_it_passes() -> None:
    alerts = next_alerts((), of_check(False), now_ms=NOW)
    assert message_of(alerts, lake="/lake") == (
        "Lake /lake: 1 new alert, 0 resolved\n"
        "check readable of bronze/orders: 2 files are gone. Open the check readable on the page of "
        "bronze/orders, or see docs/runbook.md."
    )
    # Not delivered: the next tick has the same message.
    assert next_alerts(alerts, of_check(False), now_ms=NOW + HOUR) == alerts
    alerts = delivered(alerts, now_ms=NOW)
    for facts in (of_check(False), of_check(None)):
        alerts = next_alerts(alerts, facts, now_ms=NOW + HOUR)
        assert (subjects(alerts), message_of(alerts, lake="/lake")) == (
            ["check readable of bronze/orders"],
            "",
        )
    alerts = next_alerts(alerts, of_check(True), now_ms=NOW + 2 * HOUR)
    assert message_of(alerts, lake="/lake") == (
        "Lake /lake: 0 new alerts, 1 resolved\nresolved: check readable of bronze/orders"
    )
    assert delivered(alerts, now_ms=NOW + 2 * HOUR) == ()


def test_what_was_not_delivered_is_sent_again_after_growing_pauses_and_news_at_once() -> None:
    alerts, now, pauses = next_alerts((), of_check(False), now_ms=NOW), NOW, list[int]()
    for _ in range(9):
        alerts = tried(alerts, now_ms=now)
        waits = (ms for ms in range(0, 2 * HOUR, 60_000) if alerts[0].is_due(now + ms))
        pauses.append(next(waits) // 60_000)
        assert not alerts[0].is_due(now + pauses[-1] * 60_000 - 1)
        now += pauses[-1] * 60_000
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    alerts = tried(alerts, now_ms=now)
    both = replace(of_check(False), scores=of_score(1).scores)
    alerts = next_alerts(alerts, both, now_ms=now + 1)
    assert [alert.is_due(now + 1) for alert in alerts] == [False, True]
    alerts = delivered(alerts, now_ms=now + 1)
    assert [(alert.is_sent, alert.tries) for alert in alerts] == [(False, 10), (True, 0)]
    assert alerts[0].is_due(now + HOUR) and not alerts[1].is_due(now + HOUR)


def test_an_unknown_fact_begins_no_alert() -> None:
    for facts in (of_check(None), of_score(None), of_vacuum(None)):
        assert next_alerts((), facts, now_ms=NOW) == ()


def test_an_alert_that_ends_before_it_was_delivered_is_forgotten() -> None:
    alerts = next_alerts((), of_check(False), now_ms=NOW)
    assert next_alerts(alerts, of_check(True), now_ms=NOW) == ()


def test_an_alert_that_comes_back_before_its_end_was_delivered_goes_on() -> None:
    fired = delivered(next_alerts((), of_check(False), now_ms=NOW), now_ms=NOW)
    over = next_alerts(fired, of_check(True), now_ms=NOW)
    assert [alert.is_over for alert in over] == [True]
    assert next_alerts(over, of_check(False), now_ms=NOW) == fired


def test_an_unknown_fact_does_not_bring_back_an_alert_that_is_over() -> None:
    over = (Alert(subject="health of bronze/orders", sentence="", since_ms=NOW, is_sent=True),)
    over = tuple(replace(alert, is_over=True) for alert in over)
    assert next_alerts(over, of_score(None), now_ms=NOW) == over


def test_low_health_ends_only_well_above_where_it_began() -> None:
    assert next_alerts((), of_score(50), now_ms=NOW) == ()
    alerts = next_alerts((), of_score(49.9), now_ms=NOW)
    assert subjects(alerts) == ["health of bronze/orders"]
    assert alerts[0].sentence == (
        "many files. Use lakehouse plan bronze/orders to see why nothing is compacted."
    )
    assert subjects(next_alerts(alerts, of_score(59.9), now_ms=NOW)) == subjects(alerts)
    assert subjects(next_alerts(alerts, of_score(60), now_ms=NOW)) == []


def test_upkeep_is_late_after_two_missed_days() -> None:
    assert next_alerts((), of_vacuum(NOW - 50 * HOUR), now_ms=NOW) == ()
    alerts = next_alerts((), of_vacuum(NOW - 50 * HOUR - 1), now_ms=NOW)
    assert subjects(alerts) == ["vacuum/bronze/orders is late"]
    assert "its last success was at 2023-11-12 20:13 UTC" in alerts[0].sentence


def test_upkeep_that_was_never_done_is_late_by_the_age_of_what_waits_for_it() -> None:
    facts = replace(of_vacuum(None), waits_ms={"vacuum/bronze/orders": NOW - 50 * HOUR - 1})
    assert next_alerts((), facts, now_ms=NOW - 1) == ()
    [alert] = next_alerts((), facts, now_ms=NOW)
    assert alert.subject == "vacuum/bronze/orders is late"
    assert alert.sentence.startswith(
        "it never succeeded, although its first table appeared at 2023-11-12 20:13 UTC, more than 50 h"
    )


def test_vacuums_that_wait_for_a_late_inventory_are_not_reported_next_to_it() -> None:
    late = {"inventory/lake": NOW - 60 * HOUR, "vacuum/bronze/orders": NOW - 60 * HOUR}
    alerts = next_alerts((), AlertFacts(done_ms=late), now_ms=NOW)
    assert subjects(alerts) == ["inventory/lake is late"]


def test_what_is_not_watched_any_more_is_over() -> None:
    alerts = delivered(next_alerts((), of_check(False), now_ms=NOW), now_ms=NOW)
    assert message_of(next_alerts(alerts, AlertFacts(), now_ms=NOW), lake="/lake").endswith(
        "resolved: check readable of bronze/orders"
    )


def test_a_message_has_a_bounded_length_and_no_markup_from_outside() -> None:
    checks: dict[tuple[str, str], CheckResult | None] = {
        (f"bronze/t{number:02}", "readable"): CheckResult(
            name="readable", ok=False, sentence="<!channel> & \x1b" + "x" * 2_000
        )
        for number in range(25)
    }
    lines = message_of(next_alerts((), AlertFacts(checks=checks), now_ms=NOW), lake="/lake")
    assert lines.count("\n") == 21 and lines.endswith("5 more: lakehouse alerts")
    assert max(map(len, lines.split("\n"))) < 600
    assert "&lt;!channel&gt; &amp; \\x1bx" in lines and "<" not in lines
