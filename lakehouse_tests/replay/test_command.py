"""`lakehouse replay`."""

from pathlib import Path

import pytest

from lakehouse_tests.conftest import link_year
from lakehouse_tests.support.shapes import documented, shape
from lakehouse_tests.support.terminal import Terminal


def landed(terminal: Terminal) -> list[Path]:
    """The files in the landing area."""
    return sorted(path for path in terminal.root.glob("landing/**/*") if path.is_file())


def test_it_goes_on_where_it_stopped_and_past_a_day_it_has_nothing_to_do(
    prepared_home: Path, tmp_path: Path
) -> None:
    terminal = Terminal(
        link_year(prepared_home, tmp_path / "home"),
        LAKEHOUSE_REPLAY="on",
        LAKEHOUSE_REPLAY_HOURS="3",
    )
    first = terminal.json("replay", "--hours", "8")
    assert shape(first) == shape(documented()["replay"])
    assert (first["since"], first["until"]) == ("2013-01-01T00:00:00", "2013-01-01T08:00:00")
    assert first["finished"] is False
    assert len(landed(terminal)) == first["files"] > 8
    tick = terminal.json("replay")
    assert (tick["since"], tick["until"]) == ("2013-01-01T08:00:00", "2013-01-01T11:00:00")
    assert terminal.json("replay", "--until", "2013-01-02")["until"] == "2013-01-02T00:00:00"
    there = landed(terminal)
    again = terminal.run("replay", "--until", "2013-01-02")
    assert (again.exit_code, again.stdout) == (0, "landed nothing: 2013-01-02T00 is next\n")
    assert landed(terminal) == there
    assert "next: lakehouse materialize" in terminal.run("replay", "--hours", "1").stdout


@pytest.mark.parametrize("day", ["2012-12-31", "2013-01-01", "2014-02-01", "soon"])
def test_a_day_outside_the_year_is_refused(terminal: Terminal, day: str) -> None:
    assert "--until" in terminal.refused("replay", "--until", day, LAKEHOUSE_REPLAY="on")
    assert landed(terminal) == []


def test_a_replay_that_is_turned_off_lands_nothing(terminal: Terminal) -> None:
    assert terminal.refused("replay", "--hours", "1").startswith(
        "Refused: replay: LAKEHOUSE_REPLAY is off"
    )
