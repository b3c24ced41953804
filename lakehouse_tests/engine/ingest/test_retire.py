"""Loaded files leave the landing area by policy, and nothing goes that is not in the table as it lies there. Logs are written, no Spark."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse import Append, Landing, Table
from lakehouse.core.errors import Refused
from lakehouse.core.ingest.batches import Batch, LandedFile, ingest_app_id
from lakehouse.core.ingest.retirement import RetirementPlan
from lakehouse.core.units import DAY_MS
from lakehouse.engine.declared_tables import module_tables
from lakehouse.engine.ingest import retire as retiring
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.store import DiskStore
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.kills import killed_at
from lakehouse_tests.log_builder import MINUTE_MS, START_MS, LogBuilder
from lakehouse_tests.memory_store import MemoryStore

KEY, PREFIX = "bronze/orders", "landing/orders/"
DELETED = Table(
    key=KEY,
    source=Landing(
        prefix=PREFIX, format="json", schema="id BIGINT", after_load="delete", keep_days=3
    ),
    write=Append(),
)
REPLACED = "the table was restored or replaced after their load, so their rows may be gone"
FORGOTTEN = "the table's log no longer has all commits since their load: their rows may be gone"
MANY = 600  # commits; the facts of a table hold 500


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(own_settings(tmp_path))


@pytest.fixture
def memory(tmp_path: Path) -> Lake:
    """A lake in which a thousand commits take no time."""
    return Lake(settings=own_settings(tmp_path), store=MemoryStore())


@pytest.fixture
def log(lake: Lake) -> LogBuilder:
    return three_batches(lake)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The questions that a store in memory is asked."""
    asked = list[tuple[str, str]]()
    for kind in ("list", "read", "stat"):
        real = getattr(MemoryStore, kind)
        monkeypatch.setattr(
            MemoryStore,
            kind,
            lambda *of, kind=kind, real=real: asked.append((kind, of[1])) or real(*of),
        )
    return asked


def three_batches(lake: Lake) -> LogBuilder:
    """The table after its batches 1 to 3, of which batch 2 had no file; minutes 1 and 2 of its time."""
    for number, names in enumerate((["a", "b"], [], ["c"]), start=1):
        plan_batch(lake, number, [land(lake, f"{name}.json", name.encode()) for name in names])
    builder = LogBuilder(lake.store, KEY).create()
    return builder.append([("x", 1, 1)], transaction=(ingest_app_id(KEY), 1)).append(
        [("y", 1, 1)], transaction=(ingest_app_id(KEY), 3)
    )


def land(lake: Lake, name: str, data: bytes) -> LandedFile:
    """A file lands when the table is made, and is read."""
    lake.store.put(PREFIX + name, data)
    if isinstance(lake.store, MemoryStore):
        lake.store.date(PREFIX + name, START_MS)
    else:
        os.utime(Path(lake.settings.root, PREFIX, name), (START_MS / 1_000, START_MS / 1_000))
    stored = lake.store.stat(PREFIX + name)
    assert stored is not None
    return LandedFile(
        name=name,
        size_bytes=len(data),
        modified_ms=stored.modified_ms,
        digest=blake2b(data, digest_size=16).hexdigest(),
    )


def plan_batch(lake: Lake, number: int, files: Sequence[LandedFile], **counts: int) -> None:
    PlannedBatches(lake.store, KEY, prefix=PREFIX).plan(
        Batch(number=number, files=tuple(files), prefix=PREFIX, **counts)
    )


def plan_landed(lake: Lake, table: Table) -> RetirementPlan:
    return retiring.plan_landed(
        lake, table, PlannedBatches(lake.store, KEY, prefix=PREFIX), lake.facts(KEY)
    )


class Retired(NamedTuple):
    plan: RetirementPlan
    failed: int
    file_count: int


def retire(lake: Lake, table: Table) -> Retired:
    before = len(lying(lake))
    done = retiring.retire(
        lake, table, PlannedBatches(lake.store, KEY, prefix=PREFIX), lake.facts(KEY)
    )
    return Retired(*done, file_count=before - len(lying(lake)))


def lying(lake: Lake) -> list[str]:
    return [file.name.removeprefix(PREFIX) for file in lake.store.list(PREFIX)]


class Clock:
    now_ms = 0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retiring, "now_ms", lambda: Clock.now_ms)


def later(*, days: float, minute: int = 2) -> None:
    """It is so long after a minute of the table's time."""
    Clock.now_ms = START_MS + minute * MINUTE_MS + round(days * DAY_MS)


