"""When landed files make a batch, and what they wait for."""

from dataclasses import replace

import pytest

from lakehouse.base.reasons import Reason
from lakehouse.compact.plan.target_size import count_outputs
from lakehouse.declare.landing import Landing
from lakehouse.declare.write_modes import Append
from lakehouse.delta.snapshot import DataFile
from lakehouse.land.plan import choose_files
from lakehouse.land.plan.batches import LandedFile, Ledger
from lakehouse.land.plan.choose_files import BatchPlan, choose_batch

LANDING = Landing(
    prefix="landing/o/",
    format="json",
    schema="id STRING",
    release_files=3,
    release_bytes=1024,
    release_minutes=2,
)
LEDGER = Ledger(newest=None, seen={})
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
    *files: tuple[int, float],
    landing: Landing = LANDING,
    now_ms: int | None = 600_000,
) -> BatchPlan:
    return choose_batch(listing(*files), LEDGER, landing, Append(), now_ms=now_ms)


@pytest.mark.parametrize(("files", "why"), RELEASED.values(), ids=RELEASED)
def test_files_that_wait_are_released(files: list[tuple[int, float]], why: str | None) -> None:
    found = plan(*files)
    assert (found.reason, found.batch is None) == (
        (Reason.BATCH_READY, False) if why else (Reason.BATCH_WAITING, True)
    )
    assert found.sentence.endswith(why or "min")


def test_the_sentence_says_what_files_wait_for() -> None:
    assert plan((1, 1)).sentence == (
        "1 landed file (1 B) must wait for more: a batch is released at 3 files or 1 KiB, or 1970-01-01 00:11 UTC, "
        "when the oldest has waited 2 min"
    )


def test_a_load_by_hand_does_not_wait() -> None:
    assert plan((1, 0), now_ms=None).reason is Reason.BATCH_READY


def test_without_a_policy_no_file_waits() -> None:
    found = plan((1, 0), landing=replace(LANDING, release_files=1, release_minutes=0))
    assert found.sentence == "batch 1 has 1 landed file (1 B), 0 files set aside"


def test_a_batch_takes_no_more_than_it_may_and_says_how_many_wait_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
