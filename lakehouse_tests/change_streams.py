"""Random change streams: what a source's log tells, landed as DMS or Debezium write it, cut anywhere, in any order, some of it twice.

A table holds a stream rightly if it equals a dictionary to which the changes are applied in the source's own order.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from lakehouse import Debezium, Dms, Landing, Merge, Table
from lakehouse.cdc import deleted_keys
from lakehouse.cdc import run as apply
from lakehouse.lake.lake import Lake
from lakehouse.land.plan import choose_files
from lakehouse.materialize.run import write_table
from lakehouse_tests.kills import Killed, dying

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BASE_MS = 1_357_000_000_000
SOURCES = ("dms", "debezium", "unwrapped")
WRITES = {"merge": Merge(keys=("id",)), "soft": Merge(keys=("id",), deletes="soft")}
_ROW = "id BIGINT, v STRING"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change: `key` has the row `after` from `position` on, or none if `after` is `None`.

    `old_key` is the key that the row had before, where it changed. `committed_ms` is `None` where it is not known.
    """

    position: tuple[Any, ...]
    key: tuple[Any, ...]
    committed_ms: int | None = None
    after: Mapping[str, Any] | None = None
    old_key: tuple[Any, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The table that it is landed for, the source's changes in order, the files in the order in which they are loaded, and how many a batch takes."""

    table: Table
    changes: Sequence[Change]
    files: Sequence[tuple[str, str]]
    batch_files: int

    def land(self, lake: Lake) -> None:
        """All of its files."""
        assert self.table.source is not None
        for name, text in self.files:
            lake.store.put(f"{self.table.source.prefix}{name}", text.encode())


def debezium_event(op: str, lsn: int, id_: int) -> dict[str, Any]:
    """A change of a row that has an id alone, in Debezium's envelope."""
    row = {"id": id_}
    return {
        "before": row,
        "after": None if op == "d" else row,
        "source": {"lsn": lsn, "ts_ms": lsn},
        "op": op,
    }


def draw_stream(seed: int, source: str, write: str) -> Stream:
    """The stream of this number, the same every time."""
    random = Random(f"{seed} {source} {write}")  # nothing secret
    changes = list(_told(random, source))
    arriving = [*changes, *random.choices(changes, k=random.randint(0, 4))]
    random.shuffle(arriving)
    landing = Landing(
        prefix="landing/people/",
        format="csv" if source == "dms" else "json",
        schema=f"Op STRING, {_ROW}, BI_id BIGINT, seq STRING, at TIMESTAMP"
        if source == "dms"
        else _ROW,
        null_value="NULL" if source == "dms" else None,
        changes=Dms(position=("seq",), committed_at="at")
        if source == "dms"
        else Debezium(unwrapped=source == "unwrapped"),
    )
    batch_files = random.randint(1, 3)
    return Stream(
        batch_files=batch_files,
        table=Table(key="bronze/people", source=landing, write=WRITES[write]),
        changes=changes,
        files=list(_files(random, source, arriving)),
    )


def load_with_kills(lake: Lake, spark: "SparkSession", stream: Stream, random: Random) -> int:
    """Loads a stream, and dies now and then, before or after a step that leaves something behind; how often it died."""
    deaths = 0

    def mortal(step: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any, **options: Any) -> None:
            fate = random.choice(["before", "after", "", ""])
            (dying(step, fate) if fate else step)(*arguments, **options)

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose_files, "MAX_BATCH_FILES", stream.batch_files)
        patch.setattr(apply, "remember", mortal(apply.remember))
        patch.setattr(apply, "_commit", mortal(apply._commit))  # pyright: ignore[reportPrivateUsage]  # the step after it
        patch.setattr(deleted_keys, "forget_replaced", mortal(deleted_keys.forget_replaced))
        while True:
            try:
                write_table(lake, spark, stream.table)
            except Killed:
                deaths += 1
            else:
                return deaths


def differences(stream: Stream, lake: Lake) -> list[str]:
    """Rows that the table has and should not have, or the other way round."""
    # The rest is told by the environment.
    options = {"allow_http": "true"} if lake.settings.on_s3 else {}
    rows = (
        DeltaTable(f"{lake.settings.root}/{stream.table.key}", storage_options=options)
        .to_pyarrow_table()
        .to_pylist()
    )
    found, expected = _contents(rows), _expected(stream)
    return [f"in the table: {each}" for each in sorted(found - expected)] + [
        f"wanted: {each}" for each in sorted(expected - found)
    ]


def _contents(rows: Sequence[dict[str, Any]]) -> set[str]:
    told = [str([row["id"], row["v"]]) for row in rows if not row.get("_deleted")]
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(ids), "a key is there twice"
    return set(told)


