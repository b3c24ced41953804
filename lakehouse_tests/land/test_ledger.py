"""The ledger of landed batches, folded or not, and the batches that a table's log records."""

from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse import Debezium, Landing, Merge, Table
from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.declare.table import TRANSACTION_RETENTION
from lakehouse.delta.commits import ingest_app_id
from lakehouse.lake.lake import Lake
from lakehouse.land.ledger import (
    FOLD_EVERY,
    PlannedBatches,
    check_loaded,
    encode_record,
    last_loaded,
    unfinished_batch,
)
from lakehouse.land.plan.batches import Batch, KnownFile, LandedFile, Ledger, SetAside, set_aside
from lakehouse.store import Store
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.counting_store import CountingStore
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore, OvertakenStore

KEY, PREFIX = "bronze/events", "landing/events/"


def batch(number: int, *names: str, size_bytes: int = 10) -> Batch:
    return Batch(
        number=number,
        files=tuple(LandedFile(name=name, size_bytes=size_bytes, modified_ms=1) for name in names),
        prefix=PREFIX,
    )


def of(store: Store, table: str = KEY) -> PlannedBatches:
    return PlannedBatches(store, table, prefix=PREFIX)


def manifest(number: int) -> str:
    return f"_lakehouse/ingest/{KEY}/{number:020}.json"


def planned(last: int) -> MemoryStore:
    """Batches of one file each."""
    store = MemoryStore()
    for number in range(1, last + 1):
        of(store).plan(batch(number, f"f{number}"))
    return store


def sizes(ledger: Ledger) -> dict[str, int]:
    """The files of a ledger below the prefix, with their sizes."""
    return {
        path.removeprefix(PREFIX): known.newest.size_bytes for path, known in ledger.seen.items()
    }


def test_a_ledger_gives_back_the_newest_batch_and_every_name() -> None:
    store = MemoryStore()
    batches = of(store)
    batches.plan(batch(1, "a", "b"))
    store.put("_lakehouse/ingest/bronze/events/.DS_Store", b"x")
    second = Batch(
        number=2,
        files=(LandedFile(name="c ä%", size_bytes=3, modified_ms=7, digest="d"),),
        set_aside=(SetAside(name="x.pdf", size_bytes=5, why="foreign", modified_ms=8, digest="e"),),
        prefix="landing/other/",
        part_count=2,
        record_count=7,
    )
    batches.plan(second)
    seen = {
        **{
            f"{PREFIX}{file.name}": KnownFile(newest=file, loaded=file)
            for file in batch(1, "a", "b").files
        },
        "landing/other/c ä%": KnownFile(newest=second.files[0], loaded=second.files[0]),
        "landing/other/x.pdf": KnownFile(newest=second.set_aside[0], loaded=None),
    }
    assert batches.ledger() == Ledger(
        newest=second, seen=seen, table="bronze/events", last_taken="landing/other/c ä%"
    )
    assert batches.batch(1) == batch(1, "a", "b")


def test_tables_do_not_share_batches() -> None:
    store = MemoryStore()
    of(store, "bronze/a").plan(batch(1, "x"))
    assert of(store, "bronze/ab").ledger() == Ledger(newest=None, seen={}, table="bronze/ab")


def test_a_batch_that_another_process_planned_is_a_lost_race_and_a_gap_is_broken() -> None:
    batches = of(planned(1))
    with pytest.raises(Transient, match="batch 1 was planned by another process"):
        batches.plan(batch(1, "ours"))
    assert sizes(batches.ledger()) == {"f1": 10}
    with pytest.raises(Broken, match="batch 3 was to be planned, but the newest manifest is 1"):
        batches.plan(batch(3, "b"))


@pytest.mark.parametrize("last", [1, 31, 32, 33, 64, 200])
def test_a_long_ledger_costs_few_reads_and_forgets_nothing(last: int) -> None:
    store = CountingStore()
    batches = of(store)
    for number in range(1, last + 1):
        batches.plan(batch(number, f"f{number}", size_bytes=number))
        batches.ledger()
        batches.fold(landed_paths=(), last_loaded_batch=number, now_ms=0)
    store.requests.clear()
    ledger = of(store).ledger()
    assert ledger.newest == batch(last, f"f{last}", size_bytes=last)
    assert sizes(ledger) == {f"f{number}": number for number in range(1, last + 1)}
    assert ledger.last_taken == max(ledger.seen)
    assert store.taken()["GET"] <= FOLD_EVERY


ANOTHER = encode_record(batch(3, "c"))


