"""When a cron expression comes round."""

from datetime import UTC, datetime

import pytest

from lakehouse.base.errors import Refused
from lakehouse.declare.policies import Scheduled, cron_times


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


TIMES = {
    "0 3 * * *": ["2024-02-28T03:00", "2024-02-29T03:00", "2024-03-01T03:00"],
    "30 */12 29 2 *": ["2024-02-29T00:30", "2024-02-29T12:30"],
    "0 0 * * 4": ["2024-02-29T00:00"],
    "0 6 1 * 4": ["2024-02-29T06:00", "2024-03-01T06:00"],
    "15,45 22-23 28 * *": [
        "2024-02-28T22:15",
        "2024-02-28T22:45",
        "2024-02-28T23:15",
        "2024-02-28T23:45",
    ],
    "0-30/15 5 29 2 *": ["2024-02-29T05:00", "2024-02-29T05:15", "2024-02-29T05:30"],
    "0 12 * * 0-3": ["2024-02-28T12:00"],
    "0 12 * * 7": [],
}


@pytest.mark.parametrize(("cron", "times"), TIMES.items(), ids=TIMES)
def test_a_schedule_comes_round_when_cron_says(cron: str, times: list[str]) -> None:
    expected = [ms(time) for time in times]
    assert list(cron_times(cron, ms("2024-02-28T00:00"), ms("2024-03-01T18:00"))) == expected


def test_the_moment_itself_is_past_and_the_end_is_not_reached() -> None:
    assert list(cron_times("0 3 * * *", ms("2024-01-01T03:00"), ms("2024-01-02T03:00"))) == []


@pytest.mark.parametrize(
    "cron",
    [
        "0 24 * * *",
        "0 3 0 * *",
        "0 3 * 13 *",
        "x * * * *",
        "60 * * * *",
        "* * * * 8",
        "* * *",
        "5-1 * * * *",
        "*/0 * * * *",
        "+5 * * * *",
        "0 3 * * MON",
        "0 3 L * *",
        "0 0 3 * * *",
        "",
    ],
)
def test_what_is_no_schedule_is_refused(cron: str) -> None:
    with pytest.raises(Refused, match=r"Scheduled\.cron is .*\. Use five fields"):
        Scheduled(cron=cron)
