"""What is noted against a table, and what binds a person."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.operation import Pause
from lakehouse.compact.assess import hold_now, recent_compactions, refuse_held
from lakehouse.compact.run import Attempt, failure_recorded
from lakehouse.declare.policies import Compaction
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import pause_table
from lakehouse.spark.errors import translated
from lakehouse_tests.deltalake_tables import no_spark
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_lake import events
from lakehouse_tests.support.example_snapshots import plan


class Conflict(PySparkException):
    """Another writer was first, as Delta says it."""

    def getSqlState(self) -> str:  # noqa: N802 (PySpark's name)
        return "2D521"


class Py4JNetworkError(Exception):
    """The driver is gone, as PySpark says it."""


def attempt_of(lake: Lake, *, run: str = "run 1", by_person: bool = False) -> Attempt:
    return Attempt(lake=lake, table=events, run=run, by_person=by_person, open_spark=no_spark)


@pytest.mark.parametrize(
    ("error", "results"),
    [
        (Broken("rows differ\nmore"), ["failed"]),
        (ValueError("not a Parquet file"), ["failed"]),
        (Conflict("a race, which whoever lost it has noted"), []),
        (Refused("no such table"), []),
        (Transient("the server is gone"), []),
        (KeyboardInterrupt(), []),
        (None, []),
    ],
)
def test_what_speaks_against_the_table_is_noted_and_passes_on(
    memory: Lake, error: BaseException | None, results: list[str]
) -> None:
    with (
        pytest.raises(type(error)) if error else nullcontext(),
        failure_recorded(attempt_of(memory)),
    ):
        if error:
            raise error
    found = recent_compactions(memory, events.key)
    assert [each.result for each in found] == results
    assert all(
        each.run == "run 1" and each.why and 0 <= now_ms() - each.ended_ms < 3_600_000
        for each in found
    )


@pytest.mark.parametrize(("is_begun", "results"), [(True, ["failed"]), (False, [])])
def test_a_server_that_was_lost_after_the_statement_began_is_a_failure(
    memory: Lake, is_begun: bool, results: list[str]
) -> None:
    planned = plan([40, 50, 60, 70])
    attempt = attempt_of(memory)
    if is_begun:
        attempt.planned = planned
    with pytest.raises(Transient), failure_recorded(attempt), translated():
        raise Py4JNetworkError("answered nothing")
    found = recent_compactions(memory, events.key)
    assert [each.result for each in found] == results
    assert [each.wasted_bytes for each in found] == [planned.bytes_removed] * len(results)


def test_storage_that_does_not_answer_hides_no_failure(memory: Lake) -> None:
    class Away(MemoryStore):
        def put_if_absent(self, name: str, data: bytes) -> bool:
            raise Transient(f"{name} cannot be written now")

    with (
        pytest.raises(Broken, match="rows differ"),
        failure_recorded(attempt_of(replace(memory, store=Away()))),
    ):
        raise Broken("rows differ")


def test_a_pause_and_an_opt_out_bind_a_person_until_they_are_over(memory: Lake) -> None:
    refuse_held(memory, events)
    pause_table(memory, Pause(table=events.key, since_ms=1, why="a backfill"))
    message = r"^compact bronze/events: paused since .*a backfill. To run it all the same, use: lakehouse compact bronze/events --anyway$"
    with pytest.raises(Refused, match=message):
        refuse_held(memory, events)
    pause_table(memory, Pause(table=events.key, since_ms=1, until_ms=now_ms() - 1))
    refuse_held(memory, events)
    refuse_held(memory, replace(events, compaction=Compaction(mode="recommend")))
    with pytest.raises(Refused, match="mode off"):
        refuse_held(memory, replace(events, compaction=Compaction(mode="off")))


def test_failures_open_the_breaker_also_where_there_is_no_log(memory: Lake) -> None:
    for number in range(3):
        assert hold_now(memory, events, None) is None
        with pytest.raises(Broken), failure_recorded(attempt_of(memory, run=f"run {number}")):
            raise Broken("rows differ")
    held = hold_now(memory, events, None)
    assert held is not None and held.sentence.endswith("last error: rows differ")


def test_failures_of_a_person_s_runs_are_noted_and_open_nothing(memory: Lake) -> None:
    for number in range(4):
        attempt = attempt_of(memory, run=f"run {number}", by_person=True)
        with pytest.raises(Broken), failure_recorded(attempt):
            raise Broken("rows differ")
    assert len(recent_compactions(memory, events.key)) == 4
    assert hold_now(memory, events, None) is None
