"""What the journal remembers."""

from functools import partial
from pathlib import Path

import pytest

from lakehouse.declare.journal_records import CompactionTry, Pause
from lakehouse.lake.journal import Journal, JournalCache
from lakehouse.land.ledger import PlannedBatches
from lakehouse.land.plan.batches import Batch
from lakehouse.store import DiskStore
from lakehouse_tests.counting_store import CountingStore
from lakehouse_tests.memory_store import MemoryStore, OvertakenStore

KEY = "bronze/events"


def record_each(journal: Journal, ms: int, number: int) -> None:
    """A failed try."""
    journal.record_try(KEY, CompactionTry(ended_ms=ms, result="failed"))


def test_manifests_lie_where_the_documents_say(tmp_path: Path) -> None:
    journal = Journal(DiskStore(tmp_path))
    PlannedBatches(DiskStore(tmp_path), KEY, prefix="landing/events/").plan(
        Batch(number=1, files=())
    )
    journal.pause(Pause(table=KEY, since_ms=1))
    journal.record_try(KEY, CompactionTry(ended_ms=7, result="failed"))
    assert (tmp_path / "_lakehouse/ingest/bronze/events/00000000000000000001.json").is_file()
    assert (tmp_path / "_lakehouse/pauses/bronze/events.json").is_file()
    assert [file.name[:16] for file in (tmp_path / "_lakehouse/tries/bronze/events").iterdir()] == [
        "000000000000007-"
    ]


def test_pauses_are_kept_until_they_are_taken_back_the_last_one_counts() -> None:
    journal = Journal(MemoryStore())
    assert (journal.pauses(), journal.pause_of(KEY)) == ({}, None)
    journal.pause(Pause(table=KEY, since_ms=1, until_ms=2, why="wörk"))
    journal.pause(Pause(table="silver/events", since_ms=3))
    journal.pause(Pause(table=KEY, since_ms=4, why="more"))
    kept = Pause(table=KEY, since_ms=4, why="more")
    assert journal.pauses() == {
        KEY: kept,
        "silver/events": Pause(table="silver/events", since_ms=3),
    }
    journal.resume("silver/events")
    journal.resume("silver/events")
    assert (journal.pauses(), journal.pause_of(KEY)) == ({KEY: kept}, kept)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"7",
        b'{"since_ms": 1, "more": 2}',
        b'{"since_ms": "x"}',
        b'{"since_ms": 1, "until_ms": "y"}',
        b"\xff",
    ],
)
def test_a_damaged_pause_is_one_without_an_end_and_hides_no_other(data: bytes) -> None:
    store = MemoryStore()
    journal = Journal(store)
    journal.pause(Pause(table="silver/events", since_ms=3))
    store.put(f"_lakehouse/pauses/{KEY}.json", data)
    found = journal.pauses()
    assert set(found) == {KEY, "silver/events"}
    assert (
        found[KEY].holds(10**15)
        and f"_lakehouse/pauses/{KEY}.json cannot be read" in found[KEY].explanation.sentence
    )
    assert journal.pause_of(KEY) == found[KEY]


def test_the_newest_tries_are_read_and_a_damaged_one_is_a_failure() -> None:
    store = CountingStore()
    journal = Journal(store)
    assert journal.tries(KEY) == ()
    for ended_ms in range(100, 0, -1):
        journal.record_try(
            KEY,
            CompactionTry(
                ended_ms=ended_ms,
                result="conflict",
                bytes_rewritten=5,
                seconds=1.5,
                why="a race",
                run="r",
            ),
        )
    journal.record_try("bronze/events_too", CompactionTry(ended_ms=1, result="failed"))
    store.put(f"_lakehouse/tries/{KEY}/000000000000101-{'0' * 32}.json", b"{")
    store.put(f"_lakehouse/tries/{KEY}/notes.txt", b"a person's")
    found = journal.tries(KEY)
    assert (store.requests["GET"], [each.ended_ms for each in found]) == (20, list(range(82, 102)))
    assert found[0] == CompactionTry(
        ended_ms=82, result="conflict", bytes_rewritten=5, seconds=1.5, why="a race", run="r"
    )
    assert found[-1].result == "failed" and "cannot be read" in found[-1].why


