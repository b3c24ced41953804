"""What a commit says of an inventory, and whether an inventory can be relied on."""

import json
from typing import Any

import pytest

from lakehouse.base.stored_objects import Inventory
from lakehouse.delta.commits import Commit, Commits
from lakehouse.vacuum.inventory.plan import (
    Reconciliation,
    TableShares,
    assess_missing,
    assess_readable,
)
from lakehouse.vacuum.inventory.run import inventories_in, inventory_record

NOW, HOUR, DAY = 1_795_000_000_000, 3_600_000, 86_400_000


def one(count: int, size: int, name: str = "daily/x") -> Inventory:
    return Inventory(name=name, created_ms=NOW - HOUR, object_count=count, size_bytes=size)


def recorded(inventory: Inventory) -> str:
    return json.dumps(inventory_record(inventory))


def test_what_commits_say_of_loads_is_read_back_newest_first_and_others_are_passed_over() -> None:
    texts = [
        recorded(one(1, 2, "daily/a")),
        None,
        "{",
        '{"inventory": {"name": "x"}}',
        '{"inventory": {"name": "a", "created_ms": null, "object_count": null, "size_bytes": "7"}}',
        '{"plan": 1}',
        "[]",
        recorded(one(3, 4, "daily/b")).replace("}}", ',"of_a_later_program":1}}'),
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
    assert list(inventories_in(Commits(table="t", commits=tuple(commits)))) == [
        one(3, 4, "daily/b"),
        one(1, 2, "daily/a"),
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"missing": tuple("abcdefg")},
            "the inventory lacks 7 live files: t/a, t/b, t/c and 4 more",
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
