"""What the journal remembers."""

import json
from pathlib import Path
from typing import Any

import pytest

from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.ingest.batches import Batch, KnownFile, LandedFile, Ledger, SetAside
from lakehouse.core.scheduling.circuit_breaker import CompactionTry, Pause
from lakehouse.core.vacuum import PastVacuum
from lakehouse.engine.journal.cache import JournalCache
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.store import DiskStore, StoredFile
from lakehouse_tests.counting_store import CountingStore
from lakehouse_tests.memory_store import MemoryStore

KEY, PREFIX = "bronze/events", "landing/events/"


def batch(number: int, *names: str, size_bytes: int = 10) -> Batch:
    return Batch(number=number, files=tuple(LandedFile(name=name, size_bytes=size_bytes, modified_ms=1) for name in names), prefix=PREFIX)


def past_vacuum(started_ms: int) -> PastVacuum:
    counts = ("predicted_files", "predicted_bytes", "predicted_requests", "predicted_seconds", "predicted_usd", "deleted_files")
    zeros: dict[str, Any] = dict.fromkeys((*counts, "deleted_bytes", "spared", "version", "horizon_ms"), 0)
    return PastVacuum(started_ms=started_ms, ended_ms=started_ms, mode="FULL", report="", **zeros)


def sizes(ledger: Ledger) -> dict[str, int]:
    """The files of a ledger below the prefix, with their sizes."""
    return {path.removeprefix(PREFIX): known.size_bytes for path, known in ledger.seen.items()}


def test_a_table_without_batches_has_an_empty_ledger() -> None:
    assert Journal(MemoryStore()).ledger(KEY, prefix=PREFIX) == Ledger(newest=None, seen={})


def test_a_ledger_gives_back_the_newest_batch_and_every_name() -> None:
    journal = Journal(MemoryStore())
    journal.plan_batch(KEY, batch(1, "a", "b"))
    second = Batch(
        number=2,
        files=(LandedFile(name="c ä%", size_bytes=3, modified_ms=7, digest="d"),),
        set_aside=(SetAside(name="x.pdf", size_bytes=5, why="foreign", modified_ms=8, digest="e"),),
        prefix="landing/other/",
        part_count=2,
        record_count=7,
    )
    journal.plan_batch(KEY, second)
    seen = {
        "landing/events/a": KnownFile(size_bytes=10, modified_ms=1),
        "landing/events/b": KnownFile(size_bytes=10, modified_ms=1),
        "landing/other/c ä%": KnownFile(size_bytes=3, modified_ms=7, digest="d"),
        "landing/other/x.pdf": KnownFile(size_bytes=5, modified_ms=8, digest="e", is_taken=False),
    }
    assert journal.ledger(KEY, prefix=PREFIX) == Ledger(newest=second, seen=seen, last_taken="landing/other/c ä%")
    assert journal.batch(KEY, 1, prefix=PREFIX) == batch(1, "a", "b")


def test_tables_do_not_share_batches() -> None:
    journal = Journal(MemoryStore())
    journal.plan_batch("bronze/a", batch(1, "x"))
    assert journal.ledger("bronze/ab", prefix=PREFIX) == Ledger(newest=None, seen={})


def test_manifests_lie_where_the_documents_say(tmp_path: Path) -> None:
    journal = Journal(DiskStore(tmp_path))
    journal.plan_batch(KEY, batch(1, "a"))
    journal.record_session(KEY, "s", "write")
    journal.pause(Pause(table=KEY, since_ms=1))
    journal.record_try(KEY, CompactionTry(ended_ms=7, result="failed"))
    assert (tmp_path / "_lakehouse/ingest/bronze/events/00000000000000000001.json").is_file()
    assert (tmp_path / "_lakehouse/sessions/bronze/events.json").is_file()
    assert (tmp_path / "_lakehouse/pauses/bronze/events.json").is_file()
    assert [file.name[:16] for file in (tmp_path / "_lakehouse/tries/bronze/events").iterdir()] == ["000000000000007-"]


def test_manifests_of_an_older_program_mean_files_below_the_declared_prefix() -> None:
    store = MemoryStore()
    manifest = {"files": [{"name": "a", "size_bytes": 1, "modified_ms": 2}], "set_aside": [{"name": "b", "size_bytes": 3, "why": "no"}]}
    for number in range(1, 65):
        carried = {"seen": {"old": 5, "a": 1, "b": 3}, "last_taken": "old"} if number == 64 else {}
        store.put(f"_lakehouse/ingest/{KEY}/{number:020}.json", json.dumps({"number": number, **manifest, **carried}).encode())
    journal = Journal(store)
    journal.plan_batch(KEY, batch(65, "a"))
    ledger = journal.ledger(KEY, prefix="p/")
    assert ledger.last_taken == "p/old"
    assert ledger.seen["p/old"] == KnownFile(size_bytes=5)
    assert (ledger.seen["p/a"], ledger.seen["landing/events/a"].size_bytes) == (KnownFile(size_bytes=1, modified_ms=2), 10)
    assert ledger.seen["p/b"] == KnownFile(size_bytes=3)  # what an older program set aside may be tried again by a new name only
    assert journal.batch(KEY, 3, prefix="p/").prefix == "p/"