def _expected(stream: Stream) -> set[str]:
    rows = dict[tuple[Any, ...], Mapping[str, Any]]()
    for change in stream.changes:
        if change.old_key is not None:
            rows.pop(change.old_key, None)
        rows.pop(change.key, None)
        if change.after is not None:
            rows[change.key] = change.after
    return {str([key[0], row["v"]]) for key, row in rows.items()}


def _told(random: Random, source: str) -> Iterator[Change]:
    """A full load or snapshot of some keys, then changes."""
    keys = range(1, random.randint(2, 6))
    for key in random.sample(keys, random.randint(0, len(keys))):
        position = (None,) if source == "dms" else (0,)
        yield Change(
            position=position,
            key=(key,),
            after={"v": f"loaded {key}"},
            committed_ms=BASE_MS,
        )
    for number in range(1, random.randint(3, 16)):
        key, at = random.choice(keys), BASE_MS + number * 1000
        common: dict[str, Any] = {
            "position": (number if source != "dms" else f"{number:035}",),
            "committed_ms": at,
        }
        kinds = ["upsert"] * 5 + ["delete"] * 3 + ([] if source == "unwrapped" else ["move"])
        match random.choice(kinds):
            case "upsert":
                yield Change(
                    key=(key,),
                    after={"v": f"{key} at {number}"},
                    **common,
                )
            case "delete":
                yield Change(key=(key,), **common)
            case _:
                old = random.choice([each for each in (*keys, 99) if each != key])
                yield Change(
                    key=(key,),
                    old_key=(old,),
                    after={"v": f"{key} was {old}"},
                    **common,
                )


def _files(random: Random, source: str, arriving: Sequence[Change]) -> Iterator[tuple[str, str]]:
    rest, number = list(arriving), 0
    while rest:
        size = random.randint(1, 6)
        chunk, rest, number = rest[:size], rest[size:], number + 1
        if source != "dms":
            lines = [line for change in chunk for line in _debezium_lines(random, source, change)]
            yield f"{number:04}.json", "".join(f"{line}\n" for line in lines)
            continue
        loaded, ongoing = (
            [each for each in chunk if (each.position == (None,)) is is_load]
            for is_load in (True, False)
        )
        header = random.random() < 0.5
        if loaded:
            with_op = random.random() < 0.5
            lines = [_dms_line(change)[0 if with_op else 2 :] for change in loaded]
            names = "Op,id,v,BI_id,seq,at\n"[0 if with_op else 3 :] if header else ""
            yield f"2013/01/{number:02}/LOAD{number:08X}.csv", names + "".join(lines)
        if ongoing:
            names = "Op,id,v,BI_id,seq,at\n" if header else ""
            yield (
                f"2013/01/{number:02}/20130101-{number:09}.csv",
                names + "".join(map(_dms_line, ongoing)),
            )


def _dms_line(change: Change) -> str:
    assert change.committed_ms is not None
    at = datetime.fromtimestamp(change.committed_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    code = "D" if change.after is None else "U" if change.old_key else "I"
    old = change.old_key[0] if change.old_key else "NULL"
    return f"{code},{change.key[0]},{(change.after or {}).get('v', 'NULL')},{old},{change.position[0] or 'NULL'},{at}\n"


def _debezium_lines(random: Random, source: str, change: Change) -> Iterator[str]:
    """The event, with or without its schema, and sometimes the tombstone that follows a deletion."""
    lsn, ts_ms = change.position[0], change.committed_ms
    code = "r" if lsn == 0 else random.choice("cu")
    code = "d" if change.after is None else "u" if change.old_key else code
    key, old = change.key[0], (change.old_key or (None,))[0]
    event: dict[str, Any]
    if source == "unwrapped":
        row = {"id": key, **(change.after or {})}
        event = {
            **row,
            "__op": code,
            "__deleted": str(code == "d").lower(),
            "__source_lsn": lsn,
            "__source_ts_ms": ts_ms,
        }
    else:
        before = (
            {"id": key, "v": "gone"}
            if code == "d"
            else {"id": old, "v": "moved"}
            if old is not None
            else None
        )
        after = {"id": key, **change.after} if change.after else None
        event = {
            "before": before,
            "after": after,
            "source": {"lsn": lsn, "ts_ms": ts_ms},
            "op": code,
            "ts_ms": 1,
        }
    yield json.dumps(
        {"schema": {"type": "struct"}, "payload": event} if random.random() < 0.5 else event
    )
    if code == "d" and random.random() < 0.5:
        yield "null"
