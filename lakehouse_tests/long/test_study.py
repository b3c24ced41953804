"""The compaction study, small: three arms, two iterations, and the page."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from benchmarks.study.arms import ARMS, Arm
from benchmarks.study.raw import StudyPlan, StudyRun
from benchmarks.study.report import write_report
from benchmarks.study.run import World, run_study
from lakehouse import Compaction
from lakehouse.base.settings import Settings
from lakehouse.lake.lake import open_lake
from lakehouse.spark.statements import path_table
from lakehouse_tests.support.clients import new_session

PLAN = StudyPlan(rows=50, iterations=2, repetitions=1, arms=("none", "auto", "ours"))


def test_two_iterations_of_three_arms_leave_the_same_rows_and_a_page(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge of ours adds one file, so two files are due within two iterations."""
    monkeypatch.setitem(
        cast("dict[str, Arm]", ARMS),
        "ours",
        replace(ARMS["ours"], policy=Compaction(min_small_files=2)),
    )
    lake, spark, told = open_lake(settings), new_session(settings), list[str]()

    run = StudyRun(folder=tmp_path / "study", plan=PLAN)
    run_study(World(lake=lake, spark=spark, tell=told.append), run, warm_up=0)
    assert run.is_complete
    assert [[arm for arm in PLAN.arms if f", {arm}:" in sentence] for sentence in told] == [
        [],
        ["none"],
        ["auto"],
        ["ours"],
    ]
    of = {arm: [each for each in run.iterations if each.arm == arm] for arm in PLAN.arms}
    counts = [each.files for each in of["none"]]
    assert counts[0] < counts[1]
    assert sum(each.compactions for each in of["ours"]) > 0
    assert of["ours"][-1].files < counts[1]
    assert all(each.bytes_compacted == 0 for each in of["none"])
    rows = {
        arm: spark.sql(
            f"SELECT count(*), sum(xxhash64(*) % 1000) FROM {path_table(settings.table_uri(f'silver/{arm}_1'))}"
        ).collect()
        for arm in PLAN.arms
    }
    assert rows["none"] == rows["auto"] == rows["ours"]
    assert "| `ours` |" in write_report(run, tmp_path / "docs").read_text()
    spark.stop()
