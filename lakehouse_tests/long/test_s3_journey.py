"""The journey of a lake in a bucket on MiniStack, as a second opinion, with commands killed on the way."""

import pandas
import pytest

from lakehouse_tests.journeys.world import World
from lakehouse_tests.long.test_s3_moto import *  # noqa: F403
from lakehouse_tests.long.test_s3_moto import MATERIALIZE, REPLAY, TABLES, rows


@pytest.fixture(scope="module")
def server_name() -> str:
    """Which server of S3's protocol the lake's bucket is on."""
    return "ministack"


@pytest.fixture(scope="module")
def killed_commands() -> list[tuple[tuple[str, ...], str]]:
    """A replay and a write, each killed in the middle of its work."""
    return [
        (REPLAY, "landing/flight_events/2013-01-02T04"),
        (MATERIALIZE, "silver/flights/part-"),
    ]


def test_a_second_run_changes_no_row(world: World, bucket: dict[str, str]) -> None:
    before = {key: rows(bucket, key) for key in TABLES}
    world.ask(*MATERIALIZE)
    for key, frame in before.items():
        pandas.testing.assert_frame_equal(frame, rows(bucket, key))
