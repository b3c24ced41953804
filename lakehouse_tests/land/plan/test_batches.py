"""Which landed files a segment forgets, and what becomes of a name that comes back."""

from dataclasses import replace

import pytest

from lakehouse.declare.table import Append, Landing
from lakehouse.land.plan.batches import (
    FORGET_AFTER_MS,
    Batch,
    KnownFiles,
    LandedFile,
    Ledger,
    LedgerSegment,
    SetAside,
    extend_ledger,
    fingerprint,
    fold_batches,
)
from lakehouse.land.plan.choose_files import FileRead, choose_batch, judge_file

PREFIX = "landing/a/"
FILE = LandedFile(name="f.json", size_bytes=3, modified_ms=1_000, digest="d")
ASIDE = SetAside(name="x.txt", size_bytes=3, why="no", modified_ms=1_000)
NEWEST = Batch(number=3, files=(replace(FILE, name="z.json"),), prefix=PREFIX)
GONE = {
    "landed_paths": {f"{PREFIX}z.json"},
    "prefix": PREFIX,
    "last_loaded_batch": 3,
    "now_ms": 1_001 + FORGET_AFTER_MS,
}
LANDING = Landing(prefix=PREFIX, format="json", schema="id INT")


def folded(first: Batch, **changed: object) -> LedgerSegment:
    return fold_batches(
        LedgerSegment(),
        [first, Batch(number=2, files=(), set_aside=(ASIDE,), prefix=PREFIX), NEWEST],
        **(GONE | changed),
    )  # type: ignore[arg-type]


def test_a_file_that_is_gone_and_old_leaves_a_fingerprint_and_one_set_aside_nothing() -> None:
    found = folded(Batch(number=1, files=(FILE,), prefix=PREFIX))
    assert found == LedgerSegment(
        number=3,
        batches=(NEWEST,),
        last_taken=f"{PREFIX}z.json",
        forgotten=frozenset([fingerprint(f"{PREFIX}f.json")]),
        forgotten_batch=1,
    )


STILL_KNOWN = {
    "it lies there": {"landed_paths": {f"{PREFIX}f.json"}},
    "nothing lies there": {"landed_paths": set()},
    "young": {"now_ms": 1_000 + FORGET_AFTER_MS},
    "not arrived": {"last_loaded_batch": 0},
    "elsewhere": {"prefix": "landing/b/"},
    "of the newest batch, too": {"file": replace(FILE, name="z.json")},
}


def known_in(ledger: Ledger) -> KnownFiles:
    return KnownFiles(loaded={"f.json": ledger.loaded(f"{PREFIX}f.json")})


@pytest.mark.parametrize("changed", STILL_KNOWN.values(), ids=STILL_KNOWN)
def test_a_file_stays_known_as_long_as_it_may_be_asked_for(changed: dict[str, object]) -> None:
    others = {name: value for name, value in changed.items() if name != "file"}
    first = Batch(number=1, files=(changed.get("file", FILE),), prefix=PREFIX)  # type: ignore[arg-type]
    found = folded(first, **others)
    assert first in found.batches and (found.forgotten, found.forgotten_batch) == (frozenset(), 0)


def test_an_added_column_stays_known_in_its_place_though_its_batch_is_forgotten() -> None:
    segment = folded(Batch(number=1, files=(FILE,), prefix=PREFIX, columns=("b",)))
    assert [batch.number for batch in segment.batches] == [3]
    again = Batch(number=4, files=(), prefix=PREFIX, columns=("a", "b"))
    assert extend_ledger(segment.ledger, [again]).columns == ("b", "a")


def test_a_forgotten_name_that_comes_back_is_refused_however_often_it_changes() -> None:
    ledger = folded(Batch(number=1, files=(FILE,), prefix=PREFIX)).ledger
    for number, back in enumerate(
        [FILE, *(replace(FILE, size_bytes=4, modified_ms=at) for at in (9, 20))], start=4
    ):
        [batch] = [choose_batch([back], ledger, LANDING, Append()).batch]
        assert batch is not None and batch.number == number
        for file in batch.files:  # of the size of before: it is read, and judged
            read = FileRead(file=replace(file, size_bytes=4, digest="e"), record_count=1)
            aside = judge_file(read, known_in(ledger))
            assert isinstance(aside, SetAside)
            batch = replace(batch, files=(), set_aside=(aside,))
        [aside] = batch.quarantined
        assert "under a new name" in aside.why
        ledger = extend_ledger(ledger, [batch])
        assert choose_batch([back], ledger, LANDING, Append()).batch is None
        # So that no retry of its quarantine has it read again.
        assert ledger.loaded(f"{PREFIX}f.json") is not None
    again = fold_batches(
        LedgerSegment(number=3, forgotten=ledger.forgotten), [replace(NEWEST, number=4)], **GONE
    )  # type: ignore[arg-type]
    assert again.forgotten == ledger.forgotten and isinstance(again.ledger, Ledger)


def test_a_name_that_was_loaded_is_refused_each_time_that_another_file_is_written_over_it() -> None:
    """Its own content is known again; that of a file that was refused never counts as loaded."""
    ledger = extend_ledger(
        Ledger(newest=None, seen={}), [Batch(number=1, files=(FILE,), prefix=PREFIX)]
    )
    written = [
        (4, 2_000, "e"),
        (4, 3_000, "f"),
        (4, 4_000, "f"),
        (3, 5_000, "f"),
        (3, 6_000, "d"),
        (4, 7_000, "e"),
        (3, 1_000, "d"),
    ]
    told: list[tuple[str, bool]] = []
    for size, at, digest in written:
        now = replace(FILE, size_bytes=size, modified_ms=at, digest="")
        batch = choose_batch([now], ledger, LANDING, Append()).batch
        assert batch is not None
        reads = [
            FileRead(file=replace(file, size_bytes=size, digest=digest), record_count=1)
            for file in batch.files
        ]
        judged = [judge_file(read, known_in(ledger)) for read in reads]
        [aside] = (*batch.set_aside, *judged)
        assert isinstance(aside, SetAside)
        told.append((aside.why.partition(". ")[0], aside.is_quarantined))
        ledger = extend_ledger(ledger, [replace(batch, files=(), set_aside=(aside,))])
        assert choose_batch([now], ledger, LANDING, Append()).batch is None
    larger = "it had 3 bytes when it was loaded and has 4 now"
    other = "it had 3 bytes when it was loaded and its content differs now"
    same = ("it was written again with content that was already read", False)
    assert told == [(larger, True)] * 3 + [(other, True), same, (larger, True), same]
