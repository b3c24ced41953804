"""The replay in Dagster: a sensor that lands some simulated hours per tick.

Each tick lands the files itself, because a run would cost more than writing them. The tick requests
no runs: the landing sensor finds the files.
"""

import dagster as dg

from lakehouse.base.errors import Transient
from lakehouse.base.settings import Settings
from lakehouse.replay.play import play
from lakehouse.store import TimeBudget, store_at


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
    def replay() -> dg.SkipReason:
        budget.begin()
        try:
            played = play(store, settings.home, hours=settings.replay_hours)
        except Transient as error:
            return dg.SkipReason(f"landed nothing: {error}")
        return dg.SkipReason(played.sentence)

    return replay