def test_files_are_deleted_once_their_commit_is_old_enough(lake: Lake, log: LogBuilder) -> None:
    later(days=3, minute=1)
    assert (
        retire(lake, DELETED).plan.sentence
        == "2 loaded files (2 B) are deleted; 1 kept: loaded less than 3 days ago"
    )
    assert lying(lake) == ["c.json"]
    later(days=3)
    done = retire(lake, DELETED)
    assert (done.file_count, done.failed, lying(lake)) == (1, 0, [])
    again = retire(lake, DELETED)
    assert (again.file_count, again.plan.files) == (0, ())


def test_files_are_deleted_and_a_plan_alone_deletes_none(lake: Lake, log: LogBuilder) -> None:
    later(days=3)
    assert plan_landed(lake, DELETED).sentence == "3 loaded files (3 B) are deleted"
    assert lying(lake) == ["a.json", "b.json", "c.json"]
    retire(lake, DELETED)
    assert lying(lake) == []


def appended(log: LogBuilder, count: int = MANY) -> LogBuilder:
    for _ in range(count):
        log.append([(f"f{log.version}", 1, 1)])
    return log


def overwritten(log: LogBuilder) -> LogBuilder:
    return log.overwrite([("of somebody", 1, 1)])


def emptied(log: LogBuilder) -> LogBuilder:
    return log.overwrite([])


def restored(log: LogBuilder) -> LogBuilder:
    """To the version before batch 3, whose file leaves the table; none comes."""
    return log.commit(
        "RESTORE", {"remove": {"path": "y", "deletionTimestamp": 1, "dataChange": True, "size": 1}}
    )


def restored_by_a_slow_clock(log: LogBuilder) -> LogBuilder:
    """By the clock of its machine before batch 1."""
    remove = {"path": "y", "deletionTimestamp": 1, "dataChange": True, "size": 1}
    return log.commit("RESTORE", {"remove": remove}, committed_ms=START_MS)


@pytest.mark.parametrize("happens", [overwritten, emptied, restored, restored_by_a_slow_clock])
@pytest.mark.parametrize("commits_since", [0, MANY])
def test_files_stay_whose_rows_somebody_took_out_without_others_in_their_place_however_many_commits_ago(
    memory: Lake, happens: Callable[[LogBuilder], LogBuilder], commits_since: int
) -> None:
    log = three_batches(memory)
    appended(happens(log), commits_since).append([("z", 1, 1)], transaction=(ingest_app_id(KEY), 4))
    plan_batch(memory, 4, [land(memory, "d.json", b"d")])
    later(days=3, minute=log.version)
    assert retire(memory, DELETED).plan.kept == {REPLACED: 3}
    assert lying(memory) == ["a.json", "b.json", "c.json"]


def test_files_of_a_table_with_many_commits_go_and_its_older_ones_are_read_once_a_day(
    memory: Lake, asked: list[tuple[str, str]]
) -> None:
    log = appended(three_batches(memory)).append([("z", 1, 1)], transaction=(ingest_app_id(KEY), 4))
    plan_batch(memory, 4, [land(memory, "d.json", b"d")])
    later(days=3)
    asked.clear()
    assert (retire(memory, DELETED).file_count, lying(memory)) == (3, ["d.json"])
    older = ("read", log.commit_name(1))
    assert older in asked
    plan_batch(memory, 5, [land(memory, "e.json", b"e")])
    appended(log.append([("w", 1, 1)], transaction=(ingest_app_id(KEY), 5))).checkpoint()
    later(days=3.9)
    asked.clear()
    plan = retire(memory, DELETED).plan
    assert plan.kept == {
        "their batch is older than the commits that were read; older commits are read once a day": 2
    }
    assert ("read", log.commit_name(MANY)) not in asked
    assert len(plan_landed(memory, DELETED).files) == 2
    later(days=4)
    assert (retire(memory, DELETED).file_count, lying(memory)) == (2, [])


def test_where_the_log_has_forgotten_what_happened_files_are_never_deleted(
    memory: Lake,
) -> None:
    log = three_batches(memory).append([("z", 1, 1)]).checkpoint().append([("w", 1, 1)])
    log.forget_before(2)  # batch 3 is the first that is known
    later(days=9)
    assert (
        plan_landed(memory, DELETED).kept,
        retire(memory, DELETED).file_count,
        len(lying(memory)),
    ) == ({FORGOTTEN: 2}, 1, 2)
    assert lying(memory) == ["a.json", "b.json"]
    assert retire(memory, DELETED).file_count == 0


