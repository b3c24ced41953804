"""What is on record of scans that did not come to their end, and what follows from it: no scan of the compactions right after it."""

from contextlib import suppress
from typing import Any

import pytest

from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.compaction.plan import plan_table
from lakehouse.engine.compaction.read_probe import NOT_PROBED, probe_compaction, probes, read_probes
from lakehouse.engine.lake import Lake
from lakehouse.engine.table_health import with_account
from lakehouse_tests.core.example_histories import compaction
from lakehouse_tests.engine.example import copies
from lakehouse_tests.log_builder import LogBuilder


class Lost:
    """Whatever is asked of it ends the scan."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        raise self.error


def compacted(lake: Lake, story: LogBuilder) -> CompactionOutcome:
    """One compaction more, of two small files and what the one before it left."""
    merged = f"merged{story.version}"
    story.append([(f"a{story.version}", 100, 1), (f"b{story.version}", 100, 1)])
    facts = story.facts()
    plan = plan_table(copies, facts.snapshot, facts.history, now_ms=0)
    written = compaction(story.version, seconds=None).user_metadata
    story.optimize(
        [file.path for file in facts.snapshot.files], into=(merged, 190, 2), user_metadata=written
    )
    outcome = CompactionOutcome(
        plan=plan, version_after=story.version, seconds_optimize=2.0, facts=story.facts()
    )
    return with_account(lake, copies, outcome)


@pytest.mark.parametrize(
    "error", [RuntimeError("out of memory"), KeyboardInterrupt()], ids=["failed", "killed"]
)
def test_a_scan_that_fails_or_is_killed_is_made_again_after_ten_more_compactions(
    memory: Lake, error: BaseException
) -> None:
    story, scanned = LogBuilder(memory.store, copies.key).create(), list[int]()
    for number in range(1, 32):
        outcome = compacted(memory, story)
        with suppress(type(error)):
            assert probe_compaction(memory, Lost(error), outcome) is None  # type: ignore[arg-type]
            continue
        scanned.append(number)
    assert scanned == [10, 20, 30]
    assert [
        (each.before, each.gain, each.budget_seconds) for each in probes(memory, copies.key)
    ] == [((), None, 2.0)] * 3
    assert read_probes(memory.store, 0) == {copies.key: NOT_PROBED}
