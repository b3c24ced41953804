"""What `lakehouse compact` shows of a run that Dagster recorded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.cli.commands.compact import _document, _outcome, _print, _recorded
from lakehouse.cli.context import Opened
from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.reasons import Reason
from lakehouse.defs.metadata.table import compaction_metadata
from lakehouse.engine.compaction import run
from lakehouse.engine.lake import open_lake
from lakehouse.engine.store import DiskStore
from lakehouse_tests.cli.example import orders
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """A lake with one table of two partitions, each of which can be compacted."""
    settings = own_settings(tmp_path)
    files = [(f"d={day}/f{number}", 100, 10) for day in (1, 2) for number in range(4)]
    LogBuilder(DiskStore(Path(settings.root)), orders.key).create(partition_by=["d"]).append(files)
    return Opened(lake=open_lake(settings), tables={orders.key: orders})


def planned(opened: Opened) -> CompactionPlan:
    """The plan of the whole table."""
    found = run.plan(opened.lake, orders)
    assert found is not None and len(found.bins) == 2
    return found


def recorded(plan: CompactionPlan, *, conflicts: int) -> dict[str, Any]:
    """What Dagster has of a run that did this plan, after so many races were lost."""
    counts = {"files_removed": plan.files_removed, "files_added": plan.files_added, "conflicts": conflicts}
    metadata = compaction_metadata(replace(CompactionOutcome(plan=plan, version_after=1), **counts))
    return {name: getattr(value, "value", value) for name, value in metadata.items()}


def test_after_a_conflict_the_prediction_of_the_narrowed_plan_is_shown(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    whole = planned(opened)
    why = Reason.NO_FILES.explain(version=4)
    narrowed = replace(whole, bins=whole.bins[:1], explanation=why, estimate=replace(whole.estimate, seconds=0.5))
    metadata = recorded(narrowed, conflicts=1)
    outcome, told = _outcome(opened, orders, metadata), _recorded(narrowed, metadata)
    document = _document(outcome, told)
    assert (document["files_removed"], document["actual_files_removed"], document["files_added"]) == (4, 4, 1)
    assert (document["sentence"], document["estimate"]["seconds"], document["bins"]) == ("the table has no files at version 4", 0.5, None)
    _print(outcome, told)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].endswith("NO_FILES: the table has no files at version 4")
    assert next(line.split() for line in shown if line.startswith("files removed")) == ["files", "removed", "4", "4"]


def test_without_a_conflict_the_plan_is_shown_whole(opened: Opened) -> None:
    whole = planned(opened)
    metadata = recorded(whole, conflicts=0)
    document = _document(_outcome(opened, orders, metadata), _recorded(whole, metadata))
    assert (document["files_removed"], len(document["bins"]), document["files_left"]) == (8, 2, 0)
