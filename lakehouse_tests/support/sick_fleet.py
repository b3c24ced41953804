"""Five tables that are all worth a compaction; four of them come to be left alone, each for another reason."""

from typing import Any

from lakehouse import Append, Compaction, Landing, Table


def _table(name: str, **knobs: Any) -> Table:
    return Table(
        key=f"bronze/{name}",
        source=Landing(prefix=f"landing/{name}/", format="json", schema="id BIGINT"),
        write=Append(),
        compaction=Compaction(min_small_files=2, cooldown_minutes=0, **knobs),
    )


healthy = _table("healthy")
sick = _table("sick")
paused = _table("paused")
advised = _table("advised", mode="recommend")
looped = _table("looped")

FLEET = (healthy, sick, paused, advised, looped)
