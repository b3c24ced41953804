"""The compaction study's pure parts: its batches, what is kept of a run, its figures and its page."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.records import ROOT
from benchmarks.study import report
from benchmarks.study.arms import ARMS
from benchmarks.study.batches import draw_batches
from benchmarks.study.days import RunTotals, days_table, keep
from benchmarks.study.figures import (
    Spread,
    by_arm,
    figures_of,
    median_line,
    over_iterations,
    total_line,
)
from benchmarks.study.raw import (
    Iteration,
    StudyPlan,
    StudyRun,
    best_runs,
    find_runs,
    open_run,
    take_back,
)
from benchmarks.study.record import record_of
from benchmarks.study.report import is_whole, write_report

MACHINE = {"cores:": "2"}


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


def measured(output: Path, done: Sequence[Iteration], now: str = "1", **values: Any) -> StudyRun:
    run = open_run(output, plan(**values), MACHINE, now=now)
    for each in done:
        run.add(each)
    return run


def test_batches_are_the_same_for_all_and_a_tenth_of_each_but_the_first_updates_the_newest_rows() -> (
    None
):
    batches = draw_batches(1_000, 200)
    assert batches == draw_batches(1_000, 200)
    assert batches[0].start == 0
    for before, batch in pairwise(batches):
        assert before.end - batch.start == round(batch.row_count * 0.1)
        assert 900 <= batch.row_count <= 1_100
    assert len({batch.seed for batch in batches}) == 200


def test_an_interrupted_run_goes_on_without_the_line_that_was_cut_off(tmp_path: Path) -> None:
    run = measured(tmp_path, [iteration("none", 1)])
    with (run.folder / "iterations.jsonl").open("a") as file:
        file.write('{"arm": "no')
    again = open_run(tmp_path, plan(), MACHINE, now="2")
    assert again == run
    again.add(iteration("none", 2))
    assert again.iterations == [iteration("none", 1), iteration("none", 2)]


@pytest.mark.parametrize("differs", [{"iterations": 3}, {"arms": ("none",)}, {"latency_ms": 20}])
def test_another_plan_and_a_complete_run_begin_anew(
    tmp_path: Path, differs: dict[str, Any]
) -> None:
    run = measured(
        tmp_path, [iteration(arm, number) for number in (1, 2) for arm in ("none", "ours")]
    )
    assert run.is_complete
    assert open_run(tmp_path, plan(), MACHINE, now="2").folder != run.folder
    assert open_run(tmp_path, plan(**differs), MACHINE, now="3").folder.name.endswith("-3")


def test_a_table_is_taken_back_to_the_version_that_was_measured(tmp_path: Path) -> None:
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    names = [
        "0" * 19 + "1.json",
        "0" * 19 + "2.json",
        "." + "0" * 19 + "2.json.crc",
        "0" * 19 + "2.checkpoint.parquet",
        "_last_checkpoint",
    ]
    for name in names:
        (log / name).touch()
    take_back(tmp_path / "table", 1)
    assert [path.name for path in log.iterdir()] == names[:1]
    take_back(tmp_path / "table", None)
    assert not (tmp_path / "table").exists()


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


def test_the_page_of_benchmarks_is_told_of_the_longest_run_of_each_other_size(
    tmp_path: Path,
) -> None:
    def totals(began: str, ours: float, **of: Any) -> RunTotals:
        seconds = {"none": 4.0, "auto": 2.0, "ours": ours, "chosen": 3.0, "both": 2.0}
        return RunTotals(
            **{"began": began, "repetitions": 1, "iterations": 20, "seconds": seconds, **of}
        )

    runs = [
        totals("1", 1.0, rows=100),
        totals("2", 2.5, rows=100),
        totals("3", 1.0),
        totals("3", 1.0, latency_ms=20),
    ]
    runs.append(totals("4", 1.5, rows=100, iterations=19))
    record = record_of(measured(tmp_path, [iteration(arm) for arm in ("none", "ours")]), runs)
    assert record is not None
    told = {
        figure.name: (figure.value, figure.at_most)
        for figure in record.figures
        if figure.name.endswith("best other arm, `auto`")
    }
    assert told == {
        "`ours`, 100 rows a batch, 20 iterations: total seconds beside the best other arm, `auto`": (
            1.25,
            1.0,
        ),
        "`chosen`, 100 rows a batch, 20 iterations: total seconds beside the best other arm, `auto`": (
            1.5,
            1.0,
        ),
        "`ours`, 1,000 rows a batch on S3's protocol, 20 ms for each request, 20 iterations: "
        "total seconds beside the best other arm, `auto`": (0.5, 1.0),
        "`chosen`, 1,000 rows a batch on S3's protocol, 20 ms for each request, 20 iterations: "
        "total seconds beside the best other arm, `auto`": (1.5, 1.0),
    }


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


def test_figures_are_of_what_all_arms_have_done() -> None:
    whole = [iteration(arm, number, repetition=1) for arm in ("none", "ours") for number in (1, 2)]
    begun = [iteration("none", 1, repetition=2)]
    assert {
        arm: [len(each) for each in repetitions]
        for arm, repetitions in by_arm([*whole, *begun]).items()
    } == {"none": [2], "ours": [2]}
    assert {
        arm: [len(each) for each in repetitions] for arm, repetitions in by_arm(whole[:3]).items()
    } == {"none": [1], "ours": [1]}
    assert by_arm(whole[:2])["none"] == [whole[:2]]


def test_deviations_shares_and_sums() -> None:
    first = iteration(
        number=1,
        files=1,
        upkeep_seconds=0.25,
        decision_seconds=0.25,
        bytes_compacted=150,
        compactions=1,
        requests={"merge": 7},
    )
    (figures,) = figures_of(
        {
            "ours": [
                [
                    first,
                    iteration(
                        number=2, files=5, query_seconds=1.5, bytes_copied=10, requests={"merge": 5}
                    ),
                ]
            ]
        }
    )
    assert figures.seconds.middle == 2.0 + 2.5
    assert (
        figures.files_deviation.middle,
        figures.work_deviation.middle,
        figures.query_deviation.middle,
    ) == (2.0, 0.25, 0.5)
    assert (figures.compacted_share.middle, figures.copied_share.middle) == (0.75, 0.05)
    assert (
        figures.compactions.middle,
        figures.files_at_end.middle,
        figures.requests["merge"].middle,
    ) == (1, 5, 12)
    assert over_iterations([1.0, 2.0, 3.0, 4.0, 5.0]) == Spread(middle=3.0, low=2.0, high=4.0)
    assert (
        Spread(middle=3.0, low=2.0, high=4.0).text(1),
        Spread(middle=1.0, low=1.0, high=1.0).text(0),
    ) == ("3.0 (2.0 to 4.0)", "1")


def test_lines_of_charts() -> None:
    repetitions = [
        [iteration(number=number, files=number * times) for number in (1, 2, 3)]
        for times in (1, 2, 9)
    ]
    assert median_line(repetitions, lambda each: each.files) == [(1, 2), (2, 4), (3, 6)]
    assert median_line(repetitions, lambda each: each.files, window=2) == [(1, 2), (2, 3), (3, 5)]
    assert total_line(repetitions) == [(1, 1.5), (2, 3.0), (3, 4.5)]


def test_the_page_has_each_arm_beside_the_published_figures_and_says_what_was_not_run(
    tmp_path: Path,
) -> None:
    measured(tmp_path, [iteration(arm, number) for number in (1, 2) for arm in ("none", "ours")])
    measured(
        tmp_path,
        [iteration("none", 1, requests={"merge": 7, "query": 3, "upkeep": 0})],
        now="2",
        latency_ms=20,
        arms=("none",),
    )
    sentences = write_report(tmp_path, tmp_path / "study.md")
    page = (tmp_path / "study.md").read_text()
    assert "1,000 rows a batch, on disk: 2 iterations, repetitions: 1" in sentences[0]
    assert (
        "| no compaction | 33.27 | 1.000 | 0.05 | 1.000 | 864, 2.90, 0.70 | 8, 0.00, 0.00 |" in page
    )
    assert "| auto compaction and optimized write | 12.77 | 0.384 | not run |" in page
    assert "| `none` | 7 | 3 | 0 |" in page
    assert (
        "Not run, so nothing is said about it: 100,000 rows a batch, on disk; 1,000,000 rows a batch, on disk."
        in page
    )
    assert "$" not in page
    assert all(
        (tmp_path / "pictures" / name).exists() for name in ("study-files.png", "study-total.png")
    )
    parquet = next(tmp_path.glob("*disk*/iterations.parquet"))
    assert parquet.stat().st_size > 0


def test_the_page_in_the_docs_has_the_text_of_now() -> None:
    page = (ROOT / "docs" / "internals" / "study.md").read_text()
    assert [
        part for part in re.split(r"\$\w+", report._PAGE.read_text()) if part.strip() not in page
    ] == []


def test_the_page_keeps_what_was_measured_elsewhere_and_takes_what_was_measured_here(
    tmp_path: Path,
) -> None:
    page = tmp_path / "study.md"
    runs = [
        ("there", 1_000, 1.0),
        ("there", 100_000, 2.0),
        ("here", 1_000_000, 3.0),
        ("here", 1_000, 4.0),
        ("shorter", 1_000, 5.0),
    ]
    for output, rows, took in runs:
        done = [
            iteration("none", number, merge_seconds=took)
            for number in ((1,) if output == "shorter" else (1, 2))
        ]
        measured(tmp_path / output, done, str(rows), rows=rows, arms=("none",))
    for output in ("there", "here", "shorter"):
        write_report(tmp_path / output, page)
    sections = page.read_text().split("## Every run")[1].split("Each cell")[0].split("### ")[1:]
    assert [each.partition(":")[0] for each in sections] == [
        f"{rows} rows a batch, on disk" for rows in ("1,000", "100,000", "1,000,000")
    ]
    assert [
        f"| {seconds} | 1.000 |" in each for seconds, each in zip((9, 5, 7), sections, strict=True)
    ] == [True] * 3
    assert (
        "Not run, so nothing is said about it: 1,000 rows a batch, on S3's protocol"
        in page.read_text()
    )


def test_the_page_is_made_of_the_largest_run_and_of_those_the_newest(tmp_path: Path) -> None:
    small = measured(tmp_path, [iteration("none", 1)], now="1", iterations=1, arms=("none",))
    large = [
        measured(
            tmp_path, [iteration("none", number) for number in (1, 2)], now=now, arms=("none",)
        )
        for now in ("2", "3")
    ]
    last = measured(tmp_path, [iteration("none", 1)], now="4", iterations=1, arms=("none",))
    assert [*find_runs(tmp_path)] == [small, *large, last]
    assert best_runs([*find_runs(tmp_path)]) == [large[1]]


def test_whole_runs_stand_side_by_side_and_say_whether_they_agree(tmp_path: Path) -> None:
    def one(day: int) -> StudyRun:
        merges = {"none": 9.5, "auto": 4.5, "ours": 1.5 if day < 24 else 4.6}
        done = [
            iteration(arm, began=f"2026-11-{day} 10:00:00", merge_seconds=each)
            for arm, each in merges.items()
        ]
        return measured(tmp_path, done, now=str(day), iterations=1, arms=tuple(merges))

    def table(runs: Sequence[RunTotals]) -> str:
        return days_table([replace(each, iterations=200) for each in runs])

    file, oldest = tmp_path / "docs" / "runs.jsonl", one(22)
    first = keep(file, [oldest])
    assert first == [
        RunTotals(
            began="2026-11-22 10:00:00",
            repetitions=1,
            iterations=1,
            seconds={"none": 10.0, "auto": 5.0, "ours": 2.0},
        )
    ]
    assert (
        table(first).endswith("nothing is said about another day.")
        and days_table(first) == "No whole run was made."
    )
    assert keep(file, []) == first and table(keep(file, [one(23), oldest])).endswith(
        "All runs agree in the order of the arms."
    )
    told = table(keep(file, [one(24)]))
    assert (
        "| `auto` | 0.500 (2.) | 0.500 (2.) | 0.500 (1.) |\n| `ours` | 0.200 (1.) | 0.200 (1.) | 0.510 (2.) |"
        in told
    )
    assert told.endswith("in each run: `auto` and `ours` (150.0%, 150.0%, 2.0%).")
    other = RunTotals(began="2026-11-25", repetitions=1, iterations=1, seconds={"none": 1.0})
    assert (
        table([*first, other]).endswith("nothing is said about another day.")
        and table([]) == "No whole run was made."
    )


def test_only_a_run_of_all_arms_is_the_study(tmp_path: Path) -> None:
    arms = tuple(ARMS)
    iterations = [iteration(arm, number) for number in range(1, 201) for arm in arms]
    assert is_whole(measured(tmp_path, iterations, iterations=200, arms=arms))
    assert not is_whole(measured(tmp_path, iterations[:-1], now="2", iterations=200, arms=arms))
    assert not is_whole(measured(tmp_path, [iteration()], now="3", iterations=1, arms=("none",)))
    assert json.loads((next(tmp_path.glob("*-2")) / "plan.json").read_text())["machine"] == MACHINE
