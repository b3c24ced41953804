"""The journey of a lake in a bucket once more, on MiniStack, as a second opinion."""

import pytest

from lakehouse_tests.journeys.test_s3 import *  # noqa: F403


@pytest.fixture(scope="module")
def server_name() -> str:
    """Which server of S3's protocol the lake's bucket is on."""
    return "ministack"
