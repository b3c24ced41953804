"""A changed transform is reported until all rows are of its code, and computes no row unasked."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.base.reasons import Reason
from lakehouse.delta.commits import written_in
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse.materialize.transform_code import transform_code
from lakehouse_tests.support.example_lake import (
    add_events,
    copies,
    counts,
    event,
    facts_of,
    rows_in,
    states,
    version_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADVICE = (
    "its code has changed since version 0, and existing rows were made by the earlier code. "
    "Use lakehouse rebuild {} to compute them again"
)


def upper(events: Any) -> Any:
    return events.selectExpr("id", "upper(state) AS state")


@pytest.mark.long
def test_an_append_with_changed_code_reports_the_rows_of_earlier_code_until_none_are_left(
    lake: Lake, spark: "SparkSession"
) -> None:
    add_events(lake, event(1, 5, "planned"))
    assert write_table(lake, spark, copies).code_changed_since is None
    changed = replace(copies, transform=upper)
    advice = ADVICE.format("silver/copies")

    outcome = write_table(lake, spark, changed)
    assert (outcome.reason, outcome.code_changed_since) == (Reason.INPUTS_UNCHANGED, 0)
    assert outcome.sentence == f"no input has changed since bronze/events 0; {advice}"
    assert version_of(lake, copies.key) == 0

    add_events(lake, event(2, 5, "planned"))
    outcome = write_table(lake, spark, changed)
    assert (outcome.reason, outcome.rows_written) == (Reason.INPUTS_CHANGED, 1)
    assert outcome.sentence.endswith(advice)
    assert rows_in(lake, copies.key, "id", "state") == [(1, "planned"), (2, "PLANNED")]
    commits = facts_of(lake, copies.key).history.commits
    recorded = [
        {name: written_in(commit).get(name) for name in ("code", "earlier_code")}
        for commit in commits
    ]
    assert recorded == [
        {"code": transform_code(copies), "earlier_code": None},
        {"code": transform_code(changed), "earlier_code": 0},
    ]

    outcome = write_table(lake, spark, changed)
    assert (outcome.reason, outcome.code_changed_since) == (Reason.INPUTS_UNCHANGED, 0)
    assert write_table(lake, spark, copies).code_changed_since == 1  # the earlier code again


@pytest.mark.long
def test_an_overwrite_with_changed_code_computes_all_rows_again_if_it_evolves_by_itself(
    lake: Lake, spark: "SparkSession"
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
        assert write_table(lake, spark, table).sentence == (
            "no input has changed since silver/states 0"
        )
