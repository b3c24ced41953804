"""Which landed files make the next batch: one story per rule."""

from dataclasses import dataclass, field, replace

import pytest

from lakehouse.core.ingest import Batch, BatchPlan, LandedFile, Ledger, choose_batch, find_unfinished, ingest_app_id
from lakehouse.core.reason import Reason
from lakehouse.core.table import Append, Landing, Overwrite, type_of_write

LANDING = Landing(prefix="landing/orders/", format="json", schema="id STRING", max_batch_files=3, max_file_bytes=1_000)

APPEND = Append()


def landed(*names: str, size_bytes: int = 10) -> list[LandedFile]:
    return [LandedFile(name=name, size_bytes=size_bytes, modified_ms=0) for name in names]


def batch(number: int, *names: str) -> Batch:
    return Batch(number=number, files=tuple(landed(*names)))


@dataclass(frozen=True, kw_only=True)
class Story:
    """What lies there and what is known, and what comes of it."""

    listing: list[LandedFile]
    older: list[Batch] = field(default_factory=list[Batch])
    newest: Batch | None = None
    seen: dict[str, int] = field(default_factory=dict[str, int])
    arrived: int = 0
    write: type_of_write = APPEND
    reason: Reason = Reason.BATCH_READY
    number: int | None = 1
    taken: list[str] = field(default_factory=list[str])
    aside: list[str] = field(default_factory=list[str])
    is_new: bool = True

    def plan(self) -> BatchPlan:
        taken = [file.name for known in (*self.older, self.newest) if known for file in known.files]
        ledger = Ledger(newest=self.newest, seen=self.seen, last_taken=max(taken, default=""))
        numbered = {known.number: known for known in self.older}
        unfinished = find_unfinished(ledger, self.write, arrived=self.arrived, read=numbered.__getitem__)
        return choose_batch(self.listing, ledger, LANDING, self.write, unfinished=unfinished)


