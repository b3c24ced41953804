"""Maintenance windows, in UTC."""

from datetime import UTC, datetime

import pytest

from lakehouse.core.declaration.windows_and_cron import Window, is_open, next_opening, windows_text
from lakehouse.core.errors import Refused

NIGHT = Window(start="22:00", end="06:00", days=("fri",))
NOON = Window(start="12:00", end="13:00")


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


# 2026-11-20 is a Friday.
@pytest.mark.parametrize(
    ("windows", "now", "open_"),
    [
        ((), "2026-11-20T03:00", True),
        ((NOON,), "2026-11-20T11:59", False),
        ((NOON,), "2026-11-20T12:00", True),
        ((NOON,), "2026-11-20T13:00", False),
        ((NIGHT,), "2026-11-20T22:00", True),
        ((NIGHT,), "2026-11-21T05:59", True),
        ((NIGHT,), "2026-11-21T06:00", False),
        ((NIGHT,), "2026-11-20T05:59", False),
        ((NIGHT, NOON), "2026-11-22T12:30", True),
    ],
)
def test_a_window_is_open_from_its_start_to_before_its_end(
    windows: tuple[Window, ...], now: str, open_: bool
) -> None:
    assert is_open(windows, _ms(now)) is open_


@pytest.mark.parametrize(
    ("field", "value"), [("start", "24:00"), ("end", "6"), ("days", ("friday",)), ("days", ())]
)
def test_a_window_that_cannot_be_meant_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(Refused, match=rf"^Window\.{field} is .*\. Use "):
        Window(**{"start": "22:00", "end": "06:00", field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("windows", "now", "opens"),
    [
        ((NOON,), "2026-11-20T11:59", "2026-11-20T12:00"),
        ((NOON,), "2026-11-20T12:00", "2026-11-21T12:00"),
        ((NIGHT,), "2026-11-20T22:00", "2026-11-27T22:00"),
        ((NIGHT, NOON), "2026-11-20T13:00", "2026-11-20T22:00"),
    ],
)
def test_the_next_opening_is_told(windows: tuple[Window, ...], now: str, opens: str) -> None:
    assert next_opening(windows, _ms(now)) == _ms(opens)


def test_windows_are_told_in_words() -> None:
    assert windows_text((NOON, NIGHT)) == "12:00-13:00 UTC daily; 22:00-06:00 UTC on fri"