DAMAGED = {
    "empty": b"",
    "cut": b"{",
    "list": b"[]",
    "null": b"null",
    "no files": b'{"number": 2}',
    "no size": b'{"number": 1, "files": [{"name": "a"}], "set_aside": []}',
    "another number": ANOTHER,
    "not utf-8": b"\xff",
    "gone": None,
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_or_missing_manifest_is_broken_and_named(content: bytes | None) -> None:
    store = planned(3)
    store.delete([manifest(2)])
    if content is not None:
        store.put(manifest(2), content)
    with pytest.raises(Broken, match="holds batch 3" if content is ANOTHER else manifest(2)):
        of(store).ledger()


def test_keys_that_leave_the_journal_are_refused() -> None:
    with pytest.raises(Refused):
        of(MemoryStore(), "../../etc").ledger()


def test_of_a_race_for_one_number_only_one_manifest_stays() -> None:
    store = OvertakenStore()
    store.act = lambda: of(store).plan(batch(1, "theirs"))
    with pytest.raises(Transient):
        of(store).plan(batch(1, "ours"))
    assert sizes(of(store).ledger()) == {"theirs": 10}


def test_only_the_newest_manifest_is_replaced() -> None:
    store = MemoryStore()
    batches = of(store)
    first = replace(batch(1, "a", "b"), part_count=1, record_count=4)
    batches.plan(first)
    smaller = replace(first, files=first.files[:1])
    assert of(store).batch(1) == first
    batches.replace(smaller)
    for ledger in (batches.ledger(), of(store).ledger()):
        assert ([*ledger.seen], ledger.newest) == ([f"{PREFIX}a"], smaller)
    aside = set_aside(smaller.files[0], "n is 0", is_quarantined=True)
    batches.replace(replace(smaller, files=(), set_aside=(aside,)))
    assert [known.loaded for known in batches.ledger().seen.values()] == [None]
    for number in range(2, FOLD_EVERY + 1):
        batches.plan(batch(number, f"f{number}", "g"))
        with pytest.raises(Broken, match=f"batch {number - 1} was .* but it is not the newest"):
            batches.replace(batch(number - 1, "g"))
    batches.ledger()
    batches.fold(landed_paths=(), last_loaded_batch=FOLD_EVERY, now_ms=0)
    with pytest.raises(Broken, match=f"or is folded into segment {FOLD_EVERY}"):
        batches.replace(batch(FOLD_EVERY, "g"))


ORDERS = "bronze/orders"
TABLE = Table(
    key=ORDERS,
    source=Landing(prefix="landing/orders/", format="json", schema="id BIGINT", changes=Debezium()),
    write=Merge(keys=("id",)),
)


def test_a_table_whose_log_lacks_or_forgets_its_batches_is_not_loaded(tmp_path: Path) -> None:
    """It was renamed, or made anew from somewhere else, its manifests are lost, or a property of it lets Delta forget."""
    lake, prefix = Lake(settings=own_settings(tmp_path), store=MemoryStore()), "landing/orders/"
    log = LogBuilder(lake.store, ORDERS).create().append([("o", 9, 1)])

    def unfinished() -> Batch | None:
        batches = PlannedBatches(lake.store, ORDERS, prefix=prefix)
        ledger = batches.ledger()
        return unfinished_batch(
            lake, TABLE, last_loaded(TABLE, lake.facts(ORDERS), ledger), ledger, batches
        )

    message = (
        r"has rows, but .* If the table was renamed or copied: .* --arrived N.* use --arrived 0"
    )
    with pytest.raises(Broken, match=message):
        unfinished()
    file = LandedFile(name="a.json", size_bytes=1, modified_ms=0)
    PlannedBatches(lake.store, ORDERS, prefix=prefix).plan(
        Batch(number=1, files=(file,), prefix=prefix)
    )
    message = r"no transaction id of a landed batch, but batches up to 1 were planned.*--arrived N"
    with pytest.raises(Broken, match=message):
        unfinished()
    log.append([("p", 9, 1)], transaction=(ingest_app_id(ORDERS), 2))
    message = r"batch 2 is in the table, but the newest manifest .* is 1.*restore the manifests"
    with pytest.raises(Broken, match=message):
        unfinished()
    log.set_properties(**{TRANSACTION_RETENTION: "interval 1 days"})
    message = rf"{TRANSACTION_RETENTION} = 'interval 1 days', Delta forgets"
    with pytest.raises(Refused, match=message):
        unfinished()


@pytest.mark.parametrize("commits_since", [0, 600])  # the facts of a table hold 500
def test_a_commit_is_compared_with_its_batch(tmp_path: Path, commits_since: int) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=MemoryStore())
    log, app_id = LogBuilder(lake.store, ORDERS).create(), ingest_app_id(ORDERS)
    log.append([("o", 9, 1)], transaction=(app_id, 1), metrics={"numOutputRows": "9"})
    before = lake.facts(ORDERS)
    log.append([("x", 2, 1)], transaction=(app_id, 2), metrics={"numOutputRows": "2"})
    for number in range(commits_since):
        log.append([(f"f{number}", 1, 1)])
    after = lake.facts(ORDERS)
    assert after is not None
    check_loaded(lake, ORDERS, 2, 2, before=before, after=after)
    message = "batch 2 has 3 rows, but version 2 of the table records 2 written rows"
    with pytest.raises(Broken, match=message):
        check_loaded(lake, ORDERS, 2, 3, before=before, after=after)
    message = "batch 3 was written, but the last batch in the table's log is 2"
    with pytest.raises(Broken, match=message):
        check_loaded(lake, ORDERS, 3, 2, before=before, after=after)
