"""A rebuild from inputs gives a table other keys."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Merge, Table
from lakehouse.base.errors import Broken, Refused
from lakehouse.base.reasons import Reason
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.evolve.test_rebuild import rebuilt
from lakehouse_tests.support.example_lake import add_events, event, rows_in, states


def test_other_keys_come_from_the_inputs_and_an_append_downstream_is_rebuilt_too(
    lake: Lake, spark: SparkSession
) -> None:
    """Then increments go on. Until then, both tables refuse to write, and say what to use."""
    add_events(lake, event(1, 5, "a"), event(1, 6, "b"), event(2, 5, "a"))
    follower = Table(
        key="gold/follower",
        inputs=(states,),
        write=Append(),
        transform=lambda states: states.select("id", "state"),
    )
    write_table(lake, spark, states)
    write_table(lake, spark, follower)
    by_state = replace(states, write=Merge(keys=("id", "state"), order_by=("at",)))
    with pytest.raises(Refused, match="Use `lakehouse rebuild silver/states`"):
        write_table(lake, spark, by_state)
    with pytest.raises(Refused, match=r"merged by \[\"id\"\]"):
        rebuilt(lake, spark, by_state, "rows")

    [sentence] = rebuilt(lake, spark, by_state, "inputs", readers=[follower]).plan.readers
    assert sentence.endswith("Use `lakehouse rebuild gold/follower` afterwards")
    three = [(1, "a"), (1, "b"), (2, "a")]
    assert rows_in(lake, states.key, "id", "state") == three
    assert write_table(lake, spark, by_state).reason is Reason.INPUTS_UNCHANGED
    with pytest.raises(Broken, match="use `lakehouse rebuild gold/follower`"):
        write_table(lake, spark, follower)
    rebuilt(lake, spark, follower, "inputs")
    assert rows_in(lake, follower.key, "id", "state") == three

    add_events(lake, event(1, 7, "b"), event(3, 5, "c"))
    assert write_table(lake, spark, by_state).rows_written == 2
    assert rows_in(lake, states.key, "id", "state") == [*three, (3, "c")]
