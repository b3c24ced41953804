"""The plan of a move: what goes, what it costs, and each refusal with what to do."""

from dataclasses import replace

import pytest

from lakehouse.core.declaration.prices import Prices
from lakehouse.core.errors import Refused
from lakehouse.core.evolution.move import MoveOutcome, MovePlan, plan_of_move
from lakehouse.core.evolution.move_facts import MovedFiles, MoveFacts, MoveRecord

OLD, NEW = "bronze/order", "bronze/orders"
GIB = 1024**3
FACTS = MoveFacts(
    old_key=OLD,
    new_key=NEW,
    moved=(
        MovedFiles(kind="data files", count=2_000, size_bytes=10 * GIB),
        MovedFiles(kind="log", count=31, size_bytes=4_096),
        MovedFiles(kind="quarantine", count=0, size_bytes=0),
    ),
    old_table=("id-1", 30),
    declared={NEW, "silver/orders"},
    landed=("landing/orders/",),
    readers=("silver/orders",),
)
BEGUN = MoveRecord(old_key=OLD, new_key=NEW, table_id="id-1", version=30, started_ms=1)
COPIED = replace(BEGUN, is_copied=True)
S3_LIMIT = 5 * GIB


def plan(facts: MoveFacts) -> MovePlan:
    """The plan, which there is."""
    found = plan_of_move(facts)
    assert found is not None
    return found


def test_a_plan_says_what_moves_and_what_that_costs() -> None:
    planned = plan(FACTS)
    assert planned.sentence == (
        "bronze/order moves to bronze/orders: 2031 objects (10 GiB: data files 2000, log 31), about"
        " 123 s and 0.0075 USD. Versions, landed batches and quarantine stay. Other programs that"
        " read the old folder must use the new one"
    )
    assert (planned.count, planned.requests, planned.is_begun) == (2_031, 0, False)
    assert planned.readers == ("silver/orders",)
    assert planned.checked(keep_old=False) is planned


def test_on_s3_each_object_is_a_request_and_older_versions_lose_their_times() -> None:
    facts = replace(FACTS, on_s3=True, limit_bytes=S3_LIMIT)
    planned = plan_of_move(facts, Prices(usd_per_1000_puts=1, usd_per_vcpu_hour=0))
    assert planned is not None
    assert planned.requests == 2_031 + 7 * 3
    assert planned.usd == pytest.approx(2.052)
    assert "older versions are read by number, not by timestamp" in planned.sentence


def test_the_commits_that_a_move_adds_are_counted_unless_it_has_begun() -> None:
    kinds = ("landed batches", "quarantine")
    landed = replace(FACTS, moved=tuple(MovedFiles(kind=k, count=9, size_bytes=1) for k in kinds))
    on_s3 = plan(replace(landed, on_s3=True))
    assert (plan(landed).added_count, on_s3.added_count) == (12, 6)
    assert on_s3.requests == 18 + 6 + 7
    assert plan(replace(landed, record=BEGUN)).added_count == 0


def test_nothing_is_planned_without_an_old_table_or_after_a_finished_move() -> None:
    assert plan_of_move(replace(FACTS, old_table=None)) is None
    assert plan_of_move(replace(FACTS, record=replace(COPIED, is_finished=True))) is None


