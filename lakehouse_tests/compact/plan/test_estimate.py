"""What a compaction will take is learnt from those that ran; with none, it comes from the defaults, and is said to."""

import random
from collections.abc import Callable
from dataclasses import replace
from statistics import mean
from typing import Any

import pytest

from lakehouse.compact.plan.compaction import plan_table
from lakehouse.compact.plan.estimate import DEFAULT_RATES, MergeWork, estimate, fit_rates
from lakehouse.declare.prices import Prices
from lakehouse.declare.table import Append, Landing, Table
from lakehouse.delta.commits import Commit
from lakehouse.delta.snapshot import Column
from lakehouse_tests.support.example_histories import compaction, past, write
from lakehouse_tests.support.example_snapshots import data_file, snapshot

MB = 1_000_000
EMPTY = snapshot([])
type_of_truth = tuple[float, float, float, float]


def seconds_of(truth: type_of_truth, files: int, size_bytes: int, *, added: int = 1) -> float:
    """The seconds that a machine of these rates needs."""
    return truth[0] + truth[1] * added + truth[2] * files + truth[3] * size_bytes


def ran(
    truth: type_of_truth, count: int, *, spoilt: Callable[[int], float] = lambda _: 1.0
) -> list[Commit]:
    """Compactions of many sizes on a machine of these rates; `spoilt` is by what factor a run was slower."""
    dice, commits = random.Random(1), list[Commit]()
    for version in range(1, count + 1):
        files = dice.randint(3, 80)
        size_bytes = files * dice.choice((5_000, 100_000, MB))
        seconds = seconds_of(truth, files, size_bytes) * dice.lognormvariate(0, 0.05)
        seconds *= spoilt(version)
        commits.append(compaction(version, files, size_bytes, seconds))
    return commits


def work(files: int, size_bytes: int, **more: Any) -> MergeWork:
    return MergeWork(files_removed=files, bytes_removed=size_bytes, **more)


def predicted(commits: list[Commit], files: int, size_bytes: int) -> float:
    return estimate(fit_rates(past(commits), EMPTY), work(files, size_bytes)).seconds


@pytest.mark.parametrize(
    "commits",
    [[], [write(1, 10)], [compaction(1, seconds=None)]],
    ids=["no commit", "a write", "no start was written"],
)
def test_without_a_measured_compaction_defaults_are_taken_and_named(commits: list[Commit]) -> None:
    found = estimate(fit_rates(past(commits), EMPTY), work(100, 30 * MB))
    assert (found.source, found.basis) == ("defaults", "defaults")
    assert found.seconds == pytest.approx(0.5 + 0.03 + 100 * 0.001 + 30 / 100)


TRUTHS = {"slow": (1.2, 0.24, 0.003, 3 / 100e6), "fast": (0.2, 0.04, 0.0005, 1 / 200e6)}


@pytest.mark.parametrize("truth", TRUTHS.values(), ids=TRUTHS)
def test_after_ten_runs_the_mean_error_is_under_ten_percent(truth: type_of_truth) -> None:
    commits = ran(truth, 12)
    merged = [(files, files * size) for files in (5, 20, 60) for size in (10_000, 500_000)]
    errors = [abs(predicted(commits, *each) / seconds_of(truth, *each) - 1) for each in merged]
    assert mean(errors) < 0.1


def test_a_table_without_a_compaction_is_priced_by_the_lake_s_newest_ones() -> None:
    found = estimate(fit_rates(past([]), EMPTY, lake_factor=3.0), work(10, MB))
    assert found.seconds == pytest.approx(3 * estimate(DEFAULT_RATES, work(10, MB)).seconds)
    assert (found.source, found.basis) == ("lake", "the lake's newest runs")
    own = fit_rates(past(ran(TRUTHS["fast"], 2)), EMPTY, lake_factor=3.0)
    assert own.source == "history" and own.factor < 1


@pytest.mark.parametrize(
    "spoilt",
    [lambda run: 6.0 if run == 1 else 1.0, lambda run: 4.0 if run in (5, 11) else 1.0],
    ids=["a cold start", "a busy machine"],
)
def test_a_run_far_off_does_not_spoil_the_rates(spoilt: Callable[[int], float]) -> None:
    truth = TRUTHS["slow"]
    expected = pytest.approx(seconds_of(truth, 40, 10 * MB), rel=0.1)
    assert predicted(ran(truth, 12, spoilt=spoilt), 40, 10 * MB) == expected


