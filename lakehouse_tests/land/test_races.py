"""Two who write one table at once lose nothing."""

from io import BytesIO
from itertools import pairwise

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from lakehouse.lake.lake import Lake
from lakehouse_tests.conftest import type_of_client
from lakehouse_tests.support.example_lake import facts_of, rows_of

APPEND = "import sys; from lakehouse_tests.support.clients import append_rows; append_rows('bronze/race', sys.argv[1], int(sys.argv[2]))"


def race(lake: Lake, spark: SparkSession, new_client: type_of_client, *, appends: int) -> None:
    """Two clients append so many rows each at the same time, a commit for each row, and all are there."""
    # Two that make one table at once are a conflict for the second, by Delta's rules; appends to a table are none.
    spark.createDataFrame([], "name STRING, number INT").write.format("delta").save(
        lake.settings.table_uri("bronze/race")
    )
    both = [new_client(APPEND, lake.settings, name, str(appends)) for name in ("left", "right")]
    assert [client.stdout.readline() for client in both if client.stdout] == ["ready\n"] * 2
    for client in both:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    assert [client.wait() for client in both] == [0, 0]
    wanted = sorted(
        ((name, number) for name in ("left", "right") for number in range(appends)), key=str
    )
    assert rows_of(spark, lake, "bronze/race", "name", "number") == wanted
    writers = writers_by_version(lake, "bronze/race")
    assert len(writers) == 2 * appends
    assert sum(earlier != later for earlier, later in pairwise(writers)) > 1, (
        "one client wrote after the other, not at the same time"
    )


def writers_by_version(lake: Lake, key: str) -> list[str]:
    """Which client made each commit, told by the name in the file that it added."""
    paths = [path for commit in facts_of(lake, key).history.commits for path in commit.added_paths]
    return [
        pyarrow.parquet.read_table(BytesIO(lake.store.read(f"{key}/{path}")))["name"][0].as_py()
        for path in paths
    ]


@pytest.mark.long
def test_two_clients_of_ten_appends_each_lose_no_row(
    lake: Lake, spark: SparkSession, new_client: type_of_client
) -> None:
    race(lake, spark, new_client, appends=10)