REFUSALS: dict[str, tuple[MoveFacts, str]] = {
    "adopted": (
        replace(FACTS, adopted={OLD}),
        "other programs write bronze/order, an adopted table. Leave formerly= out",
    ),
    "declared": (
        replace(FACTS, declared={OLD, NEW}),
        "bronze/order is still declared. Either remove that declaration, or formerly= of bronze/orders",
    ),
    "landing below": (
        replace(FACTS, landed=("bronze/order/in/",)),
        "files land in bronze/order/in/, which overlaps a folder of the move. Use a landing prefix outside of bronze/order and bronze/orders",
    ),
    "landing above": (
        replace(FACTS, landed=("bronze/",)),
        "files land in bronze/, which overlaps a folder of the move. Use a landing prefix outside of bronze/order and bronze/orders",
    ),
    "another table": (
        replace(FACTS, new_table=("id-2", 0)),
        "bronze/orders has a table already. Use a key without a table, or leave formerly= out",
    ),
    "a copy": (
        replace(FACTS, new_table=("id-1", 3)),
        (
            "bronze/orders is a copy of bronze/order that no move has made. Use a key without a table,"
            " or leave formerly= out"
        ),
    ),
    "files": (
        replace(FACTS, new_count=3),
        (
            "bronze/orders has 3 objects that no move has copied. Use a key without files, or leave formerly="
            " out"
        ),
    ),
    "a problem": (replace(FACTS, old_table=None, problem="its log is damaged. Use a copy"), "its"),
    "inner": (
        replace(FACTS, inner=("bronze/order/x",)),
        "its folder also has other tables: bronze/order/x. Use keys outside of bronze/order for them",
    ),
    "too large": (
        replace(FACTS, largest_bytes=S3_LIMIT + GIB, limit_bytes=S3_LIMIT),
        (
            "the largest file has 6 GiB, but S3 copies files of at most 5 GiB. Use the earlier key again, without"
            " formerly="
        ),
    ),
    "another move": (
        replace(FACTS, record=replace(BEGUN, old_key="bronze/o")),
        (
            "a move of bronze/o to bronze/orders has begun. Use formerly='bronze/o' until that"
            " move is finished"
        ),
    ),
    "replaced": (
        replace(FACTS, record=BEGUN, old_table=("id-9", 1)),
        (
            "the table at bronze/order was replaced after the move began. Use a copy of the lake to"
            " restore it"
        ),
    ),
    "copy lost": (
        replace(FACTS, record=COPIED, old_table=None, new_table=("id-1", 29)),
        (
            "it was copied, but bronze/orders no longer has version 30 of the table with the id id-1. Use"
            " a copy of the lake to restore it"
        ),
    ),
}


@pytest.mark.parametrize(("facts", "why"), REFUSALS.values(), ids=REFUSALS)
def test_each_refusal_says_what_to_do(facts: MoveFacts, why: str) -> None:
    planned = plan(facts)
    expected = f"move of bronze/order to bronze/orders: {why}"
    assert planned.sentence == planned.refusal
    assert planned.refusal.startswith(expected) if why == "its" else planned.refusal == expected
    with pytest.raises(Refused):
        planned.checked(keep_old=True)


def test_an_earlier_run_s_move_goes_on_whatever_it_left_at_the_new_key() -> None:
    begun = plan(replace(FACTS, record=BEGUN, new_count=900))
    copied = plan(
        replace(FACTS, record=COPIED, old_table=None, new_table=("id-1", 31), new_count=2_031)
    )
    assert (begun.refusal, copied.refusal) == ("", "")
    assert "an earlier run began this move" in begun.sentence and copied.is_begun


def test_a_clone_that_may_read_its_files_keeps_the_old_folder() -> None:
    planned = plan(replace(FACTS, borrowers=("silver/clone",)))
    assert planned.refusal == ""
    assert planned.checked(keep_old=True) is planned
    with pytest.raises(Refused, match=r"silver/clone may read files of bronze/order .* --keep-old"):
        planned.checked(keep_old=False)


def test_an_outcome_is_compared_with_its_plan() -> None:
    outcome = MoveOutcome(
        plan=plan(FACTS),
        count=2_032,
        size_bytes=10 * GIB,
        deleted=2_032,
        requests=0,
        seconds=61.5,
        usd=0.002,
    )
    assert outcome.sentence == (
        "bronze/order is now bronze/orders: 2032 objects copied (10 GiB) in 61.5 s; 2032 old"
        " objects deleted"
    )
    assert [(each.name, each.predicted, each.actual) for each in outcome.figures][:2] == [
        ("objects", 2_031, 2_032),
        ("bytes", 10 * GIB + 4_096, 10 * GIB),
    ]
    kept = replace(outcome, deleted=0, kept_old=True)
    assert kept.sentence.endswith(
        "the folder of bronze/order was kept, but no run writes it any more"
    )
    assert outcome.plan.as_json()["kinds"]["log"] == {"objects": 31, "bytes": 4_096}
