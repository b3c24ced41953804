"""Manifests are folded into segments: what dies on the way forgets no file, and what may be forgotten is."""

from collections.abc import Iterable
from contextlib import nullcontext

import pytest

from lakehouse.base.errors import Broken, Transient
from lakehouse.base.text import DAY_MS
from lakehouse.declare.table import Append, Overwrite
from lakehouse.land.ledger import FOLD_EVERY, PlannedBatches
from lakehouse.land.plan.batches import Batch, LandedFile, find_unfinished
from lakehouse.store import Store
from lakehouse_tests.land.test_ledger import KEY, PREFIX, batch, of
from lakehouse_tests.memory_store import MemoryStore, OvertakenStore

FOLDER = f"_lakehouse/ingest/{KEY}"


def full(number: int) -> Batch:
    file = LandedFile(name=f"f{number}", size_bytes=number, modified_ms=number * DAY_MS, digest="d")
    return Batch(number=number, files=(file,), prefix=PREFIX, part_count=1, record_count=3)


def planned(store: Store, *, first: int = 1, last: int = FOLD_EVERY) -> PlannedBatches:
    """Batches of one file each; the file `f7` of batch 7 was written on day 7."""
    batches = of(store)
    for number in range(first, last + 1):
        batches.plan(full(number))
    batches.ledger()
    return batches


def paths(*numbers: int) -> set[str]:
    return {f"{PREFIX}f{number}" for number in numbers}


def names_in(store: Store) -> list[str]:
    return [
        file.name.removeprefix(f"{FOLDER}/").replace("0" * 18, "") for file in store.list(FOLDER)
    ]