def test_a_name_that_changed_its_size_is_known_by_the_last_one_and_stays_taken() -> None:
    journal = Journal(MemoryStore())
    journal.plan_batch(KEY, batch(1, "a", size_bytes=1))
    aside = (SetAside(name="a", size_bytes=2, why="changed", modified_ms=9),)
    journal.plan_batch(KEY, Batch(number=2, files=(), set_aside=aside, prefix=PREFIX))
    assert journal.ledger(KEY, prefix=PREFIX).seen[f"{PREFIX}a"] == KnownFile(size_bytes=2, modified_ms=9)
    assert sizes(journal.ledger(KEY, prefix=PREFIX)) == {"a": 2}


def test_a_batch_that_another_process_planned_meanwhile_is_a_lost_race() -> None:
    journal = Journal(MemoryStore())
    journal.plan_batch(KEY, batch(1, "theirs"))
    with pytest.raises(Transient, match="batch 1 was planned by another process"):
        journal.plan_batch(KEY, batch(1, "ours"))
    assert sizes(journal.ledger(KEY, prefix=PREFIX)) == {"theirs": 10}


def test_a_batch_beyond_the_next_is_broken() -> None:
    journal = Journal(MemoryStore())
    journal.plan_batch(KEY, batch(1, "a"))
    with pytest.raises(Broken, match="batch 3 was to be planned, but the newest manifest is 1"):
        journal.plan_batch(KEY, batch(3, "b"))


@pytest.mark.parametrize("last", [1, 63, 64, 65, 128, 200])
def test_a_long_ledger_costs_few_reads_and_forgets_nothing(last: int) -> None:
    store = CountingStore()
    journal = Journal(store)
    for number in range(1, last + 1):
        journal.plan_batch(KEY, batch(number, f"f{number}", size_bytes=number))
    store.requests.clear()
    ledger = journal.ledger(KEY, prefix=PREFIX)
    assert ledger.newest == batch(last, f"f{last}", size_bytes=last)
    assert sizes(ledger) == {f"f{number}": number for number in range(1, last + 1)}
    assert ledger.last_taken == max(ledger.seen)
    assert store.requests["GET"] <= 64


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"number": 2}', b'{"number": 1, "files": [{"name": "a"}], "set_aside": []}', b"\xff"],
    ids=["empty", "cut", "list", "null", "no files", "no size", "not utf-8"],
)
def test_a_damaged_manifest_is_broken_and_named(content: bytes) -> None:
    store = MemoryStore()
    store.put("_lakehouse/ingest/bronze/events/00000000000000000001.json", content)
    with pytest.raises(Broken, match=r"_lakehouse/ingest/bronze/events/00000000000000000001\.json"):
        Journal(store).ledger(KEY, prefix=PREFIX)


def test_a_manifest_under_another_number_is_broken() -> None:
    store = MemoryStore()
    store.put("_lakehouse/ingest/bronze/events/00000000000000000001.json", b'{"number": 2, "files": [], "set_aside": []}')
    with pytest.raises(Broken, match="holds batch 2"):
        Journal(store).ledger(KEY, prefix=PREFIX)


def test_a_missing_manifest_is_broken_and_named() -> None:
    store = MemoryStore()
    journal = Journal(store)
    for number in range(1, 4):
        journal.plan_batch(KEY, batch(number, f"f{number}"))
    store.delete(["_lakehouse/ingest/bronze/events/00000000000000000002.json"])
    with pytest.raises(Broken, match=r"00000000000000000002\.json"):
        journal.ledger(KEY, prefix=PREFIX)


def test_a_snapshot_without_its_names_is_broken() -> None:
    store = MemoryStore()
    journal = Journal(store)
    for number in range(1, 65):
        journal.plan_batch(KEY, batch(number, f"f{number}"))
    store.put("_lakehouse/ingest/bronze/events/00000000000000000064.json", b'{"number": 64, "files": [], "set_aside": []}')
    with pytest.raises(Broken, match="'seen'"):
        journal.ledger(KEY, prefix=PREFIX)


