"""Settings of a block end with it, or their session does."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.settings import Settings
from lakehouse.spark.session import connect, prepare
from lakehouse.spark.temporary_confs import (
    INTERPRETED,
    SHUFFLE_PARTITIONS,
    TRANSACTION_APP,
    TRANSACTION_VERSION,
    confs_to_read,
    session_confs,
)

SET = {TRANSACTION_APP: "mine", TRANSACTION_VERSION: "7"}


@pytest.mark.usefixtures("spark")
def test_a_session_lost_inside_a_block_is_not_handed_out_again(shared_settings: Settings) -> None:
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    # A URL gets the token of the environment, where a test before this one may have left that of its own server.
    prepare(shared_settings)
    # Not the session of the other tests.
    settings = replace(shared_settings, spark=f"sc://localhost:{shared_settings.spark_port}/")
    mine = connect(settings)
    with pytest.raises(SparkConnectGrpcException), session_confs(mine, SET):
        raise SparkConnectGrpcException(
            "[INVALID_HANDLE.SESSION_CLOSED]", errorClass="INVALID_HANDLE.SESSION_CLOSED"
        )
    assert mine.conf.get(TRANSACTION_APP) == "mine"
    other = connect(settings)
    assert other is not mine and mine.is_stopped  # type: ignore[attr-defined]  # of Connect sessions only
    assert other.conf.get(TRANSACTION_APP, None) is None
    assert other.conf.get(TRANSACTION_VERSION, None) is None
    other.stop()


def test_after_a_block_a_session_has_what_it_had_before(spark: SparkSession) -> None:
    """What its server was started with, or the block around it set, and not Spark's default, which is 200 shuffle partitions."""
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    assert before[SHUFFLE_PARTITIONS] not in ("1", "200")
    with session_confs(spark, INTERPRETED):
        with session_confs(spark, {SHUFFLE_PARTITIONS: "7", **SET}):
            assert spark.conf.get(SHUFFLE_PARTITIONS) == "7"
        assert {name: spark.conf.get(name) for name in INTERPRETED} == INTERPRETED
    assert {name: spark.conf.get(name) for name in INTERPRETED} == before
    assert [spark.conf.get(name, None) for name in SET] == [None, None]


def test_only_what_is_known_to_be_small_is_interpreted() -> None:
    small = [confs_to_read([(100_000, 1)]), confs_to_read([(0, 16 << 20)], records=10_000)]
    large = [
        confs_to_read([(100_000, 1), (1, 1)]),
        confs_to_read([(1, (16 << 20) + 1)]),
        confs_to_read([(0, 1)], records=10_001),
    ]
    assert small == [INTERPRETED] * 2 and large == [{}] * 3
    assert confs_to_read([(None, 1)]) == {}
