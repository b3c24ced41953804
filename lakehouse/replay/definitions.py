"""The replay in Dagster: a sensor that lands some simulated hours per tick.

Each tick lands the files itself, because a run would cost more than writing them. The tick requests
no runs: the landing sensor finds the files.
"""

import dagster as dg

from lakehouse.base.errors import Transient
from lakehouse.base.settings import Settings
from lakehouse.replay.play import hour_text, play
from lakehouse.store import TimeBudget, store_at

# The replay waits while more Dagster runs than this are unfinished.
_MOST_RUNS = 8
_UNFINISHED = [
    dg.DagsterRunStatus[name] for name in ("QUEUED", "NOT_STARTED", "STARTING", "STARTED")
]


def replay_sensor(settings: Settings) -> dg.SensorDefinition:
    """A sensor that lands `replay_hours` of the year per tick, `replay_seconds` or more apart."""
    budget = TimeBudget()
    store = store_at(settings.root).within(budget)

    @dg.sensor(
        name="replay_sensor",
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=settings.replay_seconds,
        description=(
            "Lands a real year of flights, hour by hour. LAKEHOUSE_REPLAY=off removes this sensor."
        ),
    )
    def replay(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        runs = context.instance.get_runs_count(dg.RunsFilter(statuses=_UNFINISHED))
        if runs > _MOST_RUNS:
            return dg.SkipReason(
                f"landed nothing: {runs} runs are unfinished, more than {_MOST_RUNS}; the replay"
                " waits for the lake"
            )
        budget.begin()
        try:
            played = play(store, settings.home, hours=settings.replay_hours)
        except Transient as error:
            return dg.SkipReason(f"landed nothing: {error}")
        context.update_cursor(hour_text(played.until))
        return dg.SkipReason(played.sentence)

    return replay
