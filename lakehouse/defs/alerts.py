"""The sensor that sends alerts to a webhook. It exists only if LAKEHOUSE_ALERT_URL is set."""

from collections.abc import Collection, Mapping, Sequence

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecordStatus,  # not public
)

from lakehouse.core.check_result import CheckResult
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError
from lakehouse.core.metrics.alerts import AlertFacts, delivered, message_of, next_alerts, tried
from lakehouse.core.text import count_of
from lakehouse.defs.dagster_records import last_materializations, newest_facts
from lakehouse.defs.keys import table_key
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.metrics.alert_delivery import read_alerts, send, write_alerts
from lakehouse.engine.store import TimeBudget

# Seconds between two ticks. On S3, a tick costs two requests, one more per paused table, and up to
# two more if an alert has changed or is sent.
_SECONDS_ON_DISK = 30
_SECONDS_ON_S3 = 120
_DONE = (AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED)


def alert_sensors(
    tables: Sequence[Table],
    lake: Lake,
    *,
    name: str = "alert_sensor",
    daily: Collection[dg.AssetKey] = (),
    checked: Collection[dg.AssetKey] | None = None,
) -> list[dg.SensorDefinition]:
    """A list with the sensor as its only item; empty if no webhook is set, or without tables.

    `daily` are the upkeep assets that are materialized once a day. With `checked`, only the checks
    of these assets are watched, and the checks of the project's other assets are ignored.
    """
    url = lake.settings.alert_url
    if not url or not tables:
        return []
    budget = TimeBudget()
    bounded = lake.within(budget)

    @dg.sensor(
        name=name,
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=_SECONDS_ON_S3 if lake.settings.on_s3 else _SECONDS_ON_DISK,
        description="Sends failing checks, low health and late upkeep to LAKEHOUSE_ALERT_URL.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        budget.begin()
        try:
            stored = read_alerts(bounded.store, name)
            facts = _facts(context, bounded, tables, daily=daily, checked=checked)
            now = now_ms()
            alerts = next_alerts(stored, facts, now_ms=now)
            due = [alert for alert in alerts if alert.is_due(now)]
            message = message_of(due, lake=lake.settings.root)
            problem = ""
            if message:
                # The attempt is recorded before the message is sent, so that the pause before the
                # next attempt is kept even if a later step fails.
                stored = tried(alerts, now_ms=now)
                write_alerts(bounded.store, name, stored)
                problem = send(url, message)
                alerts = stored if problem else delivered(alerts, now_ms=now)
            if alerts != stored:
                write_alerts(bounded.store, name, alerts)
        except LakehouseError as error:
            return dg.SkipReason(
                f"the alerts are not up to date: the journal cannot be read or written now: {error}"
            )
        firing = count_of(sum(not alert.is_over for alert in alerts), "alert")
        if problem:
            context.log.warning(f"the webhook did not accept the message: {problem}")
            return dg.SkipReason(f"{firing}; not delivered ({problem}), a later tick tries again")
        if message:
            return dg.SkipReason(f"{firing}; a message was delivered")
        return dg.SkipReason(f"{firing}; no news")

    return [watch]


def _facts(
    context: dg.SensorEvaluationContext,
    lake: Lake,
    tables: Sequence[Table],
    *,
    daily: Collection[dg.AssetKey],
    checked: Collection[dg.AssetKey] | None,
) -> AlertFacts:
    """The results of the checks, the health scores, and the times of daily upkeep."""
    scores = _scores(context.instance, tables)
    done_ms = _done_ms(context.instance, daily, _paused(lake))
    existing = [table for table in tables if scores[table.key] is not None]
    return AlertFacts(
        checks=_checks(context, checked),
        scores=scores,
        done_ms=done_ms,
        waits_ms=_waits_ms(context.instance, existing, done_ms),
    )


def _paused(lake: Lake) -> set[str]:
    """The names of the vacuum assets of the tables that a person has paused."""
    now = now_ms()
    return {
        f"vacuum/{key}" for key, pause in Journal(lake.store).pauses().items() if pause.holds(now)
    }


def _checks(
    context: dg.SensorEvaluationContext, assets: Collection[dg.AssetKey] | None
) -> dict[tuple[str, str], CheckResult | None]:
    """The newest result of each check; `None` if its newest run has no result, or it never ran."""
    assert context.repository_def is not None
    keys = [
        key
        for key in context.repository_def.asset_graph.asset_check_keys
        if assets is None or key.asset_key in assets
    ]
    records = context.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    results = dict[tuple[str, str], CheckResult | None]()
    for key in keys:
        record = records.get(key)
        result: CheckResult | None = None
        if record is not None and record.status in _DONE and record.evaluation is not None:
            sentence = record.evaluation.description or "it failed"
            result = CheckResult(name=key.name, ok=record.evaluation.passed, sentence=sentence)
        results[key.asset_key.to_user_string(), key.name] = result
    return results


def _scores(
    instance: dg.DagsterInstance, tables: Sequence[Table]
) -> dict[str, tuple[float, str] | None]:
    """Each table's health score and sentence; `None` if Dagster has not recorded them."""
    facts = newest_facts(instance, tables)
    scores = dict[str, tuple[float, str] | None]()
    for table in tables:
        values: Mapping[str, object] = facts[table.key].values if table.key in facts else {}
        score = values.get("lakehouse/health_score")
        sentence = values.get("lakehouse/health")
        scores[table.key] = None
        if isinstance(score, int | float):
            scores[table.key] = (float(score), str(sentence))
    return scores


def _done_ms(
    instance: dg.DagsterInstance, daily: Collection[dg.AssetKey], paused: Collection[str]
) -> dict[str, int | None]:
    """When each `daily` asset was last materialized (`None`: never). Paused ones are omitted."""
    times = last_materializations(instance, list(daily))
    times_ms = dict[str, int | None]()
    for key in daily:
        asset = key.to_user_string()
        last = times.get(key)
        if asset not in paused:
            times_ms[asset] = None if last is None else int(last.timestamp * 1000)
    return times_ms


def _waits_ms(
    instance: dg.DagsterInstance, tables: Sequence[Table], done_ms: Mapping[str, int | None]
) -> dict[str, int]:
    """For each daily asset that was never materialized: when Dagster first recorded its table.

    For an asset of the whole lake, such as the inventory, the table that was recorded first counts.
    """
    never_done = [asset for asset, ms in done_ms.items() if ms is None]
    if not never_done:
        return {}
    first_ms = dict[str, int]()
    for table in tables:
        is_adopted = isinstance(table.write, Adopted)
        fetch = instance.fetch_observations if is_adopted else instance.fetch_materializations
        for record in fetch(table_key(table), limit=1, ascending=True).records:
            first_ms[f"vacuum/{table.key}"] = int(record.timestamp * 1000)
    times_ms = {asset: ms for asset, ms in first_ms.items() if asset in never_done}
    if first_ms:
        oldest_ms = min(first_ms.values())
        times_ms |= {asset: oldest_ms for asset in never_done if not asset.startswith("vacuum/")}
    return times_ms
