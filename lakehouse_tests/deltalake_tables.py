"""Random tables that deltalake writes, and a comparison of their plans with what it commits."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.random_tables import differences
from lakehouse.compact.run import compact, plan
from lakehouse.declare.adopted import adopted_table
from lakehouse.declare.policies import Compaction
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse_tests.conftest import own_settings

KEY = "silver/orders"
PARTITIONS = ((), (), ("day",), ("number",), ("text", "number"))
QUIET = Compaction(engine="deltalake", min_small_files=2, max_small_file_age_hours=0)


def no_spark() -> NoReturn:
    raise AssertionError("a Spark session was opened")


def adopted(uri: str, policy: Compaction = QUIET) -> Table:
    """The declaration of a table at an address."""
    return replace(adopted_table(KEY, uri), compaction=policy)


def lake_with(table: Table, home: Path) -> Lake:
    """A lake of its own that maintains the table."""
    return open_lake(own_settings(home), tables=[table])


def rows(random: Random, count: int, first: int = 0) -> pa.Table:
    """Rows in few partitions, some of them null. The content can hardly be compressed."""
    days = [None, *(f"2026-01-{day:02}" for day in range(1, 4))]
    texts = [None, "a b", "ä=1", "plain"]
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "content": [random.randbytes(20).hex() for _ in range(count)],
            "day": pa.array([random.choice(days) for _ in range(count)]).cast(pa.date32()),
            "number": pa.array([random.choice([None, 1, 2]) for _ in range(count)], pa.int32()),
            "text": pa.array([random.choice(texts) for _ in range(count)], pa.string()),
        }
    )


def write_random(uri: str, random: Random) -> None:
    """Appends, deletions, compactions and checkpoints, in any order."""
    by = [*random.choice(PARTITIONS)]
    first = 0
    for _ in range(random.randint(4, 14)):
        count = random.choice([1, 3, 20, 150, 600])
        write_deltalake(uri, rows(random, count, first), mode="append", partition_by=by)
        first += count
        done = random.random()
        if done < 0.1:
            DeltaTable(uri).delete(f"id % 7 = {random.randrange(7)}")
        elif done < 0.2:
            DeltaTable(uri).optimize.compact(target_size=random.choice([5_000, 40_000]))
        elif done < 0.3:
            DeltaTable(uri).create_checkpoint()


def random_policy(random: Random) -> Compaction:
    """Targets around the sizes of the files, with and without a bound for a run."""
    return replace(
        QUIET,
        target_file_bytes=random.choice([5_000, 20_000, 60_000, 0]),
        max_bytes_per_run=random.choice([0, 0, 30_000]),
        scan_cores=random.choice([1, 1, 4]),
    )


def compare(folder: Path, seed: int, number: int) -> tuple[str, ...]:
    """Every difference between the plan of a random table and the commits of its compaction."""
    random = Random(f"{seed} {number}")
    uri = str(folder / f"table {number}")
    write_random(uri, random)
    table = adopted(uri, random_policy(random))
    lake = lake_with(table, folder / f"home_{number}")
    before = lake.facts(KEY)
    assert before is not None
    kept = contents(uri)
    outcome = compact(lake, no_spark, table)
    assert outcome.facts is not None
    planned, after = outcome.plan, outcome.facts.snapshot.version
    commits = outcome.facts.history.between(before.snapshot.version, after) or ()
    found = [*differences(before.snapshot, planned, commits)]
    again = plan(lake, table)
    assert again is not None
    if again.bins and not planned.files_left:
        found.append(f"planned again: {again.sentence}")
    if contents(uri) != kept:
        found.append("rows differ")
    return tuple(found)


def contents(uri: str, **options: Any) -> list[tuple[object, ...]]:
    """All rows, in order of their ids."""
    read = DeltaTable(uri, **options).to_pyarrow_table()
    return sorted(
        zip(*(read[name].to_pylist() for name in sorted(read.column_names)), strict=True), key=str
    )


def actions_of(uri: str, version: int) -> Sequence[dict[str, Any]]:
    """The actions of a commit."""
    name = Path(uri) / "_delta_log" / f"{version:020}.json"
    return [json.loads(line) for line in name.read_text().splitlines()]


def before_each(first: Sequence[Callable[[], object]], work: Callable[..., object]) -> Any:
    """`work`, before whose n-th call the n-th of these functions is called."""
    waiting = [*first]

    def both(*args: Any, **words: Any) -> object:
        if waiting:
            waiting.pop(0)()
        return work(*args, **words)

    return both
