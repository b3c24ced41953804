"""When events are delivered: at best effort. One in fifty comes one to six hours late, one in two hundred comes twice.

An event belongs to the hour in which it happens, and is delivered in the file of that hour or, if late, of a later one. The second copy of
an event that comes twice is in the file of the first or of one of the six hours after it. All of it is drawn from the event's id.
"""

from typing import TYPE_CHECKING

import pandas

from lakehouse.replay import random_by_name
from lakehouse.replay.flight_events import as_bytes

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_LATE_PER_MILLE = 20
_TWICE_PER_MILLE = 5


def deliver(events: pandas.DataFrame) -> pandas.DataFrame:
    """One row per delivery: the columns of its event, and `delivered`, the hour whose file it is in."""
    ids = as_bytes(events.event_id)
    is_late = random_by_name.draw(ids, "late") % 1000 < _LATE_PER_MILLE
    is_twice = random_by_name.draw(ids, "twice") % 1000 < _TWICE_PER_MILLE
    late_hours = is_late * (1 + random_by_name.draw(ids, "hours late") % 6)
    first = events.assign(delivered=_later(events.event_time.dt.floor("h"), late_hours))
    second = first[is_twice]
    second = second.assign(delivered=_later(second.delivered, random_by_name.draw(ids[is_twice], "hours to the second copy") % 7))
    return pandas.concat([first, second], ignore_index=True)


def _later(times: pandas.Series, hours: "NDArray[numpy.int64]") -> pandas.Series:
    return times + hours.astype("timedelta64[h]")
