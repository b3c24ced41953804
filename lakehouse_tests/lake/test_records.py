"""Pauses, as records of a lake."""

from lakehouse.declare.upkeep_records import Pause
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import pause_of, pause_table, pauses, resume_table

KEY = "bronze/events"


def test_pauses_are_kept_until_they_are_taken_back_the_last_one_counts(memory: Lake) -> None:
    assert (pauses(memory), pause_of(memory, KEY)) == ({}, None)
    pause_table(memory, Pause(table=KEY, since_ms=1, until_ms=2, why="wörk"))
    pause_table(memory, Pause(table="silver/events", since_ms=3))
    pause_table(memory, Pause(table=KEY, since_ms=4, why="more"))
    kept = Pause(table=KEY, since_ms=4, why="more")
    assert pauses(memory) == {KEY: kept, "silver/events": Pause(table="silver/events", since_ms=3)}
    resume_table(memory, "silver/events")
    resume_table(memory, "silver/events")
    assert (pauses(memory), pause_of(memory, KEY)) == ({KEY: kept}, kept)