def test_foreign_files_beside_manifests_are_not_read() -> None:
    store = MemoryStore()
    journal = Journal(store)
    journal.plan_batch(KEY, batch(1, "a"))
    store.put("_lakehouse/ingest/bronze/events/.DS_Store", b"x")
    assert sizes(journal.ledger(KEY, prefix=PREFIX)) == {"a": 10}


def test_a_session_is_remembered_until_it_is_forgotten() -> None:
    journal = Journal(MemoryStore())
    assert journal.session(KEY) is None
    journal.record_session(KEY, "11111111-2222-3333-4444-555555555555", "write")
    journal.record_session(KEY, "66666666-7777-8888-9999-000000000000", "compaction")
    record = journal.session(KEY)
    assert record is not None
    assert (record.session_id, record.owner) == ("66666666-7777-8888-9999-000000000000", "compaction")
    assert record.started_ms > 1_700_000_000_000
    journal.forget_session(KEY)
    journal.forget_session(KEY)
    assert journal.session(KEY) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"session_id": "x", "owner": "y", "started_ms": 1, "more": 2}'])
def test_a_damaged_session_record_is_broken_and_named(content: bytes) -> None:
    store = MemoryStore()
    store.put("_lakehouse/sessions/bronze/events.json", content)
    with pytest.raises(Broken, match=r"_lakehouse/sessions/bronze/events\.json"):
        Journal(store).session(KEY)


def test_keys_that_leave_the_journal_are_refused() -> None:
    with pytest.raises(Refused):
        Journal(MemoryStore()).ledger("../../etc", prefix=PREFIX)


def test_of_a_race_for_one_number_only_one_manifest_stays() -> None:
    class Late(MemoryStore):
        """Another process plans the same number between this one's listing and its write."""

        def list(self, prefix: str) -> list[StoredFile]:
            listing = super().list(prefix)
            if not listing:
                Journal(self._other).plan_batch(KEY, batch(1, "theirs"))
                self._files |= self._other._files
            return listing

        _other = MemoryStore()

    journal = Journal(Late())
    with pytest.raises(Transient):
        journal.plan_batch(KEY, batch(1, "ours"))
    assert sizes(journal.ledger(KEY, prefix=PREFIX)) == {"theirs": 10}


def test_pauses_are_kept_until_they_are_taken_back_the_last_one_counts() -> None:
    journal = Journal(MemoryStore())
    assert (journal.pauses(), journal.pause_of(KEY)) == ({}, None)
    journal.pause(Pause(table=KEY, since_ms=1, until_ms=2, why="wörk"))
    journal.pause(Pause(table="silver/events", since_ms=3))
    journal.pause(Pause(table=KEY, since_ms=4, why="more"))
    kept = Pause(table=KEY, since_ms=4, why="more")
    assert journal.pauses() == {KEY: kept, "silver/events": Pause(table="silver/events", since_ms=3)}
    journal.resume("silver/events")
    journal.resume("silver/events")
    assert (journal.pauses(), journal.pause_of(KEY)) == ({KEY: kept}, kept)


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b"7", b'{"since_ms": 1, "more": 2}', b'{"since_ms": "x"}', b'{"since_ms": 1, "until_ms": "y"}', b"\xff"]
)
def test_a_damaged_pause_is_one_without_an_end_and_hides_no_other(data: bytes) -> None:
    store = MemoryStore()
    journal = Journal(store)
    journal.pause(Pause(table="silver/events", since_ms=3))
    store.put(f"_lakehouse/pauses/{KEY}.json", data)
    found = journal.pauses()
    assert set(found) == {KEY, "silver/events"}
    assert found[KEY].holds(10**15) and f"_lakehouse/pauses/{KEY}.json cannot be read" in found[KEY].sentence
    assert journal.pause_of(KEY) == found[KEY]


def test_the_newest_tries_are_read_and_a_damaged_one_is_a_failure() -> None:
    store = CountingStore()
    journal = Journal(store)
    assert journal.tries(KEY) == ()
    for ended_ms in range(100, 0, -1):
        journal.record_try(KEY, CompactionTry(ended_ms=ended_ms, result="conflict", bytes_rewritten=5, seconds=1.5, why="a race", run="r"))
    journal.record_try("bronze/events_too", CompactionTry(ended_ms=1, result="failed"))
    store.put(f"_lakehouse/tries/{KEY}/000000000000101-{'0' * 32}.json", b"{")
    store.put(f"_lakehouse/tries/{KEY}/notes.txt", b"a person's")
    found = journal.tries(KEY)
    assert (store.requests["GET"], [each.ended_ms for each in found]) == (20, list(range(82, 102)))
    assert found[0] == CompactionTry(ended_ms=82, result="conflict", bytes_rewritten=5, seconds=1.5, why="a race", run="r")
    assert found[-1].result == "failed" and "cannot be read" in found[-1].why


