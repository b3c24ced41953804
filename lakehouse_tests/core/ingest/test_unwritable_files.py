"""Files that cannot be written are found in few tries, and leave their batch with each of them named."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, LandedFile, SetAside, set_aside
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.core.ingest.unwritable_files import (
    AT_ONCE,
    PROBES,
    any_can_be_written,
    failing_files,
    without_failing,
)


def landed(*names: str) -> tuple[LandedFile, ...]:
    return tuple(
        LandedFile(
            name=name, size_bytes=10, modified_ms=7, digest=f"digest {name}", etag=f"etag {name}"
        )
        for name in names
    )


class Trial:
    """Some files that fail, and how often anything was tried."""

    def __init__(self, bad: Sequence[LandedFile]) -> None:
        self.bad, self.tries = bad, 0

    def why_not(self, group: Sequence[LandedFile]) -> str | None:
        self.tries += 1
        return next((f"{file.name} is bad" for file in group if file in self.bad), None)


@given(count=st.integers(1, 200), data=st.data())
@settings(deadline=None)
def test_exactly_the_files_that_fail_alone_are_found_in_tries_like_their_number_times_log2_of_all(
    count: int, data: st.DataObject
) -> None:
    files = landed(*map(str, range(count)))
    bad = data.draw(st.lists(st.sampled_from(files), max_size=5, unique=True))
    trial = Trial(bad)
    assert failing_files(files, trial.why_not) == {file: f"{file.name} is bad" for file in bad}
    assert (
        trial.tries <= 1 + 2 * len(bad) * math.ceil(math.log2(count))
        if count > 1
        else trial.tries == 1
    )


def test_where_very_many_fail_some_are_found_at_once() -> None:
    files = landed(*map(str, range(2_000)))
    trial = Trial(files)
    assert list(failing_files(files, trial.why_not)) == list(files[:AT_ONCE])
    assert trial.tries < 2 * AT_ONCE + math.ceil(math.log2(len(files)))


def test_files_that_fail_only_together_are_not_set_aside() -> None:
    assert (
        failing_files(landed("a", "b"), lambda group: "together" if len(group) > 1 else None) == {}
    )


@pytest.mark.parametrize("count", [1, 7, PROBES, PROBES + 1, 2_000])
def test_a_few_tries_tell_that_everything_fails(count: int) -> None:
    files = landed(*map(str, range(count)))
    everything = Trial(files)
    assert not any_can_be_written(files, everything.why_not)
    assert 1 <= everything.tries <= PROBES
    for half in (files[: count // 2], files[::2] if count > 1 else ()):
        assert any_can_be_written(files, Trial(half).why_not)


FOREIGN = SetAside(name="x.pdf", size_bytes=1, why="foreign")
DAMAGED = SetAside(name="d.gz", size_bytes=1, why="its gzip is damaged", is_quarantined=True)
OLDER = SetAside(name="0", size_bytes=1, why="the name a is later, so that file replaces it")


def planned(*names: str, aside: tuple[SetAside, ...] = (FOREIGN, DAMAGED)) -> Batch:
    return Batch(
        number=3,
        files=landed(*names),
        set_aside=aside,
        prefix="p/",
        part_count=2,
        record_count=9,
    )


def test_a_batch_loses_the_files_that_fail_and_names_them_as_they_were_read() -> None:
    batch = planned("a", "b", "c")
    smaller = without_failing(
        batch, {batch.files[1]: "n is 0"}, failing_records=4, is_overwrite=False, has_table=True
    )
    aside = set_aside(batch.files[1], "its rows cannot be written: n is 0", True)
    assert (smaller.files, smaller.set_aside) == (landed("a", "c"), (FOREIGN, DAMAGED, aside))
    assert (smaller.number, smaller.part_count, smaller.record_count, smaller.isolated) == (
        3,
        2,
        5,
        (("b",),),
    )
    again = without_failing(
        smaller,
        dict.fromkeys(landed("a", "c"), "y"),
        failing_records=5,
        is_overwrite=False,
        has_table=True,
    )
    assert (again.files, again.record_count, again.isolated) == ((), 0, (("b",), ("a", "c")))
    assert [each.name for each in again.quarantined] == ["d.gz", "b", "a", "c"]


def test_columns_that_came_with_files_of_which_none_is_loaded_go_where_no_table_has_them() -> None:
    column = AddedColumn(name="id", type="BIGINT", file="p/a", policy="infer", at_ms=7)
    batch = replace(planned("a", "b"), columns=(column,))

    def columns(*names: str, has_table: bool) -> tuple[object, ...]:
        smaller = without_failing(
            batch,
            dict.fromkeys(landed(*names), "x"),
            failing_records=1,
            is_overwrite=False,
            has_table=has_table,
        )
        return smaller.columns, smaller.part_count

    assert columns("a", "b", has_table=False) == ((), 0)
    assert columns("a", "b", has_table=True) == ((column,), 0)
    assert columns("a", has_table=False) == ((column,), 2)


def test_an_overwrite_without_its_file_lets_go_of_those_that_it_had_replaced() -> None:
    batch = planned("a", aside=(DAMAGED, OLDER))
    smaller = without_failing(
        batch, {batch.files[0]: "x"}, failing_records=9, is_overwrite=True, has_table=True
    )
    assert [each.name for each in smaller.set_aside] == ["d.gz", "a"]


@pytest.mark.parametrize(
    ("failing", "records"),
    [({}, 0), (dict.fromkeys(landed("other"), "x"), 1), (dict.fromkeys(landed("a"), "x"), 10)],
)
def test_what_is_not_of_the_batch_is_not_taken_out_of_it(
    failing: dict[LandedFile, str], records: int
) -> None:
    with pytest.raises(
        Broken,
        match=r"batch 3: cannot remove \d files? with \d+ records? from its 2 files with 9 records",
    ):
        without_failing(
            planned("a", "b"), failing, failing_records=records, is_overwrite=False, has_table=True
        )
