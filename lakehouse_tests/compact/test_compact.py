"""What `lakehouse compact` shows of a run."""

from dataclasses import replace

import pytest

from lakehouse.assets.metadata import compaction_metadata
from lakehouse.base.reasons import Reason
from lakehouse.compact.command import _print
from lakehouse.compact.plan.compaction import plan_table
from lakehouse.compact.plan.history import CompactionOutcome
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_terminal import orders


def test_the_plan_that_ran_is_shown_beside_what_it_did_and_very_many_files_are_not_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [(f"d={day}/f{number}", 1, 10) for day in range(3) for number in range(600)]
    facts = LogBuilder(key=orders.key).create(partition_by=["d"]).append(files).facts()
    whole = plan_table(orders, facts.snapshot, facts.history, now_ms=0)
    narrowed = replace(
        whole,
        bins=whole.bins[:2],
        explanation=Reason.NO_FACTS.explain(threshold=4),
        estimate=replace(whole.estimate, seconds=0.5),
    )
    outcome = CompactionOutcome(
        plan=narrowed, version_after=2, files_removed=1_200, files_added=2, conflicts=1
    )
    document = compaction_metadata(outcome)["lakehouse/compaction"].value
    assert (document["files_removed"], document["actual_files_removed"], document["conflicts"]) == (
        1_200,
        1_200,
        1,
    )
    assert document["bins"] == []
    _print(document)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"bronze/orders: version 1 -> 2, NO_FACTS: {narrowed.sentence}"
    assert [line.split() for line in shown if line.startswith(("files removed", "seconds"))] == [
        ["files", "removed", "1,200", "1,200", "0.0%"],
        ["seconds", "0.50", "-", "-"],
    ]
    assert shown[-2:] == ["predicted from defaults", "OPTIMIZE 0.0 s"]


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
    outcome = CompactionOutcome(plan=planned, version_after=None, facts=story.facts())
    metadata = compaction_metadata(outcome)
    assert metadata["lakehouse/outcome"] == line
    _print(metadata["lakehouse/compaction"].value)
    assert capsys.readouterr().out.splitlines()[1:] == [line]
