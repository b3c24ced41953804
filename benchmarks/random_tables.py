"""Compares plans with what Delta's OPTIMIZE commits, on random real tables.

`python -m benchmarks.random_tables COUNT SEED`. Each table is drawn from a seed, built by Spark,
planned from its log alone, and compacted by the engine's own statement.
"""

import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from benchmarks.figures import Figure, alone
from benchmarks.own_lake import own_lake
from benchmarks.random_recipes import Recipe, draw
from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.bins import unmergeable_files
from lakehouse.compact.plan.compaction import CompactionPlan, plan_compaction
from lakehouse.compact.plan.estimate import DEFAULT_RATES
from lakehouse.compact.run import run_statement
from lakehouse.delta.commits import Commit
from lakehouse.delta.log import TableFacts
from lakehouse.delta.partition_values import typed_partition
from lakehouse.delta.snapshot import DataFile, Snapshot, types_by_name
from lakehouse.lake.lake import Lake
from lakehouse.spark.errors import first_line
from lakehouse.spark.temporary_confs import session_confs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where a plan does nothing because Delta would find nothing, OPTIMIZE runs all the same: there must
# be no commit.
NOTHING_FOR_DELTA = (Reason.NOTHING_SMALL, Reason.NOTHING_SHARES_A_BIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One table: planned and committed figures, and every difference in words."""

    recipe: Recipe
    differences: tuple[str, ...]
    files: int = 0
    files_removed: int = 0
    files_added: int = 0
    bytes_removed: int = 0
    commits: int = 0
    tied: bool = False
    seconds: float = 0.0


def compare(lake: Lake, spark: "SparkSession", recipe: Recipe) -> Compared:
    """Builds a table, plans and runs its compaction, and reports differences."""
    began = time.monotonic()
    key = f"bronze/random_{recipe.name}"
    for statement, confs in recipe.statements(lake.settings.table_uri(key)):
        with session_confs(spark, confs):
            spark.sql(statement)
    if recipe.foreign_spellings:
        _add_foreign_spellings(lake, key)
    if recipe.forgets_commits:
        _forget_commits(lake, key)
    before = lake.facts(key)
    planned = _plan(before, recipe)
    mark = f"random table {recipe.name}"
    # Over the whole table Delta would merge what the plan leaves alone, too.
    is_left_alone = bool(unmergeable_files(before.snapshot))
    if planned.bins or (planned.reason in NOTHING_FOR_DELTA and not is_left_alone):
        run_statement(spark, before.snapshot, planned, mark)
    after = lake.facts(key)
    commit = after.history.marked(mark)
    commits = list[Commit]()
    if commit is not None:
        commits.append(commit)
    found = differences(before.snapshot, planned, commits)
    return Compared(
        recipe=recipe,
        files=before.snapshot.file_count,
        files_removed=sum(len(commit.removed_paths) for commit in commits),
        files_added=sum(len(commit.added_paths) for commit in commits),
        bytes_removed=sum(commit.removed_bytes for commit in commits),
        commits=len(commits),
        tied=not found
        and {path for commit in commits for path in commit.removed_paths}
        != _planned_paths(planned),
        seconds=time.monotonic() - began,
        differences=(*found, *(() if planned.files_left else _not_fixed(after, recipe))),
    )


def differences(
    before: Snapshot, planned: CompactionPlan, commits: Sequence[Commit]
) -> tuple[str, ...]:
    """Differences between a compaction's commits and its plan, in words."""
    return (
        *_compared_figures(planned, commits),
        *_compared_paths(before, planned, commits),
        *_compared_commits(planned, commits),
    )


def _compared_figures(planned: CompactionPlan, commits: Sequence[Commit]) -> Iterator[str]:
    actual = {
        "files removed": (
            planned.files_removed,
            sum(len(commit.removed_paths) for commit in commits),
        ),
        "files added": (planned.files_added, sum(len(commit.added_paths) for commit in commits)),
        "bytes removed": (planned.bytes_removed, sum(commit.removed_bytes for commit in commits)),
    }
    for name, (predicted, found) in actual.items():
        if predicted != found:
            yield f"{name}: planned {predicted}, was {found}"


def _compared_paths(
    snapshot: Snapshot, planned: CompactionPlan, commits: Sequence[Commit]
) -> Iterator[str]:
    """The paths to compare. Delta may choose any of several files of the same partition and size."""
    expected = _planned_paths(planned)
    removed = {path for commit in commits for path in commit.removed_paths}
    files, types = {file.path: file for file in snapshot.files}, types_by_name(snapshot.columns)

    def alike(paths: set[str]) -> Counter[object]:
        return Counter(
            (typed_partition(files[path].partition, types), files[path].size_bytes)
            for path in paths
        )

    if removed <= files.keys() and alike(expected) == alike(removed):
        return
    yield from (
        f"planned, not removed: {_told(files[path])}" for path in sorted(expected - removed)
    )
    yield from (
        f"removed, not planned: {_told(files[path]) if path in files else path}"
        for path in sorted(removed - expected)
    )


def _planned_paths(planned: CompactionPlan) -> set[str]:
    return {file.path for bin_ in planned.bins for file in bin_.files}


def _told(file: DataFile) -> str:
    return f"{file.size_bytes} bytes, {file.deleted_row_count} of {file.row_count} rows deleted, in {dict(file.partition)}"


def _compared_commits(planned: CompactionPlan, commits: Sequence[Commit]) -> Iterator[str]:
    """A plan with bins is one commit."""
    if len(commits) != bool(planned.bins):
        yield f"commits: planned {int(bool(planned.bins))}, was {len(commits)}"


def _plan(facts: TableFacts, recipe: Recipe) -> CompactionPlan:
    """The plan of the moment of the newest commit."""
    now_ms = facts.snapshot.committed_ms
    return plan_compaction(
        facts.snapshot, recipe.policy, rates=DEFAULT_RATES, now_ms=now_ms, history=facts.history
    )


def _not_fixed(after: TableFacts, recipe: Recipe) -> Iterator[str]:
    again = _plan(after, recipe)
    if again.bins:
        yield f"planned again: {again.sentence}"


def _forget_commits(lake: Lake, key: str) -> None:
    """What Delta's log cleanup does after its retention: commits up to the newest checkpoint go."""
    checkpoint = lake.facts(key).snapshot.log.checkpoint_version
    lake.store.delete(f"{key}/_delta_log/{version:020}.json" for version in range(checkpoint or 0))


def _add_foreign_spellings(lake: Lake, key: str) -> None:
    """Adds copies of the newest files in a commit as writers other than Spark make it: values spelled otherwise, and texts left empty."""
    snapshot = lake.facts(key).snapshot
    types = types_by_name(snapshot.columns)
    plain = {file.path for file in snapshot.files if file.deletion_vector is None}
    newest = f"{key}/_delta_log/{snapshot.version:020}.json"
    actions = [json.loads(line) for line in lake.store.read(newest).splitlines()]
    adds = [action["add"] for action in actions if action.get("add", {}).get("path") in plain]
    commit: list[object] = [{"commitInfo": {"operation": "WRITE", "timestamp": 1}}]
    for place, add in enumerate(adds[:6]):
        name = f"foreign-{place}.parquet"
        lake.store.put(f"{key}/{name}", lake.store.read(f"{key}/{unquote(add['path'])}"))
        values = {
            column: _respelled(value, is_text=types.get(column) == "string")
            for column, value in add["partitionValues"].items()
        }
        copied = {"path": name, "partitionValues": values, "dataChange": True}
        commit.append({"add": {**add, **copied}})
    lines = "\n".join(map(json.dumps, commit))
    lake.store.put(f"{key}/_delta_log/{snapshot.version + 1:020}.json", lines.encode())


def _respelled(value: str | None, *, is_text: bool) -> str | None:
    """The same value in another spelling, texts as they are. In a text column, null becomes an empty text, which is another value."""
    if value is None:
        return "" if is_text else None
    number = re.fullmatch(r"(-?)(\d+(?:\.\d+)?)", value)
    if number is not None:
        return f"{number[1]}00{number[2]}"
    day = re.fullmatch(r"(\d{4})-0?(\d+)-0?(\d+)", value)
    if day is not None:
        return f"{day[1]}-{day[2]}-{day[3]}"
    return value.replace("true", "T").replace("false", "0")


def compare_many(count: int, seed: int, *, first: int = 0) -> Iterator[Compared]:
    """The tables `first` up to `count` after it, one after the other, on a server of their own."""
    with own_lake(LAKEHOUSE_SPARK_MEMORY="2g") as (lake, spark):
        for number in range(first, first + count):
            recipe = draw(seed, number)
            try:
                yield compare(lake, spark, recipe)
            except Exception as error:  # the other tables are still worth comparing
                yield Compared(
                    recipe=recipe, differences=(f"{type(error).__name__}: {first_line(error)}",)
                )


def table_of(found: Sequence[Compared]) -> str:
    """Features by tables, as Markdown."""
    rows: defaultdict[str, list[Compared]] = defaultdict(list)
    for each in found:
        for feature in each.recipe.features:
            rows[feature].append(each)
    lines = [
        "| feature | tables | with something to do | files removed | files added | bytes removed | commits | differences |"
    ]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, group in [*sorted(rows.items()), ("**all**", list(found))]:
        sums = [sum(values) for values in zip(*map(_numbers, group), strict=True)]
        lines.append(f"| {name} | {len(group)} | {' | '.join(f'{value:,}' for value in sums)} |")
    return "\n".join(lines)


def _numbers(each: Compared) -> tuple[int, ...]:
    done = each.commits > 0
    return (
        done,
        each.files_removed,
        each.files_added,
        each.bytes_removed,
        each.commits,
        len(each.differences),
    )


def main(count: int = 200, seed: int = 1, first: int = 0) -> list[Figure]:
    """Every difference between what was planned and what was committed; prints them, and the table by features."""
    found: list[Compared] = []
    for each in compare_many(count, seed, first=first):
        found.append(each)
        told = f"{each.files} files, {each.files_removed} into {each.files_added} in {each.commits} commit(s)"
        print(f"  table {each.recipe.name}: {told}, {each.seconds:.1f} s", flush=True)
        for difference in each.differences:
            print(
                f"table {each.recipe.name} ({', '.join(each.recipe.features)}): {difference}",
                flush=True,
            )
    print(table_of(found))
    busy, wrong = (
        sum(each.commits > 0 for each in found),
        sum(len(each.differences) for each in found),
    )
    return [
        Figure(
            name=f"differences on {len(found)} random tables",
            value=wrong,
            row="P9",
            at_most=0,
            holds_at_any_size=True,
        ),
        Figure(name="tables with something to do", value=busy, row="P9"),
        Figure(
            name="files removed and added, as predicted",
            value=sum(each.files_removed + each.files_added for each in found),
            row="P9",
        ),
        Figure(
            name="tables in which files of equal size changed places",
            value=sum(each.tied for each in found),
            row="P9",
        ),
    ]


if __name__ == "__main__":
    sys.exit(alone(main))
