"""Versions that are named, or that a reader pinned, survive a vacuum; no Spark: Delta's answer is taken to be our plan."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakehouse import Table
from lakehouse.core.delta.paths import vector_file
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.settings import parse_settings
from lakehouse.core.text import utc_text
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.table_lock import hold_alone
from lakehouse.engine.vacuum import kept_versions
from lakehouse.engine.vacuum.kept_versions import pins, remove_pin, set_pin
from lakehouse_tests.engine.faults import (
    KEY,
    LONG_AGO,
    PAST,
    age,
    carried_out,
    files,
    known_of,
    paths,
    planned,
    report,
    story_of,
)
from lakehouse_tests.engine.vacuums import table_of
from lakehouse_tests.log_builder import LogBuilder, vector_of

DAY = 86_400_000
MODES = ("FULL", "INVENTORY", "LITE")
READ = table_of(KEY, readers=("powerbi", "stream"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(parse_settings({"LAKEHOUSE_REPLAY": "off"}, base=tmp_path))


@pytest.fixture(autouse=True)
def story(lake: Lake) -> LogBuilder:
    """Version 1 reads the file `d=1/gone`, which version 2 removed long ago."""
    story = story_of(lake)
    age(lake)
    report(lake)
    return story


def pinned(lake: Lake, version: int = 1, *, reader: str = "powerbi", days: float = 30) -> int:
    """Pins a version for some days from now on; when that ends."""
    until_ms = now_ms() + int(days * DAY)
    set_pin(lake, READ, version=version, reader=reader, until_ms=until_ms)
    return until_ms


def past(mode: str) -> list[str]:
    """What a vacuum of this mode deletes if nothing is kept."""
    return PAST[:1] if mode == "LITE" else PAST


@pytest.mark.parametrize("mode", MODES)
def test_the_files_of_a_named_version_stay_in_every_mode(lake: Lake, mode: str) -> None:
    assert paths(planned(lake, mode)) == past(mode)
    table = table_of(KEY, keep_versions=(1,))
    found = planned(lake, mode, table)
    assert paths(found) == [name for name in past(mode) if name != "d=1/gone"]
    [note] = found.notes
    assert note == (
        "1 unneeded file (30 B) will stay for version 1, named in Vacuum.keep_versions. Delta may "
        f"delete the log files that describe version 1 after {utc_text(LONG_AGO + 30 * DAY)}. To "
        "keep the version longer, raise delta.logRetentionDuration"
    )


def test_a_plan_that_keeps_all_files_for_a_version_says_so(lake: Lake) -> None:
    found = planned(lake, "LITE", table_of(KEY, keep_versions=(1,)))
    assert found.sentence.endswith(
        "mode LITE); 1 file past the retention will stay for kept versions"
    )
    assert found.remembered == {"d=1/gone"}


@pytest.mark.parametrize("mode", MODES)
def test_a_deletion_vector_of_a_kept_version_stays(
    lake: Lake, story: LogBuilder, mode: str
) -> None:
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
    name = vector_file(f"u{place}@1")
    assert name is not None
    return name


@pytest.mark.parametrize("mode", MODES)
def test_a_pinned_version_stays_until_its_pin_ends(
    lake: Lake, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    until_ms = pinned(lake)
    found = planned(lake, mode, READ)
    assert "d=1/gone" not in paths(found)
    assert found.notes[0].startswith(
        f"1 unneeded file (30 B) will stay for version 1, pinned by powerbi until {utc_text(until_ms)}"
    )
    monkeypatch.setattr(kept_versions, "now_ms", lambda: until_ms)
    assert paths(planned(lake, mode, READ)) == past(mode)


@pytest.mark.parametrize(
    "change",
    {
        "its reader is no longer declared": lambda pin: {**pin, "reader": "other"},
        "the table was created again": lambda pin: {**pin, "table_id": "another"},
    }.values(),
)
def test_a_pin_of_another_reader_or_table_does_not_hold(
    lake: Lake, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    pinned(lake)
    [file] = lake.store.list("_lakehouse/pins")
    content = change(json.loads(lake.store.read(file.name)))
    lake.store.put(file.name, json.dumps(content).encode())
    assert paths(planned(lake, "FULL", READ)) == PAST


@pytest.mark.parametrize("mode", MODES)
def test_a_version_that_was_pinned_after_the_plan_stays(lake: Lake, mode: str) -> None:
    """The vacuum's own lock keeps pins out; here, its holder was thought dead."""
    found = planned(lake, mode, READ)
    until_ms = now_ms() + DAY
    gone, work = carried_out(lake, found, meanwhile=lambda: pinned(lake, days=1), table=READ)
    assert gone == {*past(mode)} - {"d=1/gone"}
    assert work.spared == {
        "d=1/gone": f"version 1 needs it, pinned by powerbi until {utc_text(until_ms)}"
    }