class Dying(MemoryStore):
    """A store that answers nothing any more after so many writes; every deleted file is a write of its own."""

    left = 1_000

    def _write(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Transient("no store")

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._write()
        return super().put_if_absent(name, data)

    def read(self, name: str) -> bytes:
        if self.left <= 0:
            raise Transient("no store")
        return super().read(name)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._write()
            super().delete([name])


@pytest.mark.parametrize("first", [1, FOLD_EVERY + 1])
def test_a_fold_that_dies_after_any_write_forgets_no_file_and_the_next_one_tidies_up(
    first: int,
) -> None:
    last = first + FOLD_EVERY - 1
    lying, late_ms = paths(*range(5, last + 1)), (last + 40) * DAY_MS
    deaths = 1 + FOLD_EVERY + (first > 1)
    for writes in range(deaths + 1):
        store = Dying()
        if first > 1:
            planned(store).fold(landed_paths=(), last_loaded_batch=0, now_ms=0)
        folding = planned(store, first=first, last=last)
        before = folding.ledger()
        store.left = writes
        with nullcontext() if writes == deaths else pytest.raises(Transient):
            folding.fold(landed_paths=lying, last_loaded_batch=last, now_ms=late_ms)
        store.left = 1_000
        known = of(store).ledger()
        assert lying <= set(known.seen) and known.seen.items() <= before.seen.items()
        assert (known.newest, known.last_taken) == (before.newest, before.last_taken)
        more = planned(store, first=last + 1, last=last + FOLD_EVERY)
        more.fold(landed_paths=lying, last_loaded_batch=last, now_ms=late_ms)
        assert names_in(store) == [f"segment-{last + FOLD_EVERY:02}.json"]
        assert set(of(store).ledger().seen) >= lying


def test_manifests_go_only_when_the_segment_that_was_written_is_read_back_equal() -> None:
    class Damaging(MemoryStore):
        def put_if_absent(self, name: str, data: bytes) -> bool:
            damaged = data.replace(b'"digest":"d"', b'"digest":"x"')
            return super().put_if_absent(name, damaged if "segment" in name else data)

    store = Damaging()
    message = r"segment-0{18}32\.json is not what was written; nothing was deleted"
    with pytest.raises(Broken, match=message):
        planned(store).fold(landed_paths=(), last_loaded_batch=FOLD_EVERY, now_ms=0)
    assert len(names_in(store)) == FOLD_EVERY + 1


def test_manifests_of_files_that_the_segment_does_not_know_stay() -> None:
    store = MemoryStore()
    batches = planned(store)
    batches.fold(landed_paths=(), last_loaded_batch=FOLD_EVERY, now_ms=0)
    segment = store.read(f"{FOLDER}/segment-{FOLD_EVERY:020}.json")
    planned(store := MemoryStore())
    store.put(f"{FOLDER}/segment-{FOLD_EVERY:020}.json", segment.replace(b'"f3"', b'"f33"'))
    left = of(store)
    left.ledger()
    with pytest.raises(Broken, match=r"lacks 1 file, .*landing/events/f3'; nothing was deleted"):
        left.fold(landed_paths=(), last_loaded_batch=FOLD_EVERY, now_ms=0)
    assert len(names_in(store)) == FOLD_EVERY + 1


def test_a_reader_that_a_fold_overtakes_lists_again() -> None:
    store = OvertakenStore()
    before = planned(store)
    store.act = lambda: before.fold(landed_paths=(), last_loaded_batch=FOLD_EVERY, now_ms=0)
    assert len(of(store).ledger().seen) == FOLD_EVERY
    assert names_in(store) == ["segment-32.json"]


def test_batches_of_a_deleted_table_are_repeated_unless_files_of_them_are_forgotten() -> None:
    store, last = MemoryStore(), FOLD_EVERY
    late_ms = 1000 * DAY_MS
    landed = paths(*range(1, last + 1))
    planned(store).fold(landed_paths=landed, last_loaded_batch=last, now_ms=late_ms)
    whole = of(store)
    with pytest.raises(Transient, match="batch 32 was planned by another process"):
        whole.plan(batch(FOLD_EVERY, "other"))
    unfinished = find_unfinished(whole.ledger(), Append(), last_loaded_batch=2, read=whole.batch)
    assert unfinished == whole.batch(3) == full(3)
    more = planned(store, first=last + 1, last=2 * last)
    more.fold(landed_paths=paths(1, 9), last_loaded_batch=2 * last, now_ms=late_ms)
    folded = of(store)
    assert set(folded.ledger().seen) == paths(1, 9, 2 * last)
    message = "batch 3 is not in the table, and loaded files of the batches up to 63 are gone from"
    with pytest.raises(Broken, match=message):
        find_unfinished(folded.ledger(), Append(), last_loaded_batch=2, read=folded.batch)
    newest = find_unfinished(folded.ledger(), Overwrite(), last_loaded_batch=0, read=folded.batch)
    assert newest == folded.ledger().newest
    assert len(folded.ledger().forgotten) == 2 * last - 3


DAMAGES = [
    (b'"number":32,"batches', b'"number":31,"batches'),
    (b'"batches":[', b'"batches":[7,'),
    (b'"forgotten":"', b'"forgotten":"!'),
]


@pytest.mark.parametrize(("old", "new"), DAMAGES, ids=["number", "batch", "fingerprints"])
def test_a_damaged_segment_is_broken_and_named(old: bytes, new: bytes) -> None:
    store = MemoryStore()
    planned(store).fold(landed_paths=(), last_loaded_batch=FOLD_EVERY, now_ms=0)
    [file] = store.list(FOLDER)
    store.put(file.name, store.read(file.name).replace(old, new))
    with pytest.raises(Broken, match=file.name):
        of(store).ledger()


@pytest.mark.long
def test_a_year_of_a_busy_table_leaves_few_objects_and_knows_every_file_that_was_loaded() -> None:
    store, landed, sizes = MemoryStore(), list[str](), list[tuple[int, int]]()
    batches, a_day = of(store), 12
    for day in range(365):
        for number in range(4 * day + 1, 4 * day + 5):
            names = [f"d{day}/{number}-{each}" for each in "abc"]
            facts = {"size_bytes": 9, "modified_ms": day * DAY_MS, "digest": "0" * 64}
            files = tuple(LandedFile(name=name, **facts) for name in names)  # type: ignore[arg-type]
            batches.plan(Batch(number=number, files=files, prefix=PREFIX))
            landed += [f"{PREFIX}{name}" for name in names]
        lying = set(landed[-7 * a_day :])
        batches.fold(landed_paths=lying, last_loaded_batch=4 * day + 4, now_ms=day * DAY_MS)
        sizes.append((len(store.list(FOLDER)), sum(file.size_bytes for file in store.list(FOLDER))))
        if day % 60 == 59:
            assert lying <= set(of(store).ledger().seen)
    assert max(objects for objects, _ in sizes) <= FOLD_EVERY + 4
    # A name that is forgotten costs its fingerprint, in base64; all else is of the last weeks.
    grown = max(size for _, size in sizes[-30:]) - max(size for _, size in sizes[60:90])
    assert 0 < grown <= 275 * a_day * 8 * 4 / 3 + 2_000
    ledger = of(store).ledger()
    assert len(ledger.seen) + len(ledger.forgotten) == len(landed)
    assert len(ledger.seen) <= 40 * a_day
