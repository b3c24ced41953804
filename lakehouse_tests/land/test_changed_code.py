"""A changed transform is reported until all rows are of its code, and computes no row unasked."""

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.reasons import Reason
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import (
    add_events,
    counts,
    event,
    rows_in,
    states,
    version_of,
)

ADVICE = (
    "its code has changed since version 0, and existing rows were made by the earlier code. "
    "Use lakehouse rebuild {} to compute them again"
)


@pytest.mark.long
def test_an_overwrite_with_changed_code_computes_all_rows_again_if_it_evolves_by_itself(
    lake: Lake, spark: SparkSession
) -> None:
    def grouped(states: Any) -> Any:
        return states.where("state <> 'left'").groupBy("state").count()

    add_events(lake, event(1, 5, "planned"), event(2, 5, "left"))
    write_table(lake, spark, states)
    write_table(lake, spark, counts)
    changed = replace(counts, transform=grouped)
    outcome = write_table(lake, spark, changed)
    assert (outcome.reason, outcome.code_changed_since) == (Reason.INPUTS_UNCHANGED, 0)
    assert outcome.sentence.endswith(ADVICE.format("gold/counts"))
    assert version_of(lake, counts.key) == 0

    automatic = replace(changed, evolution="automatic")
    outcome = write_table(lake, spark, automatic)
    assert (outcome.reason, outcome.code_changed_since) == (Reason.DECLARATION_CHANGED, None)
    assert outcome.sentence == (
        "its declaration has changed, so all rows are computed again: the code of its transform has "
        "changed since version 0"
    )
    assert rows_in(lake, counts.key, "state", "count") == [("planned", 1)]
    for table in (automatic, changed):
        expected = "no input has changed since silver/states 0"
        assert write_table(lake, spark, table).sentence == expected
