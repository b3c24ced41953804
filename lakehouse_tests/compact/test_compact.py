"""What `lakehouse compact` shows of a run."""

import pytest

from lakehouse.assets.metadata import compaction_metadata
from lakehouse.compact.command import _print
from lakehouse.compact.plan.compaction import plan_table
from lakehouse.compact.plan.history import CompactionOutcome
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_terminal import orders

# commits of others after the planned version -> the line below the plan
MERGED_NOTHING = {
    0: "OPTIMIZE did not merge the 2 planned files, although no other writer committed: Delta's"
    " selection differs from the plan of version 1. The sensor will not request this version again."
    " Compare the plan (lakehouse compact bronze/orders --dry-run) with the table's partition values",
    2: "OPTIMIZE did not merge the 2 planned files: other writers have committed up to version 3"
    " since the planned version 1. The next plan will use the newest version",
}


@pytest.mark.parametrize(("others", "line"), MERGED_NOTHING.items())
def test_a_run_that_merged_nothing_says_whether_others_committed(
    others: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    story = LogBuilder(key=orders.key).create().append([("a", 1, 10), ("b", 1, 10)])
    facts = story.facts()
    planned = plan_table(orders, facts.snapshot, facts.history, now_ms=0)
    for number in range(others):
        story.append([(f"later-{number}", 1, 10)])
    outcome = CompactionOutcome(plan=planned, facts=story.facts())
    metadata = compaction_metadata(outcome)
    assert metadata["lakehouse/outcome"] == line
    _print(metadata["lakehouse/compaction"].value)
    assert capsys.readouterr().out.splitlines()[1:] == [line]
