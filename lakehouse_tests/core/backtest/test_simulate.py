"""A log replayed under another policy."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakehouse.core.backtest.result import Backtest
from lakehouse.core.backtest.simulate import real_result, simulate_history
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.strategies import AfterWrite, Scheduled
from lakehouse.core.delta.file_history import FileHistory
from lakehouse.core.reasons import Reason
from lakehouse.core.scheduling.ranking import Bounds, choose_compactions
from lakehouse.core.scheduling.table_decision import CompactionCandidate, RunState
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.engine.delta_log.file_history import read_file_history
from lakehouse_tests.core.example_snapshots import POLICY, plan_of
from lakehouse_tests.log_builder import MINUTE_MS, START_MS, LogBuilder

NONE = replace(POLICY, mode="off")
AFTER_WRITE = replace(POLICY, strategy=AfterWrite())


def story_of(log: LogBuilder, root: str = "/lake") -> FileHistory:
    story = read_file_history(log.store, log.key, uri=f"{root}/{log.key}")
    assert story is not None
    return story


def replayed(log: LogBuilder, policy: Compaction = POLICY) -> Backtest:
    return simulate_history(story_of(log), policy)


def file_counts(backtest: Backtest) -> list[int]:
    return [moment.file_count for moment in backtest.steps]


def paths(backtest: Backtest) -> list[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    return [
        (moment.version, run.removed_paths, run.added_paths)
        for moment in backtest.steps
        for run in moment.runs
    ]


def appended(count: int, *, size: int = 1_000) -> LogBuilder:
    log = LogBuilder().create()
    for place in range(count):
        log.append([(f"f{place}", size + place)])
    return log


def test_the_sensors_own_threshold_decides_and_its_sentence_is_told() -> None:
    found = replayed(appended(5))
    assert file_counts(found) == [1, 2, 3, 1, 2]
    assert [moment.reason for moment in found.steps] == [Reason.BELOW_THRESHOLD] * 3 + [
        Reason.DUE,
        Reason.BELOW_THRESHOLD,
    ]
    [run] = found.runs
    assert (run.removed_paths, run.bytes_removed, run.at_ms) == (
        ("f0", "f1", "f2", "f3"),
        4_006,
        START_MS + 4 * MINUTE_MS,
    )
    assert (
        run.sentence == "4 mergeable files reach the threshold of 4: 4 files (3.9 KiB) merge into 1"
    )
    assert (found.bytes_ingested, found.bytes_rewritten, found.write_amplification) == (
        5_010,
        4_006,
        4_006 / 5_010,
    )
    assert (found.mean_file_count, found.deviation_file_count) == (
        1.8,
        pytest.approx(0.748, abs=0.001),
    )
    assert found.seconds > 0 and found.usd > 0


def test_on_s3_real_and_simulated_compactions_cost_their_requests() -> None:
    log = appended(4).optimize([f"f{place}" for place in range(4)], into=("c", 4_006, 4))
    on_disk, on_s3 = (real_result(story_of(log, root), POLICY) for root in ("/lake", "s3://lake"))
    assert (on_s3.seconds, on_s3.usd) == (
        on_disk.seconds,
        simulate_history(story_of(log, "s3://lake"), POLICY).usd,
    )
    assert on_s3.usd > on_disk.usd > 0


def test_without_a_compaction_the_count_is_what_writers_made_it() -> None:
    log = (
        appended(6)
        .optimize([f"f{place}" for place in range(6)], into=("c", 6_000, 6_015))
        .append([("g", 10)])
    )
    found = replayed(log, NONE)
    assert file_counts(found) == [1, 2, 3, 4, 5, 6, 7]
    assert file_counts(real_result(story_of(log), NONE)) == [1, 2, 3, 4, 5, 1, 2]
    assert {moment.reason for moment in found.steps} == {Reason.OPTED_OUT}
    assert (found.runs, found.uncertainty.shrink_ratio) == ((), 6_000 / 6_015)


def test_a_real_output_is_taken_where_the_same_rows_are_put_together_and_modelled_elsewhere() -> (
    None
):
    log = appended(4).optimize([f"f{place}" for place in range(4)], into=("c", 2_003, 4_006))
    same = replayed(log)
    assert paths(same) == [(4, ("f0", "f1", "f2", "f3"), ("c",))]
    assert (same.runs[0].bytes_added, same.uncertainty.modelled_files) == (2_003, 0)
    other = replayed(log, replace(POLICY, min_small_files=2))
    assert [run.bytes_added for run in other.runs] == [
        1_000,
        2_003,
    ]  # half, as the real one shrank; then all rows are together again
    assert other.uncertainty.modelled_files == 1


def test_after_each_write_the_plan_decides() -> None:
    found = replayed(appended(4), AFTER_WRITE)
    assert file_counts(found) == [1, 1, 2, 1]
    assert found.steps[2].reason is Reason.ALREADY_COMPACTED


def test_a_schedule_runs_between_two_commits_or_not_at_all() -> None:
    log = appended(6)  # at minutes 1 to 6 after 22:13:20
    found = replayed(log, replace(POLICY, strategy=Scheduled(cron="17 22 * * *")))
    assert [len(moment.runs) for moment in found.steps] == [0, 0, 1, 0, 0, 0]
    assert found.steps[2].reason is Reason.MERGEABLE_FILES
    assert found.steps[3].reason is Reason.OTHER_STRATEGY


def test_a_merge_into_a_compacted_file_takes_all_that_its_rows_lie_in() -> None:
    log = appended(3).optimize(["f0", "f1", "f2"], into=("c", 3_000, 3_003))
    log.rewrite(["c"], [("new", 2_900, 3_003)])
    found = replayed(log, NONE)
    assert file_counts(found) == [1, 2, 3, 1]
    assert (found.uncertainty.moved_removals, found.uncertainty.carried_bytes) == (1, 0)


def test_a_merge_into_one_file_has_to_write_again_what_the_replay_put_beside_it() -> None:
    log = appended(4).rewrite(["f1"], [("new", 900, 1_001)]).delete(["f2"])
    found = replayed(log)
    merged, deleted = found.steps[4:]
    assert (merged.file_count, merged.size_bytes, merged.row_count) == (
        1,
        900 + 1_000 + 1_002 + 1_003,
        4_006,
    )
    assert (deleted.file_count, deleted.row_count) == (1, 3_004)
    assert (found.uncertainty.moved_removals, found.uncertainty.carried_bytes) == (2, 3_005 + 2_903)


def test_a_deletion_vector_goes_where_the_rows_are() -> None:
    log = appended(4).delete_rows({"f1": 100})
    found = replayed(log)
    assert (found.steps[-1].row_count, found.uncertainty.moved_vectors) == (3_906, 1)
    log = appended(3).optimize(["f0", "f1", "f2"], into=("c", 3_000, 3_003)).delete_rows({"c": 300})
    spread = replayed(log, NONE)
    assert (
        spread.steps[-1].row_count,
        spread.steps[-1].file_count,
        spread.uncertainty.moved_vectors,
    ) == (2_703, 3, 1)


def test_a_log_without_its_beginning_starts_at_the_oldest_checkpoint() -> None:
    log = (
        appended(3)
        .checkpoint()
        .append([("f3", 1_003)])
        .checkpoint()
        .append([("f4", 1_004)])
        .forget_before(4)
    )
    found = replayed(log)
    assert (found.history.first_version, found.history.start is None) == (3, False)
    assert paths(found) == [(4, ("f0", "f1", "f2", "f3"), ("replay/1-merged",))]
    assert file_counts(found) == [1, 2]


def test_a_partition_by_row_counts_and_where_they_do_not_tell_it_is_counted() -> None:
    for into, unclear in (
        ([("y", 6_900, 70), ("x", 2_900, 30)], 0),
        ([("y", 5_000, 50), ("x", 5_000, 50)], 1),
    ):
        log = (
            LogBuilder()
            .create()
            .append([("a", 1_000, 10), ("b", 2_000, 20), ("c", 3_000, 30), ("d", 4_000, 40)])
        )
        assert (
            replayed(
                log.optimize(["a", "b", "c", "d"], into=into), AFTER_WRITE
            ).uncertainty.unclear_compactions
            == unclear
        )


def test_a_purge_of_single_files_is_told_by_their_rows_too() -> None:
    log = (
        LogBuilder()
        .create()
        .append([("a", 1_000, 10), ("b", 2_000, 20)])
        .delete_rows({"a": 1, "b": 2})
    )
    found = replayed(log.optimize(["a", "b"], into=[("y", 1_800, 18), ("x", 900, 9)]), NONE)
    assert (
        found.uncertainty.unclear_compactions,
        found.steps[-1].row_count,
        found.steps[-1].file_count,
    ) == (0, 27, 2)


sizes = st.integers(min_value=10, max_value=9_000)
deeds = st.tuples(
    st.sampled_from(["append", "rewrite", "delete", "vector", "optimize"]),
    st.lists(sizes, min_size=1, max_size=4),
)


def written(told: Sequence[tuple[str, list[int]]]) -> LogBuilder:
    """A log of these deeds; each picks its files by its numbers."""
    log = LogBuilder().create(partition_by=["d"])
    live: dict[str, int] = {}  # rows of each file
    for step, (deed, numbers) in enumerate(told):
        picked = sorted({sorted(live)[number % len(live)] for number in numbers}) if live else []
        new = {f"d={number % 2}/{step}-{place}": number for place, number in enumerate(numbers)}
        if deed == "append" or not picked:
            log.append([(path, rows, rows) for path, rows in new.items()])
            live |= new
        elif deed == "delete":
            log.delete(picked)
        elif deed == "rewrite":
            log.rewrite(picked, [(path, rows, rows) for path, rows in new.items()])
            live |= new
        elif deed == "vector" and live[picked[0]] > 1 and picked[0] not in log.vectors():
            gone = live[picked[0]] // 2
            log.delete_rows({picked[0]: gone})
            live[picked[0]] -= gone
            continue
        elif deed == "optimize":
            for part in ("d=0", "d=1"):
                mine = [path for path in picked if path.startswith(part)]
                if len(mine) > 1:
                    rows = sum(live.pop(path) for path in mine)
                    log.optimize(mine, into=(f"{part}/{step}-c", max(1, rows // 2), rows))
                    live[f"{part}/{step}-c"] = rows
            continue
        else:
            continue
        for path in picked if deed in ("delete", "rewrite") else ():
            live.pop(path)
    return log


@given(
    st.lists(deeds, max_size=12),
    st.sampled_from([POLICY, NONE, AFTER_WRITE, replace(POLICY, min_small_files=2)]),
)
def test_every_replay_has_the_rows_that_the_table_had_at_each_version(
    told: Sequence[tuple[str, list[int]]], policy: Compaction
) -> None:
    story = story_of(written(told))
    real, found = real_result(story, policy), simulate_history(story, policy)
    real_rows = {moment.version: moment.row_count for moment in real.steps}
    assert [moment.row_count for moment in found.steps] == [
        real_rows[moment.version] for moment in found.steps
    ]
    assert all((moment.file_count == 0) == (moment.row_count == 0) for moment in found.steps)


def in_any_order(
    runs: Sequence[tuple[int, tuple[str, ...], tuple[str, ...]]],
) -> list[tuple[int, set[str], set[str]]]:
    return [(version, {*removed}, {*added}) for version, removed, added in runs]


@given(
    st.lists(st.lists(sizes, min_size=1, max_size=4), max_size=10),
    st.integers(min_value=1, max_value=3),
)
@example([[2667] * 4], 1)
def test_the_replay_of_the_policy_in_force_is_what_happened(
    batches: Sequence[list[int]], shrink: int
) -> None:
    """Two files of one compaction with equal sizes and row counts may change places."""
    log = LogBuilder().create()
    for step, batch in enumerate(batches):
        log.append([(f"{step}-{place}", size) for place, size in enumerate(batch)])
        plan = plan_of(log.snapshot())
        state = TableState(
            table=log.key, version=log.version, mergeable_file_count=plan.files_removed
        )
        [decision] = choose_compactions(
            [CompactionCandidate(state=state, policy=POLICY)],
            RunState(),
            bounds=Bounds(slots=1),
            now_ms=log.snapshot().committed_ms,
        )
        if decision.request:
            removed = [file for bin_ in plan.bins for file in bin_.files]
            rows = [sum(file.row_count or 0 for file in bin_.files) for bin_ in plan.bins]
            made = [
                (f"{step}-c{place}", bin_.size_bytes // shrink, rows[place])
                for place, bin_ in enumerate(plan.bins)
            ]
            log.optimize([file.path for file in removed], into=made)
    story = story_of(log)
    real, found = real_result(story, POLICY), simulate_history(story, POLICY)
    assert in_any_order(paths(found)) == in_any_order(paths(real))
    assert file_counts(found) == file_counts(real)
    assert (
        found.bytes_rewritten,
        found.uncertainty.modelled_files,
        found.uncertainty.moved_removals,
    ) == (real.bytes_rewritten, 0, 0)