def test_the_newest_tries_probes_and_vacuums_of_each_table_are_kept() -> None:
    store = MemoryStore()
    journal = Journal(store)
    for kind in ("tries", "probes", "vacuums"):
        store.put(f"_lakehouse/{kind}/{KEY}/notes.txt", b"a person's")
        store.put(f"_lakehouse/{kind}/bronze/events_too/{1:015}-1.json", b"another table's")
    for ms in range(103):
        journal.record_try(KEY, CompactionTry(ended_ms=ms, result="failed"))
        journal.record_probe(KEY, f"{ms:015}-{ms}.json", {})
        journal.record_vacuum(KEY, past_vacuum(ms))
    assert [each.ended_ms for each in journal.tries(KEY, newest=1000)] == list(range(3, 103))
    assert [each.started_ms for each in journal.vacuums(KEY)] == list(range(54, 103))
    kept = {"tries": 100, "probes": 20, "vacuums": 100}
    assert {kind: len(store.list(f"_lakehouse/{kind}")) - 2 for kind in kept} == kept
    assert len(store.list("_lakehouse/changes")) == 1


def test_between_two_looks_one_listing_tells_whether_there_is_something_new_and_a_sweep_finds_what_has_no_marker() -> None:
    store = CountingStore()
    cache = JournalCache(store, sweep_ms=1_000)
    journal, cached = Journal(store), Journal(store, cache)

    def look(now_ms: int) -> tuple[dict[str, int], set[str], int]:
        store.requests.clear()
        cache.refresh(now_ms)
        found = set(cached.pauses()), len(cached.tries_since({}).get(KEY, ()))
        return store.taken(), *found

    journal.record_try(KEY, CompactionTry(ended_ms=1, result="failed"))
    assert look(5_000) == ({"LIST": 4, "GET": 1}, set(), 1)
    assert look(5_999) == ({"LIST": 1}, set(), 1)
    journal.pause(Pause(table=KEY, since_ms=1))
    journal.record_try(KEY, CompactionTry(ended_ms=2, result="failed"))
    assert look(5_999) == ({"LIST": 4, "GET": 2}, {KEY}, 2)
    journal.pause(Pause(table=KEY, since_ms=2))
    assert look(5_999) == ({"LIST": 4, "GET": 1}, {KEY}, 2)
    assert cached.pauses()[KEY].since_ms == 2
    journal.resume(KEY)
    store.put("_lakehouse/pauses/silver/by_hand.json", b"{}")
    assert look(5_999) == ({"LIST": 4, "GET": 1}, {"silver/by_hand"}, 2)
    store.put("_lakehouse/pauses/silver/by_hand_too.json", b"{}")
    assert look(6_998) == ({"LIST": 1}, {"silver/by_hand"}, 2)
    assert look(6_999) == ({"LIST": 4, "GET": 2}, {"silver/by_hand", "silver/by_hand_too"}, 2)


def test_two_writers_of_markers_at_once_never_bring_back_names_that_a_reader_has_seen() -> None:
    class Late(MemoryStore):
        """Another process marks a change between this one's listing of the markers and its own marker."""

        is_late = False

        def list(self, prefix: str) -> list[StoredFile]:
            listing = super().list(prefix)
            if prefix == "_lakehouse/changes" and self.is_late:
                self.is_late = False
                Journal(self).resume(KEY)
            return listing

    store = Late()
    seen: list[frozenset[str]] = []
    for number in range(6):
        store.is_late = number % 2 == 1
        Journal(store).resume(KEY)
        seen.append(frozenset(file.name for file in store.list("_lakehouse/changes")))
    assert len(set(seen)) == 6 and [len(names) for names in seen] == [1, 2] * 3


def test_the_tries_of_all_tables_come_with_one_listing_and_those_before_a_success_unread() -> None:
    store = CountingStore()
    journal = Journal(store)
    assert journal.tries_since({}) == {}
    for ended_ms in (1, 5, 6):
        journal.record_try(KEY, CompactionTry(ended_ms=ended_ms, result="failed"))
        journal.record_try(f"gold/from_{ended_ms}", CompactionTry(ended_ms=ended_ms, result="conflict"))
    assert journal.tries_since({KEY: 4, "gold/from_1": 1}) == {
        KEY: (CompactionTry(ended_ms=5, result="failed"), CompactionTry(ended_ms=6, result="failed")),
        "gold/from_5": (CompactionTry(ended_ms=5, result="conflict"),),
        "gold/from_6": (CompactionTry(ended_ms=6, result="conflict"),),
    }
    assert store.requests["GET"] == 4
