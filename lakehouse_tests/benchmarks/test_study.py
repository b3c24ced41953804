"""The compaction study's pure parts: its batches, what is kept of a run, its figures and its page."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.records import FOLDER
from benchmarks.study.batches import draw_batches
from benchmarks.study.figures import Spread, by_arm, figures_of
from benchmarks.study.raw import Iteration, StudyPlan, StudyRun
from benchmarks.study.record import record_of
from benchmarks.study.report import page, write_report
from benchmarks.study.totals import RunTotals, keep, kept_totals, whole_runs_sentence


def iteration(arm: str = "none", number: int = 1, **values: Any) -> Iteration:
    fixed = {
        "rows": 10,
        "upkeep_seconds": 0.0,
        "decision_seconds": 0.0,
        "version": number,
        "table_bytes": 100,
        "bytes_ingested": 100,
    }
    measured = {
        "merge_seconds": 1.0,
        "query_seconds": 0.5,
        "files": 16 * number,
        "bytes_copied": 0,
        "bytes_compacted": 0,
        "compactions": 0,
    }
    return Iteration(
        **{
            "arm": arm,
            "number": number,
            "repetition": 1,
            "began": "2026-11-22 10:00:00",
            **fixed,
            **measured,
            **values,
        }
    )


def plan(**values: Any) -> StudyPlan:
    return StudyPlan(
        **{"rows": 1_000, "iterations": 2, "repetitions": 1, "arms": ("none", "ours"), **values}
    )


def measured(output: Path, done: Sequence[Iteration], **values: Any) -> StudyRun:
    run = StudyRun(folder=output / "run", plan=plan(**values))
    for each in done:
        run.add(each)
    return run


def test_batches_are_the_same_for_all_and_a_tenth_of_later_ones_updates_the_newest_rows() -> None:
    batches = draw_batches(1_000, 200)
    assert batches == draw_batches(1_000, 200)
    assert batches[0].start == 0
    for before, batch in pairwise(batches):
        assert before.end - batch.start == round(batch.row_count * 0.1)
        assert 900 <= batch.row_count <= 1_100
    assert len({batch.seed for batch in batches}) == 200


def test_the_page_of_benchmarks_is_told_of_ours_beside_the_other_arms(tmp_path: Path) -> None:
    assert record_of(measured(tmp_path / "alone", [iteration("none", 1)])) is None
    seconds = {"none": 4.0, "auto": 2.0, "ours": 1.0}
    arms = [
        iteration(arm, 1, merge_seconds=took, query_seconds=0.0, bytes_compacted=int(100 * took))
        for arm, took in seconds.items()
    ]
    record = record_of(measured(tmp_path / "all", arms))
    assert record is not None and (record.benchmark, record.seconds, record.began) == (
        "study",
        7.0,
        "2026-11-22 10:00 UTC",
    )
    told = [(figure.row, figure.value, figure.at_most) for figure in record.figures]
    assert told == [("P1", 0.25, 0.35), ("P1", 0.5, 1.0), ("P1", 0.0, 14), ("P6", 1.0, 2.0)]


def test_an_arm_is_held_against_no_compaction_of_the_same_repetition() -> None:
    seconds = {("none", 1): 2.0, ("none", 2): 4.0, ("ours", 1): 1.0, ("ours", 2): 3.0}
    iterations = [
        iteration(arm, 1, repetition=repetition, merge_seconds=took, query_seconds=0.0)
        for (arm, repetition), took in seconds.items()
    ]
    none, ours = figures_of(by_arm(iterations))
    assert none.ratio == Spread(middle=1.0, low=1.0, high=1.0)
    assert ours.ratio == Spread(middle=0.625, low=0.5, high=0.75)
    assert figures_of(by_arm([each for each in iterations if each.arm == "ours"]))[0].ratio is None


def test_a_page_has_each_arm_next_to_published_figures_and_what_was_not_run(tmp_path: Path) -> None:
    done = [iteration(arm, number) for number in (1, 2) for arm in ("none", "ours")]
    page_file = write_report(measured(tmp_path, done), tmp_path / "docs")
    assert page_file == tmp_path / "run" / "study.md"
    text = page_file.read_text()
    assert "| `none`: no compaction | 33.27 | 1.000 | 3 | 1.000 | 864 | 8 | 0.00 |" in text
    both = "`both`: auto compaction and optimized write"
    assert f"| {both} | 12.77 | 0.384 | not run | not run | 14 | not run | not run |" in text
    assert "$" not in text
    assert "(pictures/study-total.png)" in text
    assert (tmp_path / "run" / "pictures" / "study-total.png").exists()
    assert len((tmp_path / "run" / "iterations.jsonl").read_text().splitlines()) == 4


def test_the_page_in_the_docs_is_what_the_totals_say() -> None:
    totals = kept_totals(FOLDER / "study-runs.jsonl")
    assert (FOLDER.parent / "study.md").read_text() == page(totals, FOLDER.parent / "pictures")


def totals(began: str, **values: Any) -> RunTotals:
    seconds = {"none": 10.0, "ours": 2.0}
    return RunTotals(
        **{"began": began, "repetitions": 1, "iterations": 2, "seconds": seconds, **values}
    )


def test_totals_are_kept_once_and_whole_runs_are_summarised(tmp_path: Path) -> None:
    done = [iteration("none"), iteration("ours", merge_seconds=0.1)]
    run = measured(tmp_path, done, iterations=1)
    file = tmp_path / "docs" / "runs.jsonl"
    [first] = keep(file, [run])
    assert first.seconds == {"none": 1.5, "ours": 0.6}
    assert first.files_deviation == {"none": 0.0, "ours": 0.0}
    assert keep(file, [run]) == keep(file, []) == kept_totals(file) == [first]
    whole = [totals(str(day), iterations=200) for day in (1, 2)]
    slower = replace(whole[1], seconds={"none": 10.0, "ours": 5.0})
    assert whole_runs_sentence([first]) == "No whole run was made."
    assert whole_runs_sentence([first, whole[0], slower]).endswith(
        "Whole runs: 2. Seconds as a ratio to no compaction: `ours` 0.200 to 0.500."
    )
