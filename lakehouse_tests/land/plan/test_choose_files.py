"""Which landed files make the next batch, when, and what they wait for: one story per rule."""

from dataclasses import dataclass, field, replace

import pytest

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.target_size import count_outputs
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Append, Overwrite, WriteMode
from lakehouse.delta.snapshot import DataFile
from lakehouse.land.plan import choose_files
from lakehouse.land.plan.batches import (
    Batch,
    KnownFile,
    KnownFiles,
    LandedFile,
    Ledger,
    SetAside,
    extend_ledger,
    find_unfinished,
    fingerprint,
)
from lakehouse.land.plan.choose_files import (
    BatchPlan,
    FileRead,
    choose_batch,
    judge_file,
    repeat_batch,
    settle_batch,
)

LANDING = Landing(prefix="landing/orders/", format="json", schema="id STRING", max_file_bytes=1_000)
APPEND = Append()
FILE = LandedFile(name="a.json", size_bytes=10, modified_ms=7)
LEDGER = Ledger(newest=None, seen={})
OVERWRITTEN = KnownFiles(loaded={}, is_overwrite=True)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_files, "MAX_BATCH_FILES", 3)


def landed(*names: str, size_bytes: int = 10) -> list[LandedFile]:
    return [LandedFile(name=name, size_bytes=size_bytes, modified_ms=0) for name in names]


def loaded_as(size_bytes: int, modified_ms: int = 0, digest: str = "", etag: str = "") -> KnownFile:
    file = LandedFile(
        name="a.json", size_bytes=size_bytes, modified_ms=modified_ms, digest=digest, etag=etag
    )
    return KnownFile(newest=file, loaded=file)


def only_aside(modified_ms: int) -> KnownFile:
    file = SetAside(name="a.json", size_bytes=10, modified_ms=modified_ms, why="no")
    return KnownFile(newest=file, loaded=None)


def batch(number: int, *names: str) -> Batch:
    return Batch(number=number, files=tuple(landed(*names)))


@dataclass(frozen=True)
class Story:
    """What lies there and what is known, and what comes of it. `seen` are names below the prefix, with sizes where no more is known."""

    listing: list[LandedFile]
    older: list[Batch] = field(default_factory=list[Batch])
    newest: Batch | None = None
    seen: dict[str, int | KnownFile] = field(default_factory=dict[str, int | KnownFile])
    arrived: int = 0
    write: WriteMode = APPEND
    reason: Reason = Reason.BATCH_READY
    number: int | None = 1
    taken: list[str] = field(default_factory=list[str])
    aside: list[str] = field(default_factory=list[str])
    is_new: bool = True

    def plan(self) -> BatchPlan:
        taken = [
            f"{LANDING.prefix}{file.name}"
            for known in (*self.older, self.newest)
            if known
            for file in known.files
        ]
        seen = {
            name: loaded_as(each) if isinstance(each, int) else each
            for name, each in self.seen.items()
        }
        ledger = Ledger(
            newest=self.newest,
            seen={f"{LANDING.prefix}{name}": each for name, each in seen.items()},
            last_taken=max(taken, default=""),
        )
        numbered = {known.number: known for known in self.older}
        unfinished = find_unfinished(
            ledger, self.write, last_loaded_batch=self.arrived, read=numbered.__getitem__
        )
        if unfinished is not None:
            return repeat_batch(unfinished)
        return choose_batch(self.listing, ledger, LANDING, self.write)


