"""Two hundred batches of change data, each merged while the table is compacted, and the same batches into a table that nobody compacts.

`python -m benchmarks.beside_changes [rounds] [seed]`, on a lake and a server of its own. One thread loads, another compacts one of the two
tables again and again, each in a session of its own. In the end both tables are held against a dictionary.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, alone, middle, ratio, repeated, timed
from benchmarks.own_lake import own_lake
from lakehouse import Compaction, Debezium, Landing, Merge, Table
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.clients import new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS, _CHANGES, _PAUSE_SECONDS = 5_000, 100, 0.5
_COMPACTED, _LEFT = "bronze/compacted", "bronze/left_alone"


@dataclass(slots=True)
class _Compactor:
    """The compactions of the thread: how many merged files, and the errors of those that failed."""

    merged: int = 0
    errors: list[str] = field(default_factory=list[str])


def main(rounds: int = 200, seed: int = 1) -> list[Figure]:
    """Batches and compactions that failed, rows that differ, and how long a batch takes beside compactions."""
    with own_lake(LAKEHOUSE_SPARK_MEMORY="2g") as (lake, spark):
        return list(_played(lake, spark, rounds, Random(seed)))  # nothing secret


def _played(lake: Lake, spark: "SparkSession", rounds: int, random: Random) -> Iterator[Figure]:
    tables = {key: _table(key) for key in (_COMPACTED, _LEFT)}
    rows, seconds, failed = dict[int, str](), {key: list[float]() for key in tables}, list[str]()
    with _compacting(lake, tables[_COMPACTED]) as compactor:
        for number in range(rounds):
            text = _drawn(random, rows, number)
            for key in sorted(tables, reverse=bool(number % 2)):
                lake.store.put(f"landing/{key}/{number:06}.json", text.encode())
                try:
                    seconds[key].append(timed(partial(write_table, lake, spark, tables[key]))[0])
                except Exception as error:  # a batch that fails is what is looked for; the next one loads its file, too
                    failed.append(f"{key}: {error}")
                    print(failed[-1], flush=True)
            if number % 20 == 19:
                print(
                    f"  {number + 1} rounds, {compactor.merged} compactions, {len(failed)} batches failed",
                    flush=True,
                )
    differing = sum(len(set(rows.items()) ^ _rows(spark, lake, key)) for key in tables)
    beside, none = f"beside {rounds} batches of changes", {"at_most": 0, "holds_at_any_size": True}
    yield Figure(name=f"rows that differ {beside}", value=differing, **none)
    yield Figure(name=f"batches that failed {beside}", value=len(failed), **none)
    yield Figure(name=f"compactions that failed {beside}", value=len(compactor.errors), **none)
    yield Figure(name=f"compactions that merged files {beside}", value=compactor.merged, at_least=1)
    compacted, left = (lake.facts(key).snapshot.file_count for key in (_COMPACTED, _LEFT))
    yield Figure(name="files in the end, compacted", value=compacted, peers={"left alone": left})
    yield middle("a batch into the table that is compacted", seconds[_COMPACTED], unit="s")
    if len(seconds[_COMPACTED]) == len(seconds[_LEFT]):
        yield ratio(
            "the same over a batch into the other table", seconds[_COMPACTED], seconds[_LEFT]
        )


@contextmanager
def _compacting(lake: Lake, table: Table) -> Iterator[_Compactor]:
    spark, compactor = new_session(lake.settings), _Compactor()

    def step() -> None:
        if lake.facts(table.key) is None:
            return
        try:
            compactor.merged += bool(compact(lake, spark, table).plan.bins)
        except Exception as error:  # counted; the next one begins anew
            compactor.errors.append(str(error))
            print(f"compaction: {error}", flush=True)

    try:
        with repeated(step, pause_seconds=_PAUSE_SECONDS):
            yield compactor
    finally:
        spark.stop()


def _drawn(random: Random, rows: dict[int, str], number: int) -> str:
    """The events of one batch; `rows` is what the source's table holds after them."""
    lines = list[str]()
    for place in range(_CHANGES):
        id_, source = (
            random.randrange(_KEYS),
            {"lsn": number * _CHANGES + place + 1, "ts_ms": 10**12 + number},
        )
        if id_ in rows and random.random() < 0.2:
            lines.append(
                json.dumps(
                    {
                        "op": "d",
                        "before": {"id": id_, "v": rows.pop(id_)},
                        "after": None,
                        "source": source,
                    }
                )
            )
        else:
            event = {
                "op": "u" if id_ in rows else "c",
                "before": None,
                "after": {"id": id_, "v": f"{number}.{place}"},
                "source": source,
            }
            rows[id_] = f"{number}.{place}"
            lines.append(json.dumps(event))
    return "\n".join(lines)


def _table(key: str) -> Table:
    return Table(
        key=key,
        source=Landing(
            prefix=f"landing/{key}/",
            format="json",
            schema="id BIGINT, v STRING",
            changes=Debezium(),
        ),
        write=Merge(keys=("id",)),
        compaction=Compaction(min_small_files=2),
        properties={
            "delta.enableDeletionVectors": "true"
        },  # a MERGE adds files, and there is something to compact
    )


def _rows(spark: "SparkSession", lake: Lake, key: str) -> set[tuple[int, str]]:
    rows = [
        (row.id, row.v)
        for row in spark.read.format("delta")
        .load(lake.settings.table_uri(key))
        .select("id", "v")
        .collect()
    ]
    assert len(set(rows)) == len(rows), "a row is there twice"
    return set(rows)


if __name__ == "__main__":
    sys.exit(alone(main))