def test_the_newest_tries_of_each_table_are_kept() -> None:
    store = MemoryStore()
    journal = Journal(store)
    for kind in ("tries",):
        store.put(f"_lakehouse/{kind}/{KEY}/notes.txt", b"a person's")
        store.put(f"_lakehouse/{kind}/bronze/events_too/{1:015}-1.json", b"another table's")
    for ms in range(103):
        record_each(journal, ms, ms)
    assert [each.ended_ms for each in journal.tries(KEY, newest=1000)] == list(range(3, 103))
    kept = {"tries": 100}
    assert {kind: len(store.list(f"_lakehouse/{kind}")) - 2 for kind in kept} == kept
    assert len(store.list("_lakehouse/changes")) == 1


def test_between_two_looks_one_listing_tells_whether_there_is_something_new_and_a_sweep_finds_what_has_no_marker() -> (
    None
):
    store = CountingStore()
    cache = JournalCache(store, sweep_ms=1_000)
    journal, cached = Journal(store), Journal(store, cache)

    def look(now_ms: int) -> tuple[dict[str, int], set[str], int]:
        store.requests.clear()
        cache.refresh(now_ms)
        found = set(cached.pauses()), len(cached.tries_since({}).get(KEY, ()))
        return store.taken(), *found

    journal.record_try(KEY, CompactionTry(ended_ms=1, result="failed"))
    assert look(5_000) == ({"LIST": 3, "GET": 1}, set(), 1)
    assert look(5_999) == ({"LIST": 1}, set(), 1)
    journal.pause(Pause(table=KEY, since_ms=1))
    journal.record_try(KEY, CompactionTry(ended_ms=2, result="failed"))
    assert look(5_999) == ({"LIST": 3, "GET": 2}, {KEY}, 2)
    journal.pause(Pause(table=KEY, since_ms=2))
    assert look(5_999) == ({"LIST": 3, "GET": 1}, {KEY}, 2)
    assert cached.pauses()[KEY].since_ms == 2
    journal.resume(KEY)
    store.put("_lakehouse/pauses/silver/by_hand.json", b"{}")
    assert look(5_999) == ({"LIST": 3, "GET": 1}, {"silver/by_hand"}, 2)
    store.put("_lakehouse/pauses/silver/by_hand_too.json", b"{}")
    assert look(6_998) == ({"LIST": 1}, {"silver/by_hand"}, 2)
    assert look(6_999) == ({"LIST": 3, "GET": 2}, {"silver/by_hand", "silver/by_hand_too"}, 2)


def test_two_writers_of_markers_at_once_never_bring_back_names_that_a_reader_has_seen() -> None:
    store, seen = OvertakenStore(), list[frozenset[str]]()
    for number in range(6):
        store.act = partial(Journal(store).resume, KEY) if number % 2 else None
        Journal(store).resume(KEY)
        seen.append(frozenset(file.name for file in store.list("_lakehouse/changes")))
    assert len(set(seen)) == 6 and [len(names) for names in seen] == [1, 2] * 3


def test_the_tries_of_all_tables_come_with_one_listing_and_those_before_a_success_unread() -> None:
    store = CountingStore()
    journal = Journal(store)
    assert journal.tries_since({}) == {}
    for ended_ms in (1, 5, 6):
        journal.record_try(KEY, CompactionTry(ended_ms=ended_ms, result="failed"))
        journal.record_try(
            f"gold/from_{ended_ms}", CompactionTry(ended_ms=ended_ms, result="conflict")
        )
    assert journal.tries_since({KEY: 4, "gold/from_1": 1}) == {
        KEY: (
            CompactionTry(ended_ms=5, result="failed"),
            CompactionTry(ended_ms=6, result="failed"),
        ),
        "gold/from_5": (CompactionTry(ended_ms=5, result="conflict"),),
        "gold/from_6": (CompactionTry(ended_ms=6, result="conflict"),),
    }
    assert store.requests["GET"] == 4
