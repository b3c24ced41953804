"""Versions that are named survive a vacuum; no Spark: Delta's answer is taken to be our plan."""

import pytest

from lakehouse.base.errors import Refused
from lakehouse.base.paths import vector_path
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import vacuum_records
from lakehouse_tests.log_builder import LogBuilder, vector_of
from lakehouse_tests.support.faults import (
    KEY,
    PAST,
    age,
    carried_out,
    files,
    paths,
    planned,
    report,
)
from lakehouse_tests.support.vacuums import table_of
from lakehouse_tests.vacuum.test_meanwhile import MODES, lake, story

__all__ = ["lake", "story"]  # fixtures


def past(mode: str) -> list[str]:
    """What a vacuum of this mode deletes if nothing is kept."""
    return PAST[:1] if mode == "LITE" else PAST


@pytest.mark.parametrize("mode", MODES)
def test_the_files_of_a_named_version_stay_in_every_mode(lake: Lake, mode: str) -> None:
    assert paths(planned(lake, mode)) == past(mode)
    table = table_of(KEY, keep_versions=(1,))
    found = planned(lake, mode, table)
    assert paths(found) == [name for name in past(mode) if name != "d=1/gone"]
    assert "; 1 file past the retention will stay for kept versions" in found.sentence


@pytest.mark.parametrize("mode", MODES)
def test_a_vector_of_a_kept_version_stays(lake: Lake, story: LogBuilder, mode: str) -> None:
    """The version reads the file together with its vector of that time."""
    story.delete_rows({"d=1/live": 1}).delete_rows({"d=1/live": 2})
    first, second = sorted(name for name in map(_vector_name, (1, 2)))
    for name in (first, second):
        lake.store.put(f"{KEY}/{name}", b"v")
    age(lake)
    report(lake)
    assert first in paths(planned(lake, mode))
    kept = planned(lake, mode, table_of(KEY, keep_versions=(3,)))
    assert first not in paths(kept)
    assert "d=1/gone" in paths(kept)


def _vector_name(number: int) -> str:
    place = vector_of(f"{number:020}")["pathOrInlineDv"]
    name = vector_path(f"u{place}@1")
    assert name is not None
    return name


def test_what_was_kept_goes_once_its_version_is_not_named(lake: Lake, story: LogBuilder) -> None:
    """No listing finds it again, and its removal may be older than the last vacuum."""
    named = table_of(KEY, keep_versions=(1,))
    plan = planned(lake, "LITE", named)
    gone, work = carried_out(lake, plan, table=named)
    assert gone == set()
    work.record(plan, has_ended_well=True)
    [record] = vacuum_records(lake, KEY)
    assert (record.kept, record.is_complete) == (["d=1/gone"], True)
    assert paths(planned(lake, "LITE", named)) == []
    story.append([("d=3/new", 1)]).checkpoint().forget_before(3)
    assert paths(planned(lake, "LITE")) == ["d=1/gone"]


@pytest.mark.parametrize("mode", MODES)
def test_an_unreadable_kept_version_stops_vacuums(lake: Lake, story: LogBuilder, mode: str) -> None:
    """Its files are unknown, and the unknown is never deleted; the way out is to give it up."""
    story.checkpoint().lose(1)
    age(lake)
    named = r"version 1 is named in Vacuum.keep_versions, but .*remove 1 from Vacuum.keep_versions"
    with pytest.raises(Refused, match=named):
        planned(lake, mode, table_of(KEY, keep_versions=(1,)))
    assert {*PAST} <= files(lake)


def test_a_version_that_does_not_exist_yet_keeps_nothing(lake: Lake) -> None:
    assert paths(planned(lake, "FULL", table_of(KEY, keep_versions=(40,)))) == PAST


def test_a_named_version_that_reads_another_table_is_refused(lake: Lake, story: LogBuilder) -> None:
    """A vacuum of the other table would not know that the version is kept."""
    story.append([(f"file:{lake.settings.root}/bronze/other/a", 1)])
    why = (
        r"version 3 is named in Vacuum\.keep_versions, but cannot be kept: the version reads files"
    )
    with pytest.raises(Refused, match=f"{why} outside the table's folder, .* bronze/other"):
        planned(lake, "FULL", table_of(KEY, keep_versions=(3,)))