def test_what_the_log_still_tells_keeps_files_of_batches_that_it_has_forgotten(
    memory: Lake,
) -> None:
    log = (
        three_batches(memory)
        .overwrite([("of somebody", 1, 1)])
        .append([("z", 1, 1)], transaction=(ingest_app_id(KEY), 4))
    )
    plan_batch(memory, 4, [land(memory, "d.json", b"d")])
    log.checkpoint().append([("w", 1, 1)]).forget_before(3)
    later(days=9)
    assert retire(memory, DELETED).plan.kept == {REPLACED: 3}


def test_files_go_though_somebody_deleted_or_changed_rows_since(memory: Lake) -> None:
    log = three_batches(memory).rewrite(["x"], [("x2", 1, 1)]).delete(["y"])
    later(days=3, minute=log.version)
    assert (retire(memory, DELETED).file_count, lying(memory)) == (3, [])


def test_files_go_of_batches_that_a_person_said_to_have_arrived(memory: Lake) -> None:
    plan_batch(memory, 1, [land(memory, "a.json", b"a")], record_count=2)
    LogBuilder(memory.store, KEY).create().append(
        [], transaction=(ingest_app_id(KEY), 2), metrics={"numOutputRows": "0"}
    )
    later(days=3, minute=1)
    assert (retire(memory, DELETED).file_count, lying(memory)) == (1, [])


def test_a_backlog_is_listed_once_and_each_file_is_asked_about(
    memory: Lake, asked: list[tuple[str, str]]
) -> None:
    log = three_batches(memory)
    for number in range(4, 14):
        plan_batch(memory, number, [land(memory, f"{number}.json", b"d")])
        log.append([(f"n{number}", 1, 1)], transaction=(ingest_app_id(KEY), number))
    later(days=3, minute=13)
    asked.clear()
    assert (retire(memory, DELETED).file_count, lying(memory)) == (13, [])
    lists = [prefix for kind, prefix in asked if kind == "list"]
    assert (lists.count(PREFIX), lists.count(f"{KEY}/_delta_log/")) == (
        4,
        1,
    )  # three of the former, and the latter, are of this test
    assert len([name for kind, name in asked if kind == "stat" and name.startswith(PREFIX)]) == 13


FORGETS = 0
# The log of the quarantine tells of these batches (below 0 by what we write into a commit), `None` is somebody's RESTORE, `FORGETS` the end
# of older commits -> whether batch 4 stays.
TOLD: dict[str, tuple[list[int | None], bool]] = {
    "there is none": ([], True),
    "it is older": ([3], True),
    "it was made anew since": ([5], True),
    "it was restored since": ([4, None], True),
    "it was restored before": ([3, None, 4], False),
    "it has them": ([4, 5], False),
    "it has them by a commit of its own": ([5, -4], False),
    "it was restored so many commits ago": ([4, None, *[5] * MANY], True),
    "it has forgotten, and so may have them": ([4, 5, FORGETS], False),
}


@pytest.mark.parametrize("counts", [{"record_count": 2}, {"refused_count": 1}])
@pytest.mark.parametrize(("told", "stays"), TOLD.values(), ids=TOLD)
def test_files_with_lines_that_were_refused_stay_where_no_quarantine_has_them(
    lake: Lake, log: LogBuilder, told: list[int | None], stays: bool, counts: dict[str, int]
) -> None:
    log.append([("z", 1, 1)], transaction=(ingest_app_id(KEY), 4), metrics={"numOutputRows": "1"})
    plan_batch(lake, 4, [land(lake, "d.json", b"d")], **counts)
    quarantine = LogBuilder(lake.store, f"quarantine/{KEY}")
    if told:
        quarantine.create()
    for number in told:
        if number is None:
            back = {
                "path": "back",
                "partitionValues": {},
                "size": 1,
                "modificationTime": START_MS,
                "dataChange": True,
            }
            quarantine.commit("RESTORE", {"add": back}).commit(
                "DELETE", {"remove": {**back, "deletionTimestamp": START_MS}}
            )
        elif number == FORGETS:
            quarantine.checkpoint().forget_before(2)
        elif number < 0:
            quarantine.commit("WRITE", user_metadata=f'{{"batch":{-number}}}')
        else:
            quarantine.append([], transaction=(f"lakehouse/quarantine/{KEY}", number))
    later(days=9)
    left = ["d.json"] * stays
    kept = retire(lake, DELETED).plan.kept
    assert (lying(lake), kept) == (
        left,
        dict.fromkeys(
            ["some of their lines were refused and are not in quarantine"] * len(left), 1
        ),
    )


