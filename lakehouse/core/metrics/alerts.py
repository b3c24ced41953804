"""Decides which alerts fire and which messages are due.

Each alert is reported when it begins, and once more when it is resolved. A message that was not
delivered is sent again after 1, 2, 4 … minutes, at most an hour. If it was delivered, but the
webhook's answer was late, it arrives twice.

An unknown fact changes nothing: a firing alert keeps firing, and no new alert begins.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from html import escape

from lakehouse.core.check_result import CheckResult
from lakehouse.core.text import count_of, printable, utc_text
from lakehouse.core.units import HOUR_MS

# An alert begins below 50, where `lakehouse health` shows the score in red. It ends only at 60, so
# that a table whose score stays close to 50 does not cause a message after each compaction.
SICK_SCORE = 50.0
WELL_SCORE = 60.0
# Inventories and vacuums run once a day. They are late if the last success is more than two days
# and two hours ago.
LATE_HOURS = 50
_FIRST_PAUSE_MS = 60_000
_MOST_DOUBLINGS = 6
# A message names at most this many alerts, a line each, since Slack cuts off long texts.
_LINES = 20
_LINE_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFacts:
    """The newest facts about a lake; `None` means unknown.

    - `checks`: the newest result of each check, by asset and check name.
    - `scores`: each table's health score, and the sentence that explains the score.
    - `done_ms`: the last success of each daily upkeep asset, for example `vacuum/bronze/weather`.
    - `waits_ms`: for upkeep that never succeeded, when its first table appeared.
    """

    checks: Mapping[tuple[str, str], CheckResult | None] = field(
        default_factory=dict[tuple[str, str], CheckResult | None]
    )
    scores: Mapping[str, tuple[float, str] | None] = field(
        default_factory=dict[str, tuple[float, str] | None]
    )
    done_ms: Mapping[str, int | None] = field(default_factory=dict[str, int | None])
    waits_ms: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert that fires, or whose end is not reported yet (`is_over`).

    `subject` identifies the alert. `sentence` describes it as it was when it began. `is_sent`: the
    message about its beginning was delivered. `tries` counts the attempts to send the next message;
    the newest attempt was at `tried_ms`.
    """

    subject: str
    sentence: str
    since_ms: int
    is_sent: bool = False
    is_over: bool = False
    tries: int = 0
    tried_ms: int = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether a message about this alert is to be sent now."""
        has_news = self.is_over or not self.is_sent
        if not has_news or self.tries == 0:
            return has_news
        doublings = min(self.tries - 1, _MOST_DOUBLINGS)
        pause_ms = min(_FIRST_PAUSE_MS * 2**doublings, HOUR_MS)
        return now_ms - self.tried_ms >= pause_ms


@dataclass(frozen=True, slots=True)
class _Judgement:
    """Whether something is wrong now (`None`: unknown), and a sentence with what to do."""

    is_wrong: bool | None
    sentence: str = ""


def next_alerts(stored: Sequence[Alert], facts: AlertFacts, *, now_ms: int) -> tuple[Alert, ...]:
    """The stored alerts, updated by these facts, and new alerts; the oldest first.

    An alert whose subject is no longer watched is over. Alerts that are over are left out if their
    beginning was never reported.
    """
    by_subject = {alert.subject: alert for alert in stored}
    firing = {alert.subject for alert in stored if not alert.is_over}
    alerts = list[Alert]()
    judgements = _judge(facts, firing, now_ms)
    for subject, judgement in judgements.items():
        alert = by_subject.get(subject)
        is_wrong = judgement.is_wrong
        if is_wrong is None:
            is_wrong = subject in firing
        if is_wrong and alert is None:
            alerts.append(Alert(subject=subject, sentence=judgement.sentence, since_ms=now_ms))
        elif alert is not None:
            alerts.append(replace(alert, is_over=not is_wrong))
    alerts += [replace(alert, is_over=True) for alert in stored if alert.subject not in judgements]
    reported = [alert for alert in alerts if alert.is_sent or not alert.is_over]
    return tuple(sorted(reported, key=lambda alert: alert.since_ms))


def message_of(alerts: Sequence[Alert], *, lake: str) -> str:
    """The message about these alerts, in the markup that Slack and Teams share.

    The message is empty if the beginnings and ends of all alerts have been reported.
    """
    new_alerts = [alert for alert in alerts if not alert.is_sent]
    resolved_alerts = [alert for alert in alerts if alert.is_over]
    if not new_alerts and not resolved_alerts:
        return ""
    lines = [f"{alert.subject}: {alert.sentence}" for alert in new_alerts]
    lines += [f"resolved: {alert.subject}" for alert in resolved_alerts]
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], f"{len(lines) - _LINES} more: lakehouse alerts"]
    counts = f"{count_of(len(new_alerts), 'new alert')}, {len(resolved_alerts)} resolved"
    title = f"Lake {lake}: {counts}"
    return "\n".join(_safe(line) for line in (title, *lines))


def trial_message(*, lake: str) -> str:
    """A test message, which shows that alerts arrive."""
    return _safe(f"Lake {lake}: this is a test. Alerts arrive here.")


def tried(alerts: Iterable[Alert], *, now_ms: int) -> tuple[Alert, ...]:
    """The same alerts, with an attempt at `now_ms` recorded for each alert that is due."""
    return tuple(
        replace(alert, tries=alert.tries + 1, tried_ms=now_ms) if alert.is_due(now_ms) else alert
        for alert in alerts
    )


def delivered(alerts: Iterable[Alert], *, now_ms: int) -> tuple[Alert, ...]:
    """The alerts after all due messages were delivered. Alerts whose end was reported are gone."""
    remaining = list[Alert]()
    for alert in alerts:
        if not alert.is_due(now_ms):
            remaining.append(alert)
        elif not alert.is_over:
            remaining.append(replace(alert, is_sent=True, tries=0, tried_ms=0))
    return tuple(remaining)


def _judge(facts: AlertFacts, firing: AbstractSet[str], now_ms: int) -> dict[str, _Judgement]:
    """The judgement of each watched subject."""
    judgements = dict[str, _Judgement]()
    for (asset, check), result in facts.checks.items():
        judgements[f"check {check} of {asset}"] = _of_check(asset, check, result)
    for table, health in facts.scores.items():
        subject = f"health of {table}"
        judgements[subject] = _of_health(table, health, was_sick=subject in firing)
    upkeep = {
        asset: _of_upkeep(asset, ms, facts.waits_ms.get(asset), now_ms)
        for asset, ms in facts.done_ms.items()
    }
    # Vacuums run after the inventory. If the inventory is late, the vacuums are late for the same
    # cause, so only the inventory is reported.
    inventory_is_late = any(
        judgement.is_wrong for asset, judgement in upkeep.items() if asset.startswith("inventory/")
    )
    for asset, judgement in upkeep.items():
        is_a_consequence = inventory_is_late and asset.startswith("vacuum/")
        judgements[f"{asset} is late"] = _Judgement(None) if is_a_consequence else judgement
    return judgements


def _of_check(asset: str, check: str, result: CheckResult | None) -> _Judgement:
    if result is None:
        return _Judgement(None)
    advice = f"Open the check {check} on the page of {asset}, or see docs/runbook.md."
    return _Judgement(not result.ok, f"{result.sentence.rstrip('.')}. {advice}")


def _of_health(table: str, health: tuple[float, str] | None, *, was_sick: bool) -> _Judgement:
    if health is None:
        return _Judgement(None)
    score, sentence = health
    limit = WELL_SCORE if was_sick else SICK_SCORE
    advice = f"Use lakehouse plan {table} to see why nothing is compacted."
    return _Judgement(score < limit, f"{sentence}. {advice}")


def _of_upkeep(asset: str, done_ms: int | None, waits_ms: int | None, now_ms: int) -> _Judgement:
    since_ms = waits_ms if done_ms is None else done_ms
    if since_ms is None:
        return _Judgement(None)
    last_success = "its last success was at"
    if done_ms is None:
        last_success = "it never succeeded, although its first table appeared at"
    sentence = (
        f"{last_success} {utc_text(since_ms)}, more than {LATE_HOURS} h ago. Check the runs of "
        f"{asset} in Dagster, and that the automation sensor is on."
    )
    return _Judgement(now_ms - since_ms > LATE_HOURS * HOUR_MS, sentence)


def _safe(line: str) -> str:
    """One line of a message, escaped so that no name from outside becomes a link or a mention.

    Source: https://api.slack.com/reference/surfaces/formatting#escaping
    """
    return escape(printable(line)[:_LINE_CHARACTERS], quote=False)