NOTHING = {"reason": Reason.NOTHING_LANDED, "number": None, "is_new": False}
KNOWN = {"newest": batch(4, "a.json"), "seen": {"a.json": 10}, "arrived": 4}
AGAIN = {"reason": Reason.BATCH_UNFINISHED, "is_new": False}
PLANNED = {**AGAIN, "arrived": 3, "number": 4, "taken": ["a.json"]}
DELETED = {
    "listing": landed("a.json", "b.csv", "c.json", "new.json"),
    "older": [batch(1, "a.json"), Batch(number=2, files=())],
    "newest": batch(3, "c.json"),
    "seen": {"a.json": 10, "b.csv": 10, "c.json": 10},
}
STORIES = {
    "the first files": Story(landed("b.json", "a.jsonl.gz"), taken=["a.jsonl.gz", "b.json"]),
    "an empty folder": Story([], **NOTHING),
    "nothing new": Story(landed("a.json"), **KNOWN, **NOTHING),
    "one new file": Story(landed("a.json", "b.json"), **KNOWN, number=5, taken=["b.json"]),
    "a late file that sorts before those taken": Story(
        landed("0.json", "a.json"), **KNOWN, number=5, taken=["0.json"]
    ),
    "more files than a batch takes": Story(
        landed(*(f"{place}.json" for place in range(9))), taken=["0.json", "1.json", "2.json"]
    ),
    "more bytes than a batch takes": Story(
        landed("a.json", "b.json", "c.json", size_bytes=700), taken=["a.json", "b.json"]
    ),
    "hidden names at any level": Story(
        landed(".a.json", "_b.json", "x/.y/c.json", "_tmp/d.json"), **NOTHING
    ),
    "a batch that did not arrive": Story(
        landed("a.json", "b.json", "new.json"), **(KNOWN | PLANNED)
    ),
    "the same, its files gone": Story([], **(KNOWN | PLANNED)),
    "none of three batches arrived, the oldest comes first": Story(
        **DELETED, **AGAIN, arrived=0, number=1, taken=["a.json"]
    ),
    "then the next with files, whatever is set aside in between": Story(
        **DELETED, **AGAIN, arrived=1, number=3, taken=["c.json"]
    ),
    "then what is new": Story(**DELETED, arrived=3, number=4, taken=["new.json"]),
    "of an overwrite the newest is done again": Story(
        **DELETED, **AGAIN, write=Overwrite(), arrived=0, number=3, taken=["c.json"]
    ),
    "a batch of no file has nothing to arrive": Story(
        landed("a.json", "b.json"),
        newest=batch(4),
        seen={"a.json": 10},
        arrived=3,
        number=5,
        taken=["b.json"],
    ),
    "a foreign file": Story(landed("a.json", "a.parquet"), taken=["a.json"], aside=["a.parquet"]),
    "an ending in capital letters": Story(
        landed("a.Json", "b.JSONL.GZ"), taken=["a.Json", "b.JSONL.GZ"]
    ),
    "a foreign file set aside before": Story(
        landed("a.csv"), newest=batch(1), seen={"a.csv": 10}, arrived=0, **NOTHING
    ),
    "a file that changed": Story(
        landed("a.json", size_bytes=11) + landed("b.json"),
        **KNOWN,
        number=5,
        taken=["b.json"],
        aside=["a.json"],
    ),
    "a taken file of another time is read again": Story(
        [FILE], seen={"a.json": loaded_as(10, 6, "d")}, taken=["a.json"]
    ),
    "a file that was set aside and has changed": Story(
        [FILE], seen={"a.json": only_aside(6)}, taken=["a.json"]
    ),
    "a file that was set aside and has not": Story(
        [FILE], seen={"a.json": only_aside(7)}, **NOTHING
    ),
    **{
        f"a file with {name}": Story(
            [replace(FILE, etag=now)], seen={"a.json": loaded_as(10, 7, "d", before)}, **more
        )
        for name, before, now, more in (
            ("another etag", "1", "2", {"taken": ["a.json"]}),
            ("the same etag", "1", "1", NOTHING),
            ("an etag that was not known", "", "1", NOTHING),
        )
    },
    "a file that was written again with its etag": Story(
        [replace(FILE, modified_ms=9, etag="1")],
        seen={"a.json": replace(loaded_as(10, 6, "d"), newest=loaded_as(10, 7, etag="1").newest)},
        **NOTHING,
    ),
    "a name that is no text": Story(landed("a\udcff.json"), aside=["a\udcff.json"]),
    "a name with an empty part": Story(
        landed("/a.json", "b//a.json", "c.json"), taken=["c.json"], aside=["/a.json", "b//a.json"]
    ),
    "a file as large as is allowed": Story(landed("a.json", size_bytes=1_000), taken=["a.json"]),
    "a larger one": Story(landed("a.json", size_bytes=1_001), aside=["a.json"]),
    "an overwrite takes the newest": Story(
        landed("2.json", "1.json", "3.json"),
        write=Overwrite(),
        taken=["3.json"],
        aside=["1.json", "2.json"],
    ),
    "an overwrite takes no older file": Story(
        landed("0.json", "a.json"), **KNOWN, write=Overwrite(), number=5, aside=["0.json"]
    ),
    "an overwrite is not held up by a larger file": Story(
        landed("z.json", size_bytes=1_001) + landed("b.json"),
        newest=batch(2),
        older=[batch(1, "a.json")],
        seen={"a.json": 10, "z.json": 1_001},
        arrived=1,
        write=Overwrite(),
        number=3,
        taken=["b.json"],
    ),
    "nor by a foreign name": Story(
        landed("b.json"),
        newest=batch(1),
        seen={"z.csv": 10},
        write=Overwrite(),
        number=2,
        taken=["b.json"],
    ),
    "an overwrite of a file that changed": Story(
        landed("a.json", size_bytes=11), **KNOWN, write=Overwrite(), number=5, taken=["a.json"]
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_batch(story: Story) -> None:
    found = story.plan()
    chosen = found.batch
    expected = (story.reason, story.is_new, story.number)
    assert (found.reason, found.is_new, chosen and chosen.number) == expected
    assert ([file.name for file in chosen.files] if chosen else []) == story.taken
    assert (
        [aside.name for aside in (*chosen.set_aside, *found.superseded)] == story.aside
        if chosen
        else not story.aside
    )


@pytest.mark.parametrize(
    ("loaded", "name", "format_", "is_read"),
    [
        (loaded_as(9, digest="d"), "a.json", "json", False),
        (loaded_as(9, digest="d"), "a.parquet", "parquet", False),
        (loaded_as(11, digest="d"), "a.json", "json", False),  # it is shorter now
        (
            replace(loaded_as(10, digest="d"), newest=loaded_as(7, digest="x").newest),
            "a.json",
            "json",
            True,
        ),
    ],
)
def test_a_replaced_file_is_read_only_if_it_may_be_what_was_loaded(
    loaded: KnownFile, name: str, format_: str, is_read: bool
) -> None:
    landing = replace(LANDING, format=format_)
    ledger = Ledger(newest=None, seen={f"{LANDING.prefix}{name}": loaded})
    found = choose_batch(landed(name, size_bytes=10), ledger, landing, APPEND)
    assert found.batch is not None
    assert [file.name for file in found.batch.files] == ([name] if is_read else [])
    assert [aside.is_quarantined for aside in found.batch.set_aside] == ([] if is_read else [True])


def test_an_overwrite_ends_with_a_late_file_that_is_older_than_the_one_taken() -> None:
    """A manifest tells of the file: else the next turn of the same load finds it again, and so without end."""
    plan = Story(landed("0.json"), newest=batch(4, "a.json"), arrived=4, write=Overwrite()).plan()
    assert plan.batch is not None
    settled = settle_batch(plan, plan.batch, OVERWRITTEN, {}, row_count=0)
    assert ([aside.name for aside in settled.set_aside], settled.number) == (["0.json"], 5)


@pytest.mark.parametrize("older", ["landing/z/2023-12.json", "landing/orders/prices.csv"])
def test_an_overwrite_declared_anew_is_not_replaced_by_a_late_older_file(older: str) -> None:
    """What was taken before under another prefix, or of another format, hides nothing that was taken since."""
    taken = {
        older: loaded_as(10, digest="1"),
        "landing/orders/2024-02.json": loaded_as(10, digest="2"),
    }
    ledger = Ledger(
        newest=batch(2, "2024-02.json"),
        seen=taken,
        last_taken=max(older, "landing/orders/2024-02.json"),
    )
    plan = choose_batch(landed("2024-01.json"), ledger, LANDING, Overwrite())
    assert plan.batch is not None
    assert (plan.batch.files, [aside.name for aside in plan.superseded]) == ((), ["2024-01.json"])


@pytest.mark.parametrize(("name", "is_read"), [("b.parquet", True), ("b.txt", False)])
def test_a_file_of_another_format_waits_until_that_is_declared(name: str, is_read: bool) -> None:
    aside = choose_batch(landed(name), LEDGER, LANDING, APPEND).batch
    assert aside is not None and not aside.files
    ledger = extend_ledger(LEDGER, [aside])
    now = replace(LANDING, format="parquet")
    assert choose_batch(landed(name), ledger, LANDING, APPEND).batch is None
    found = choose_batch(landed(name), ledger, now, APPEND).batch
    assert (found is not None) is is_read
    if found is not None:
        assert [file.name for file in found.files] == [name]
        assert choose_batch(landed(name), extend_ledger(ledger, [found]), now, APPEND).batch is None


READ = FileRead(file=replace(FILE, size_bytes=12, digest="new"), record_count=3)
TAKEN = LandedFile(name="a.json", size_bytes=12, modified_ms=6, digest="old")
JUDGED: dict[str, tuple[LandedFile | None, FileRead, str, bool]] = {
    "good": (None, READ, "", False),
    "unreadable": (None, replace(READ, problem="no"), "no", True),
    "empty": (None, replace(READ, record_count=0), "it contains no record", False),
    "touched": (
        replace(TAKEN, digest="new"),
        READ,
        "it was written again with content that was already read",
        False,
    ),
    "replaced": (
        TAKEN,
        READ,
        "it had 12 bytes when it was loaded and its content differs now. The loaded records stay",
        True,
    ),
}


@pytest.mark.parametrize(("loaded", "read", "why", "is_quarantined"), JUDGED.values(), ids=JUDGED)
def test_what_becomes_of_a_file_that_was_read(
    loaded: LandedFile | None, read: FileRead, why: str, is_quarantined: bool
) -> None:
    found = judge_file(read, KnownFiles(loaded={"a.json": loaded}))
    expected = ("a.json", 12, 7, "new")
    assert (found.name, found.size_bytes, found.modified_ms, found.digest) == expected
    if not isinstance(found, SetAside):
        assert why == ""
    else:
        assert found.why.startswith(why) and found.is_quarantined is is_quarantined


@pytest.mark.parametrize("write", [APPEND, Overwrite()])
def test_a_changed_or_forgotten_file_is_loaded_only_if_it_replaces_all_rows(
    write: WriteMode,
) -> None:
    changed = landed("a.json", size_bytes=7)
    forgotten = Ledger(
        newest=batch(4), seen={}, forgotten=frozenset({fingerprint("landing/orders/a.json")})
    )
    for plan in (
        Story(changed, **KNOWN, write=write).plan(),
        choose_batch(changed, forgotten, LANDING, write),
    ):
        assert plan.batch is not None
        if write is APPEND:
            [aside] = plan.batch.quarantined
            assert "Land only the new records, under a new name" in aside.why
        else:
            assert (plan.batch.files, plan.batch.set_aside) == (tuple(changed), ())


@pytest.mark.parametrize(("digest", "is_loaded"), [("old", True), ("new", False)])
def test_an_overwrite_loads_a_file_with_other_content_than_was_loaded(
    digest: str, is_loaded: bool
) -> None:
    loaded = replace(TAKEN, digest=digest)
    for is_overwrite in (True, False):
        known = KnownFiles(loaded={"a.json": loaded}, is_overwrite=is_overwrite)
        assert known.may_load(READ.file) is (is_loaded and is_overwrite)
        assert isinstance(judge_file(READ, known), SetAside) is not known.may_load(READ.file)


def test_an_empty_file_of_an_overwrite_is_one_that_a_person_should_see() -> None:
    found = judge_file(replace(READ, record_count=0), OVERWRITTEN)
    assert isinstance(found, SetAside) and found.is_quarantined


@pytest.mark.parametrize("row_count", [0, 1])
def test_an_overwrite_takes_a_file_with_rows_and_else_older_ones_wait(row_count: int) -> None:
    plan = Story(landed("1.json", "2.json", "x.csv"), write=Overwrite()).plan()
    assert plan.batch is not None
    columns = ("id",)
    staged = replace(plan.batch, columns=columns)
    reads = {"2.json": replace(READ, file=replace(READ.file, name="2.json"))}
    settled = settle_batch(plan, staged, OVERWRITTEN, reads, row_count=row_count)
    assert [file.name for file in settled.files] == ["2.json"][:row_count]
    assert settled.columns == columns[:row_count]
    expected = ["x.csv", "1.json"] if row_count else ["x.csv", "2.json"]
    assert [aside.name for aside in settled.set_aside] == expected
    assert [aside.name for aside in settled.quarantined] == ([] if row_count else ["2.json"])


def test_an_append_takes_files_without_a_row_and_its_sentence_counts_what_is_left() -> None:
    plan = Story(landed("a.json", "b.csv")).plan()
    assert plan.sentence == "batch 1 has 1 landed file (10 B), 1 file set aside (b.csv)"
    many = Story(landed("a.json", *(f"{place}.csv" for place in range(9)))).plan()
    assert many.sentence.endswith("9 files set aside (0.csv, 1.csv, 2.csv and 6 more)")
    assert plan.batch is not None
    reads = {"a.json": READ}
    settled = settle_batch(plan, plan.batch, KnownFiles(loaded={}), reads, row_count=0)
    assert [file.name for file in settled.files] == ["a.json"]


def test_no_manifest_is_read_where_the_newest_batch_alone_may_be_unfinished() -> None:
    ledger = Ledger(newest=batch(7, "a.json"), seen={})
    assert find_unfinished(ledger, APPEND, last_loaded_batch=7, read={}.__getitem__) is None
    assert (
        find_unfinished(ledger, APPEND, last_loaded_batch=6, read={}.__getitem__) is ledger.newest
    )


def test_everything_landed_is_taken_once_and_only_once_over_any_number_of_batches() -> None:
    listing = landed(*(f"{place:02}.json" for place in range(10)), "x.csv")
    ledger, taken = LEDGER, []
    while (found := choose_batch(listing, ledger, LANDING, Append())).batch:
        taken.extend(file.name for file in (*found.batch.files, *found.batch.set_aside))
        ledger = extend_ledger(ledger, [found.batch])
    assert sorted(taken) == [file.name for file in listing]
    assert found.sentence == "nothing new has landed; 11 files known"


RELEASING = Landing(
    prefix="landing/o/",
    format="json",
    schema="id STRING",
    release_files=3,
    release_bytes=1024,
    release_minutes=2,
)
MINUTE_MS = 60_000

# Bytes and minutes of age of the files that wait, and what releases them.
RELEASED = {
    "by their number": ([(1, 0), (1, 0), (1, 0)], "; released, because at least 3 files wait"),
    "by their bytes": ([(1_000, 0), (24, 0)], "; released, because at least 1 KiB wait"),
    "by the age of the oldest": (
        [(1, 0), (1, 2)],
        "; released, because the oldest has waited at least 2 min",
    ),
    "by the first of them": (
        [(1_000, 9), (1_000, 9), (1, 9)],
        "; released, because at least 3 files wait",
    ),
    "by a date in the future": (
        [(1, -2.01)],
        "; released, because the oldest has waited at least 2 min",
    ),
    "not yet": ([(1_000, 1), (23, 1.99)], None),
    "not by a clock that is a little ahead": ([(1, -1.99)], None),
}


def listing(*files: tuple[int, float]) -> list[LandedFile]:
    """The files as of minute 10."""
    return [
        LandedFile(
            name=f"{place}.json", size_bytes=size, modified_ms=round((10 - minutes) * MINUTE_MS)
        )
        for place, (size, minutes) in enumerate(files)
    ]


def plan(
    *files: tuple[int, float], landing: Landing = RELEASING, now_ms: int | None = 600_000
) -> BatchPlan:
    return choose_batch(listing(*files), LEDGER, landing, Append(), now_ms=now_ms)


@pytest.mark.parametrize(("files", "why"), RELEASED.values(), ids=RELEASED)
def test_files_that_wait_are_released(files: list[tuple[int, float]], why: str | None) -> None:
    found = plan(*files)
    expected = (Reason.BATCH_READY, False) if why else (Reason.BATCH_WAITING, True)
    assert (found.reason, found.batch is None) == expected
    assert found.sentence.endswith(why or "min")


def test_the_sentence_says_what_files_wait_for() -> None:
    assert plan((1, 1)).sentence == (
        "1 landed file (1 B) must wait for more: a batch is released at 3 files or 1 KiB, or 1970-01-01 00:11 UTC, "
        "when the oldest has waited 2 min"
    )


def test_a_load_by_hand_does_not_wait() -> None:
    assert plan((1, 0), now_ms=None).reason is Reason.BATCH_READY


def test_a_batch_is_bounded_and_says_how_many_files_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_files, "MAX_BATCH_FILES", 2)
    found = plan((1, 0), (1, 0), (1, 0))
    assert found.batch is not None and (len(found.batch.files), found.left) == (2, 1)


MIB = 1024 * 1024
SMALL = DataFile(path="a", size_bytes=5_000, modified_ms=0, row_count=2)
FULL = DataFile(path="b", size_bytes=MIB, modified_ms=0, row_count=8_192)


@pytest.mark.parametrize(
    ("landed_bytes", "row_count", "files", "outputs"),
    [
        (1_000, 3, [], 1),
        (512 * MIB, 4_000_000, [], 4),
        (512 * MIB, 1_048_576, [SMALL, FULL], 8),
        (512 * MIB, 1_048_576, [SMALL], 32),
        (512 * MIB, 4_000_000, [replace(FULL, row_count=None)], 4),
        (16 * MIB, 200_000, [SMALL, FULL], 1),
    ],
)
def test_a_batch_writes_files_of_the_target_size(
    landed_bytes: int, row_count: int, files: list[DataFile], outputs: int
) -> None:
    assert count_outputs(landed_bytes, row_count, files, 16 * MIB) == outputs