def test_a_machine_that_became_slower_is_believed() -> None:
    truth = TRUTHS["slow"]
    commits = ran(truth, 40, spoilt=lambda run: 2.0 if run > 20 else 1.0)
    expected = pytest.approx(2 * seconds_of(truth, 40, 10 * MB), rel=0.15)
    assert predicted(commits, 40, 10 * MB) == expected


def test_a_prediction_says_how_many_runs_it_rests_on() -> None:
    few, many = (fit_rates(past(ran(TRUTHS["slow"], count)), EMPTY) for count in (2, 30))
    assert (few.run_count, many.run_count, many.source) == (2, 5, "history")
    assert estimate(many, work(1, 1)).basis == "the table's newest 5 runs"


def test_the_bytes_written_follow_what_was_written_before() -> None:
    commits = [compaction(version, written_share=0.6) for version in range(11)]
    rates = [fit_rates(past(commits[:count]), EMPTY) for count in (0, 1, 11)]
    none, one, many = (estimate(each, work(2, MB)).bytes_written for each in rates)
    assert none == MB and one < 0.65 * MB
    assert many == pytest.approx(0.6 * MB, rel=0.02)


# columns, files merged into one, rows, bytes read and bytes written, as OPTIMIZE of Delta 4.4.0 did it
MERGED = {
    "18 files of one column": (1, 6, 6, 2_916, 703),
    "13 columns": (13, 6, 232, 28_655, 7_933),
    "14 columns": (14, 6, 232, 33_191, 10_114),
    "two files": (14, 2, 88, 11_498, 6_978),
}


@pytest.mark.parametrize(
    ("columns", "files", "rows", "read", "written"), MERGED.values(), ids=MERGED
)
def test_the_first_compaction_of_small_files_knows_that_they_shrink(
    columns: int, files: int, rows: int, read: int, written: int
) -> None:
    of_table = snapshot(
        [data_file(read // files, f"part-{place}", rows=rows // files) for place in range(files)],
        columns=[Column(name=f"column{place}", type="int") for place in range(columns)],
    )
    once = work(files, read)
    first = estimate(fit_rates(past([]), of_table), once).bytes_written
    assert first == pytest.approx(written, rel=0.25)
    again = fit_rates(past([compaction(1, files, read, written_share=written / read)]), of_table)
    assert estimate(again, once).bytes_written == pytest.approx(written, rel=0.05)
    twice = estimate(again, work(2 * files, 2 * read)).bytes_written
    assert written * 0.9 < twice < 2 * written
    half = estimate(again, replace(once, live_share=0.5)).bytes_written
    assert half == pytest.approx(written / 2, rel=0.05)


def test_large_files_hardly_shrink_and_none_gets_smaller_than_the_mean_merged_file() -> None:
    rates = replace(DEFAULT_RATES, bytes_per_file=1_000)
    assert estimate(rates, work(10, 100 * MB)).bytes_written == 100 * MB - 9_000
    assert estimate(rates, work(10, 5_000)).bytes_written == 500
    assert estimate(rates, work(4, MB, files_added=4)).bytes_written == MB


def test_nothing_costs_nothing() -> None:
    found = estimate(DEFAULT_RATES, work(0, 0), on_s3=True)
    assert (found.seconds, found.usd, found.get_requests, found.put_requests) == (0, 0, 0, 0)


def test_money_is_the_driver_s_time_and_on_s3_its_requests() -> None:
    prices = Prices(usd_per_vcpu_hour=0.5, vcpus=4, usd_per_1000_puts=1, usd_per_1000_gets=0.1)
    rates = replace(DEFAULT_RATES, prices=prices)
    disk, s3 = estimate(rates, work(10, MB)), estimate(rates, work(10, MB), on_s3=True)
    assert disk.vcpu_hours == pytest.approx(disk.seconds * 4 / 3600)
    assert disk.usd == pytest.approx(disk.vcpu_hours * 0.5)
    assert (disk.get_requests, s3.get_requests, s3.put_requests) == (0, 35, 4)
    assert s3.usd - disk.usd == pytest.approx(0.0035 + 0.0040)
    assert rates.prices.run_usd(seconds=3600) == pytest.approx(2.0)


def test_a_table_s_own_prices_are_in_its_plan() -> None:
    landed = Landing(prefix="landing/t/", format="json", schema="id BIGINT")
    prices = Prices(usd_per_vcpu_hour=3600, vcpus=1)
    table = Table(key="bronze/t", source=landed, write=Append(), prices=prices)
    found = plan_table(table, snapshot([1_000, 2_000]), past([]), now_ms=0).estimate
    assert found.seconds > 0 and found.usd == pytest.approx(found.seconds)