NOTHING = {"reason": Reason.NOTHING_LANDED, "number": None, "is_new": False}
KNOWN = {"newest": batch(4, "a.json"), "seen": {"a.json": 10}, "arrived": 4}
AGAIN = {"reason": Reason.BATCH_UNFINISHED, "is_new": False}
DELETED = {
    "listing": landed("a.json", "b.csv", "c.json", "new.json"),
    "older": [batch(1, "a.json"), Batch(number=2, files=())],
    "newest": batch(3, "c.json"),
    "seen": {"a.json": 10, "b.csv": 10, "c.json": 10},
}
STORIES = {
    "the first files": Story(listing=landed("b.json", "a.jsonl.gz"), taken=["a.jsonl.gz", "b.json"]),
    "an empty folder": Story(listing=[], **NOTHING),
    "nothing new": Story(listing=landed("a.json"), **KNOWN, **NOTHING),
    "one new file": Story(listing=landed("a.json", "b.json"), **KNOWN, number=5, taken=["b.json"]),
    "a late file that sorts before those taken": Story(listing=landed("0.json", "a.json"), **KNOWN, number=5, taken=["0.json"]),
    "more files than a batch takes": Story(listing=landed(*(f"{place}.json" for place in range(9))), taken=["0.json", "1.json", "2.json"]),
    "hidden names at any level": Story(listing=landed(".a.json", "_b.json", "x/.y/c.json", "_tmp/d.json"), **NOTHING),
    "a folder below the prefix": Story(listing=landed("x/y/a.json"), taken=["x/y/a.json"]),
    "a batch that was planned and did not arrive": Story(
        listing=landed("a.json", "b.json", "new.json"),
        newest=batch(4, "a.json", "b.json"),
        seen={"a.json": 10, "b.json": 10},
        arrived=3,
        reason=Reason.BATCH_UNFINISHED,
        number=4,
        taken=["a.json", "b.json"],
        is_new=False,
    ),
    "the same, its files gone": Story(
        listing=[],
        newest=batch(4, "a.json"),
        seen={"a.json": 10},
        arrived=3,
        reason=Reason.BATCH_UNFINISHED,
        number=4,
        taken=["a.json"],
        is_new=False,
    ),
    "none of three batches arrived, the oldest comes first": Story(**DELETED, **AGAIN, arrived=0, number=1, taken=["a.json"]),
    "then the next with files, whatever is set aside in between": Story(**DELETED, **AGAIN, arrived=1, number=3, taken=["c.json"]),
    "then what is new": Story(**DELETED, arrived=3, number=4, taken=["new.json"]),
    "of an overwrite the newest is done again, since it replaces the others": Story(
        **DELETED, **AGAIN, write=Overwrite(), arrived=0, number=3, taken=["c.json"]
    ),
    "a batch of files set aside alone has nothing to arrive": Story(
        listing=landed("a.json", "b.json"), newest=batch(4), seen={"a.json": 10}, arrived=3, number=5, taken=["b.json"]
    ),
    "a foreign file": Story(listing=landed("a.json", "a.parquet"), taken=["a.json"], aside=["a.parquet"]),
    "foreign files alone": Story(listing=landed("a.csv", "b.JSON"), aside=["a.csv", "b.JSON"]),
    "a foreign file set aside before": Story(listing=landed("a.csv"), newest=batch(1), seen={"a.csv": 10}, arrived=0, **NOTHING),
    "a file that changed after it was taken": Story(
        listing=landed("a.json", size_bytes=11) + landed("b.json"), **KNOWN, number=5, taken=["b.json"], aside=["a.json"]
    ),
    "a file as large as is allowed": Story(listing=landed("a.json", size_bytes=1_000), taken=["a.json"]),
    "a larger one": Story(listing=landed("a.json", size_bytes=1_001), aside=["a.json"]),
    "an overwrite takes the newest": Story(
        listing=landed("2.json", "1.json", "3.json"), write=Overwrite(), taken=["3.json"], aside=["1.json", "2.json"]
    ),
    "an overwrite takes no late file that is older than the one taken": Story(
        listing=landed("0.json", "a.json"), **KNOWN, write=Overwrite(), number=5, aside=["0.json"]
    ),
    "an overwrite is not held up by a larger file": Story(
        listing=landed("z.json", size_bytes=1_001) + landed("b.json"),
        newest=Batch(number=2, files=()),
        older=[batch(1, "a.json")],
        seen={"a.json": 10, "z.json": 1_001},
        arrived=1,
        write=Overwrite(),
        number=3,
        taken=["b.json"],
    ),
    "an overwrite is not held up by a foreign name": Story(
        listing=landed("b.json"), newest=batch(1), seen={"z.csv": 10}, write=Overwrite(), number=2, taken=["b.json"]
    ),
    "an overwrite of a file that changed": Story(
        listing=landed("a.json", size_bytes=11), **KNOWN, write=Overwrite(), number=5, aside=["a.json"]
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_batch(story: Story) -> None:
    found = story.plan()
    chosen = found.batch
    assert (found.reason, found.is_new, chosen and chosen.number) == (story.reason, story.is_new, story.number)
    assert ([file.name for file in chosen.files] if chosen else []) == story.taken
    assert ([aside.name for aside in chosen.set_aside] if chosen else []) == story.aside


WHY = {
    "foreign": (landed("a.csv"), {}, "its name ends in none of .json, .jsonl, .json.gz, .jsonl.gz"),
    "changed": (landed("a.json", size_bytes=11), {"a.json": 10}, "it had 10 bytes when it was taken and has 11 now"),
    "large": (landed("a.json", size_bytes=1_001), {}, "it has 1001 bytes, at most 1000 are read"),
}


@pytest.mark.parametrize(("listing", "seen", "why"), WHY.values(), ids=WHY)
def test_a_file_is_set_aside_with_the_reason(listing: list[LandedFile], seen: dict[str, int], why: str) -> None:
    found = Story(listing=listing, seen=seen).plan().batch
    assert found is not None and why in found.set_aside[0].why


@pytest.mark.parametrize(("unreadable", "taken"), [("", ["05:00.json", "a.json"]), (":", ["a.json"])])
def test_a_name_that_cannot_be_read_is_set_aside(unreadable: str, taken: list[str]) -> None:
    empty = Ledger(newest=None, seen={})
    found = choose_batch(landed("05:00.json", "a.json"), empty, LANDING, APPEND, unfinished=None, unreadable=unreadable).batch
    assert found is not None and [file.name for file in found.files] == taken
    assert len(found.files) + len(found.set_aside) == 2


def test_no_manifest_is_read_where_the_newest_batch_alone_may_be_unfinished() -> None:
    ledger = Ledger(newest=batch(7, "a.json"), seen={"a.json": 10})
    assert find_unfinished(ledger, APPEND, arrived=7, read={}.__getitem__) is None
    assert find_unfinished(ledger, APPEND, arrived=6, read={}.__getitem__) is ledger.newest


def test_everything_landed_is_taken_once_and_only_once_over_any_number_of_batches() -> None:
    listing = landed(*(f"{place:02}.json" for place in range(10)), "x.csv")
    ledger, taken = Ledger(newest=None, seen={}), []
    while (found := choose_batch(listing, ledger, LANDING, Append(), unfinished=None)).batch:
        names = (*found.batch.files, *found.batch.set_aside)
        taken.extend(file.name for file in names)
        ledger = replace(ledger, newest=found.batch, seen={**ledger.seen, **{file.name: file.size_bytes for file in names}})
    assert sorted(taken) == [file.name for file in listing]
    assert found.sentence == "nothing new has landed; 11 file(s) are in the table already"


def test_the_sentence_counts_what_is_taken_and_what_is_not() -> None:
    assert Story(listing=landed("a.json", "b.csv")).plan().sentence == "1 landed file(s) of 10 bytes make batch 1, 1 file(s) are set aside"


def test_each_table_has_its_own_transaction_id() -> None:
    assert ingest_app_id("bronze/orders") == "lakehouse/ingest/bronze/orders"
