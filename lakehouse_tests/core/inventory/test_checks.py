"""What a commit says of a load, whether an inventory can be relied on, and which of our old scans go."""

from datetime import UTC, datetime
from typing import Any

import pytest

from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.inventory.checks import (
    Load,
    assess_complete,
    assess_fresh,
    assess_missing,
    assess_plausible,
    assess_readable,
    loads_of,
)
from lakehouse.core.inventory.expired_scans import expired
from lakehouse.core.inventory.reconcile import Reconciliation, TableShares
from lakehouse.core.inventory.report_manifest import allowed_hours

NOW, HOUR, DAY = 1_795_000_000_000, 3_600_000, 86_400_000
DATA = "data/00000000-0000-0000-0000-000000000000.parquet"


def stamp(days_old: float, form: str = "%Y-%m-%dT%H-%MZ") -> str:
    return format(datetime.fromtimestamp((NOW - days_old * DAY) / 1000, tz=UTC), form)


@pytest.mark.parametrize(
    ("name", "days_old", "goes"),
    [
        (f"{stamp(15)}/manifest.checksum", 15, True),
        (f"{stamp(15)}/manifest.json", 15, True),
        (f"hive/dt={stamp(15, '%Y-%m-%d-%H-%M')}/symlink.txt", 15, True),
        (f"{stamp(13)}/manifest.json", 13, False),
        (f"hive/dt={stamp(13, '%Y-%m-%d-%H-%M')}/symlink.txt", 13, False),
        (DATA, 16, True),
        (DATA, 14.5, False),
        ("data/somebody.parquet", 99, False),
        (f"{stamp(99)}/notes.txt", 99, False),
        (f"{stamp(99)}/deeper/manifest.json", 99, False),
        ("9999-99-99T99-99Z/manifest.json", 99, False),
        ("notes", 99, False),
    ],
)
def test_of_our_old_scans_only_what_they_wrote_goes(name: str, days_old: float, goes: bool) -> None:
    file = name, NOW - round(days_old * DAY)
    assert expired([file], newest=stamp(0), now_ms=NOW) == ((name,) if goes else ())
    assert (
        expired([file], newest=stamp(30), now_ms=NOW)
        == expired([file], newest=None, now_ms=NOW)
        == ()
    )


def test_a_report_loses_its_checksum_first() -> None:
    names = [f"{stamp(30)}/manifest.{kind}" for kind in ("json", "checksum")]
    assert expired([(name, 0) for name in names], newest=stamp(0), now_ms=NOW)[0].endswith(
        "checksum"
    )


def load(count: int, size: int, report: str = "daily/x") -> Load:
    return Load(report=report, created_ms=NOW - HOUR, object_count=count, size_bytes=size)


def test_what_commits_say_of_loads_is_read_back_newest_first_and_others_are_passed_over() -> None:
    texts = [
        load(1, 2, "daily/a").as_text(),
        None,
        "{",
        '{"inventory": {"report": "x"}}',
        '{"inventory": {"report": "a", "created_ms": null, "object_count": null, "size_bytes": "7"}}',
        '{"plan": 1}',
        "[]",
        load(3, 4, "daily/b").as_text().replace("}}", ',"of_a_later_program":1}}'),
    ]
    commits = [
        Commit(
            version=number,
            committed_ms=NOW,
            operation="WRITE",
            changed_data=True,
            user_metadata=text,
        )
        for number, text in enumerate(texts)
    ]
    assert list(loads_of(Commits(table="t", commits=tuple(commits)))) == [
        load(3, 4, "daily/b"),
        load(1, 2, "daily/a"),
    ]


@pytest.mark.parametrize(
    ("now", "before", "ok"),
    [
        ((500, 500), (1000, 1000), True),
        ((499, 1000), (1000, 1000), False),
        ((1000, 499), (1000, 1000), False),
        ((0, 0), (1000, 1000), False),
        ((5000, 5000), (1000, 1000), True),
        ((1, 1), (99, 1000), True),
        ((1000, 0), (1000, 0), True),
        ((1, 1), None, True),
    ],
)
def test_a_bucket_does_not_lose_half_over_night_in_silence(now: Any, before: Any, ok: bool) -> None:
    verdict = assess_plausible(
        load(*now), None if before is None else load(*before, report="daily/before")
    )
    assert verdict.ok == ok and ("is gone" in verdict.sentence) == (not ok)


def test_rows_that_are_not_in_the_table_are_told() -> None:
    assert assess_complete(load(3, 1), 3).ok
    assert not assess_complete(load(3, 1), None).ok
    assert (
        "the inventory table has 2 rows of this report" in assess_complete(load(3, 1), 2).sentence
    )


@pytest.mark.parametrize(
    ("before_days", "own", "hours"),
    [
        (None, True, 26),
        (7, True, 26),
        (None, False, 50),
        (1, False, 50),
        (0.1, False, 50),
        (7, False, 194),
        (30, False, 194),
    ],
)
def test_a_report_may_be_as_old_as_its_rhythm_allows(
    before_days: float | None, own: bool, hours: float
) -> None:
    before_ms = None if before_days is None else NOW - round(before_days * DAY)
    assert allowed_hours(NOW, before_ms, own=own) == hours
    assert assess_fresh(load(1, 1), allowed=1, now_ms=NOW).ok
    assert not assess_fresh(load(1, 1), allowed=1, now_ms=NOW + HOUR).ok


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"missing": tuple("abcdefg")},
            "the report lacks 7 live files: t/a, t/b, t/c, t/d, t/e, …",
        ),
        ({"problem": "why"}, "not checked, because the log cannot be read: t"),
    ],
)
def test_files_that_are_missing_or_may_be_are_an_error(more: dict[str, Any], said: str) -> None:
    table: dict[str, Any] = {"table": "t", "version": 1, "retention_ms": None, "shares": ()}
    verdict = assess_missing(Reconciliation(tables=(TableShares(**table, **more),), unclaimed=()))
    assert (verdict.ok, verdict.is_error) == (False, True) and said in verdict.sentence
    assert assess_missing(Reconciliation(tables=(TableShares(**table),), unclaimed=())).ok


def test_a_live_file_in_an_archive_fails_with_the_commands_that_restore_it() -> None:
    shares = TableShares(
        table="a/t", version=1, retention_ms=0, shares=(), archived=("d=a b/x", "y")
    )
    found = Reconciliation(tables=(shares,), unclaimed=())
    result = assess_readable(found, address="s3://bucket/lake")
    assert (result.ok, result.is_error, result.numbers) == (False, True, {"archived_files": 2})
    assert result.sentence == (
        "2 live files in an archive: a/t/d=a b/x, a/t/y. First disable the lifecycle rule or the "
        "archive configuration that moves files there. Then, for each file, use: aws s3api "
        "restore-object --bucket bucket --key 'lake/a/t/d=a b/x' --restore-request Days=7; hours "
        "later, after the restore, use: aws s3 cp 's3://bucket/lake/a/t/d=a b/x' "
        "'s3://bucket/lake/a/t/d=a b/x' --storage-class STANDARD --force-glacier-transfer"
    )
    assert assess_readable(Reconciliation(tables=(), unclaimed=()), address="s3://b").ok