def test_a_file_that_cannot_be_deleted_is_told_of_and_goes_with_a_later_run(
    lake: Lake, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(days=3)
    real = DiskStore.delete_each

    def denied(store: DiskStore, names: Sequence[str]) -> Mapping[str, str]:
        kept = [name for name in names if name.endswith("b.json")]
        return {
            **real(store, [name for name in names if name not in kept]),
            **dict.fromkeys(kept, "AccessDenied"),
        }

    with monkeypatch.context() as patch:
        patch.setattr(DiskStore, "delete_each", denied)
        done = retire(lake, DELETED)
    assert (done.file_count, done.failed, lying(lake)) == (2, 1, ["b.json"])
    assert (retire(lake, DELETED).plan.sentence, lying(lake)) == (
        "1 loaded file (1 B) is deleted",
        [],
    )


MANIFEST: dict[str, tuple[dict[str, Any], str]] = {
    "without a digest": (
        {"digest": ""},
        "it is unknown whether they have changed since their load",
    ),
    # An older copy of the table was put in the place of one that was begun anew: its batch 4 is another one.
    "of a file that landed after its commit": (
        {"modified_ms": START_MS + 2 * DAY_MS},
        "they landed after the commit of their batch, so the log belongs to another table",
    ),
}


@pytest.mark.parametrize(("told", "why"), MANIFEST.values(), ids=MANIFEST)
def test_a_file_stays_by_its_manifest(
    lake: Lake, log: LogBuilder, told: dict[str, Any], why: str
) -> None:
    file = replace(land(lake, "d.json", b"d"), **told)
    os.utime(
        Path(lake.settings.root, PREFIX, "d.json"),
        (file.modified_ms / 1_000, file.modified_ms / 1_000),
    )
    plan_batch(lake, 4, [file])
    log.append([("z", 1, 1)], transaction=(ingest_app_id(KEY), 4))
    later(days=100)
    assert (retire(lake, DELETED).plan.kept, lying(lake)) == ({why: 1}, ["d.json"])


@pytest.mark.parametrize("link", ["landing", "landing/orders"])
def test_files_behind_a_link_stay(lake: Lake, log: LogBuilder, link: str) -> None:
    folder, elsewhere = Path(lake.settings.root, link), Path(lake.settings.root, "elsewhere")
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    later(days=9)
    with pytest.raises(Refused, match="lies behind a link, so its loaded files are kept"):
        retire(lake, DELETED)
    assert len(lying(lake)) == 3


def test_by_default_every_file_stays(lake: Lake, log: LogBuilder) -> None:
    later(days=1_000)
    kept = replace(DELETED, source=Landing(prefix=PREFIX, format="json", schema="id BIGINT"))
    assert (retire(lake, kept).plan.files, plan_landed(lake, kept).files, len(lying(lake))) == (
        (),
        (),
        3,
    )


def changed(lake: Lake) -> None:
    lake.store.put(f"{PREFIX}a.json", b"other")


def replaced(lake: Lake) -> None:
    """Of the same size; on a disk the time tells it."""
    lake.store.put(f"{PREFIX}a.json", b"z")
    Path(lake.settings.root, PREFIX, "a.json").touch()


def quarantined(lake: Lake) -> None:
    buffer = BytesIO()
    pq.write_table(pa.table({"source_file": [f"{PREFIX}a.json"], "line": [1]}), buffer)
    LogBuilder(lake.store, f"quarantine/{KEY}").create().append(
        [("q.parquet", len(buffer.getvalue()), 1)]
    )
    lake.store.put(f"quarantine/{KEY}/q.parquet", buffer.getvalue())


STAY: dict[str, tuple[Callable[[Lake], None], str]] = {
    "changed": (changed, "it is unknown whether they have changed since their load"),
    "replaced": (replaced, "it is unknown whether they have changed since their load"),
    "in quarantine": (quarantined, "they, or lines of them, are in quarantine"),
}


@pytest.mark.parametrize(("happens", "why"), STAY.values(), ids=STAY)
def test_a_file_stays(
    lake: Lake, log: LogBuilder, happens: Callable[[Lake], None], why: str
) -> None:
    later(days=3)
    happens(lake)
    assert plan_landed(lake, DELETED).kept == {why: 1}
    retire(lake, DELETED)
    assert lying(lake) == ["a.json"]


def put_back(log: LogBuilder) -> None:
    """To where batch 3 was not in the table yet."""
    log.lose(2)


def put_back_and_written(log: LogBuilder) -> None:
    """The same, and another commit stands in the place of that of batch 3."""
    log.lose(2)
    log.version = 1
    log.append([("of somebody", 1, 1), ("more", 1, 1)])


@pytest.mark.parametrize(
    ("to_files", "to_the_log", "left"),
    [
        *((happens, None, ["a.json"]) for happens, _ in STAY.values()),
        (None, overwritten, ["a.json", "b.json", "c.json"]),
        (None, put_back, ["c.json"]),
        (None, put_back_and_written, ["c.json"]),
    ],
)
def test_what_happens_between_plan_and_deletion_is_seen_by_the_last_look(
    lake: Lake,
    log: LogBuilder,
    monkeypatch: pytest.MonkeyPatch,
    to_files: Any,
    to_the_log: Any,
    left: list[str],
) -> None:
    real = retiring._is_a_day_old

    def happens_after_the_plan(*arguments: Any) -> bool:
        real_plan = retiring._make_plan

        def plan(*of: Any, **options: Any) -> Any:
            found = real_plan(*of, **options)
            monkeypatch.setattr(retiring, "_make_plan", real_plan)
            to_files(lake) if to_files else to_the_log(log)
            return found

        monkeypatch.setattr(retiring, "_make_plan", plan)
        return real(*arguments)

    monkeypatch.setattr(retiring, "_is_a_day_old", happens_after_the_plan)
    later(days=3)
    retire(lake, DELETED)
    assert lying(lake) == left


def test_a_file_of_a_batch_that_the_log_does_not_know_stays(lake: Lake, log: LogBuilder) -> None:
    later(days=100)
    plan_batch(lake, 4, [land(lake, "d.json", b"d")])
    assert plan_landed(lake, DELETED).kept == {"the table's log has no record of their batch": 1}
    lake.store.delete([file.name for file in lake.store.list(KEY)])
    assert plan_landed(lake, DELETED).kept == {"the table's log has no record of their batch": 4}
    retire(lake, DELETED)
    assert len(lying(lake)) == 4


def test_a_file_of_another_etag_stays_though_its_size_and_time_are_those_of_the_one_that_was_loaded(
    lake: Lake, log: LogBuilder
) -> None:
    class Bucket(DiskStore):
        """Every file has an etag, as on S3."""

        asked = "another"

        def list(self, prefix: str) -> Any:
            return [replace(file, etag="now") for file in super().list(prefix)]

        def stat(self, name: str) -> Any:
            return (found := super().stat(name)) and replace(found, etag=self.asked)

    later(days=100)
    plan_batch(
        lake,
        4,
        [
            replace(land(lake, "d.json", b"d"), etag="then"),
            replace(land(lake, "e.json", b"e"), etag="now"),
        ],
    )
    log.append([("z", 1, 1)], transaction=(ingest_app_id(KEY), 4))
    bucket = replace(lake, store=Bucket(Path(lake.settings.root)))
    retire(bucket, DELETED)
    assert lying(lake) == ["d.json", "e.json"]  # of the others the manifest has no etag
    Bucket.asked = "now"
    retire(bucket, DELETED)
    assert lying(lake) == ["d.json"]


def test_a_run_that_dies_before_it_deletes_leaves_the_files_to_the_next(
    lake: Lake, log: LogBuilder
) -> None:
    later(days=3)
    with killed_at(DiskStore, "delete_each", "before"):
        retire(lake, DELETED)
    assert len(lying(lake)) == 3
    with killed_at(DiskStore, "delete_each", "after"):
        retire(lake, DELETED)
    assert lying(lake) == ["c.json"]
    retire(lake, DELETED)
    assert lying(lake) == []


def test_loaded_files_are_not_taken_away_from_another_table() -> None:
    from types import ModuleType

    module = ModuleType("tables")
    assert DELETED.source is not None
    other = Landing(prefix=f"{PREFIX}more/", format="json", schema="id BIGINT")
    module.__dict__.update(
        one=DELETED, other=Table(key="bronze/more", source=other, write=Append())
    )
    with pytest.raises(
        Refused,
        match=r"Table bronze/orders: after_load is 'delete', but bronze/more also loads from landing/orders/more/",
    ):
        module_tables([module])
    module.__dict__.update(one=replace(DELETED, source=replace(DELETED.source, after_load="keep")))
    assert len(module_tables([module])) == 2