def test_what_a_vacuum_by_the_log_kept_goes_once_its_pin_is_removed(
    lake: Lake, story: LogBuilder
) -> None:
    """No listing finds it again, and its removal may be older than the last vacuum."""
    pinned(lake)
    plan = planned(lake, "LITE", READ)
    gone, work = carried_out(lake, plan, table=READ)
    assert gone == set()
    record = work.record(known_of(lake).facts, plan, has_ended_well=True).record
    assert (record.kept, record.is_complete) == (["d=1/gone"], True)
    assert paths(planned(lake, "LITE", READ)) == []
    assert remove_pin(lake.store, KEY, version=1, reader="powerbi")
    story.append([("d=3/new", 1)]).checkpoint().forget_before(3)
    assert paths(planned(lake, "LITE", READ)) == ["d=1/gone"]


@pytest.mark.parametrize("mode", MODES)
def test_a_vacuum_is_refused_while_a_kept_version_cannot_be_read(
    lake: Lake, story: LogBuilder, mode: str
) -> None:
    """Its files are unknown, and the unknown is never deleted; the way out is to give it up."""
    pinned(lake)
    story.checkpoint().lose(1)
    age(lake)
    named = r"version 1 is named in Vacuum.keep_versions, but .*remove 1 from Vacuum.keep_versions"
    with pytest.raises(Refused, match=named):
        planned(lake, mode, table_of(KEY, keep_versions=(1,)))
    command = "use lakehouse pin bronze/t --version 1 --reader powerbi --remove"
    with pytest.raises(Refused, match=f"version 1 is pinned by powerbi until .*{command}"):
        planned(lake, mode, READ)
    assert {*PAST} <= files(lake)


def test_a_version_that_does_not_exist_yet_keeps_nothing(lake: Lake) -> None:
    assert paths(planned(lake, "FULL", table_of(KEY, keep_versions=(40,)))) == PAST


def test_a_damaged_pin_stops_the_vacuum_and_names_its_record(lake: Lake) -> None:
    pinned(lake)
    [file] = lake.store.list("_lakehouse/pins")
    lake.store.put(file.name, b"{")
    with pytest.raises(Broken, match=r"_lakehouse/pins/bronze/t/powerbi-1\.json cannot be read"):
        planned(lake, "FULL", READ)


def test_without_readers_no_pin_is_read(lake: Lake) -> None:
    lake.store.put(f"_lakehouse/pins/{KEY}/powerbi-1.json", b"{")
    assert paths(planned(lake, "FULL")) == PAST


@pytest.mark.parametrize(
    ("table", "version", "reader", "why"),
    [
        (READ, 1, "excel", r"'excel' is not a declared reader .*powerbi, stream\).*readers=\("),
        (table_of(KEY), 1, "excel", r"not a declared reader .*none\)"),
        (READ, 3, "powerbi", "there is no version after 2 yet"),
        (table_of("bronze/other", readers=("x",)), 0, "x", "there is no table yet"),
    ],
)
def test_a_pin_that_cannot_hold_is_refused(
    lake: Lake, table: Table, version: int, reader: str, why: str
) -> None:
    with pytest.raises(Refused, match=why):
        set_pin(lake, table, version=version, reader=reader, until_ms=now_ms() + DAY)
    assert pins(lake.store) == ()


def test_a_pin_of_a_version_whose_files_are_gone_is_refused(lake: Lake) -> None:
    lake.store.delete([f"{KEY}/d=1/gone"])
    with pytest.raises(Refused, match="version 1 lacks 1 of its 3 files, for example d=1/gone"):
        pinned(lake)
    assert pins(lake.store) == ()
    pinned(lake, 2)


def test_a_version_that_reads_files_of_another_table_cannot_be_pinned(
    lake: Lake, story: LogBuilder
) -> None:
    """A vacuum of the other table would not know of the pin."""
    other = f"file:{lake.settings.root}/bronze/other/a"
    story.append([(other, 1)])
    with pytest.raises(
        Refused, match="reads files outside the table's folder, for example bronze/other"
    ):
        pinned(lake, 3)
    with pytest.raises(
        Refused,
        match=r"version 3 is named in Vacuum\.keep_versions, but cannot be kept: the version reads",
    ):
        planned(lake, "FULL", table_of(KEY, keep_versions=(3,)))


def test_a_pin_waits_for_a_vacuum_under_way(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last check of a batch and its deletion, no pin appears."""
    monkeypatch.setattr(hold_alone.__wrapped__, "__kwdefaults__", {"wait_seconds": 0.0})  # type: ignore[attr-defined]
    with (
        hold_alone(lake, KEY, owner="vacuum of bronze/t"),
        pytest.raises(Transient, match=r"locked .* by process \d+ \(vacuum of bronze/t\)"),
    ):
        pinned(lake)
    assert pins(lake.store) == ()


def test_a_new_pin_deletes_the_records_of_pins_that_ended(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned(lake, reader="stream", days=1)
    pinned(lake, 2)
    monkeypatch.setattr(kept_versions, "now_ms", lambda: now_ms() + 2 * DAY)
    pinned(lake, 1)
    assert [(pin.reader, pin.version) for pin in pins(lake.store)] == [
        ("powerbi", 1),
        ("powerbi", 2),
    ]
