"""Clients that are killed in the middle of a statement, for real."""

from pyspark.sql import SparkSession
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.proto.base_pb2 import GetStatusResponse

from lakehouse.base.settings import Settings
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse.spark.session import connection_url, prepare
from lakehouse_tests.conftest import type_of_client, wait_until
from lakehouse_tests.support.clients import slow_copies
from lakehouse_tests.support.example_lake import event, events, facts_of, land, rows_of
from lakehouse_tests.support.vacuums import data_files

PROGRAM = "import sys; from lakehouse_tests.support import clients; getattr(clients, sys.argv[1])(*map(int, sys.argv[2:]))"


def test_a_statement_whose_client_was_killed_goes_on_beside_the_next_run_and_no_row_is_there_twice(
    lake: Lake, spark: SparkSession, new_client: type_of_client
) -> None:
    """Both write the same version of the input under one transaction id, so one of them commits."""
    for number in range(2):
        land(lake, f"{number}.json", [event(2 * number + id_, 1, "x", day=1) for id_ in range(2)])
        write_table(lake, spark, events)
        if number == 0:
            write_table(lake, spark, slow_copies(0))
    before = data_files(lake, "silver/copies")
    client = new_client(PROGRAM, lake.settings, "copy_slowly", "4000")
    assert client.stdout is not None
    session = client.stdout.readline().strip()
    wait_until(
        "a part of the rows is written",
        lambda: data_files(lake, "silver/copies") - before,
    )
    client.kill()
    client.wait()
    assert _is_at_work(lake.settings, session)
    write_table(lake, spark, slow_copies(0))
    wait_until(
        "the statement of the dead client has ended",
        lambda: not _is_at_work(lake.settings, session),
    )
    assert rows_of(spark, lake, "silver/copies", "id") == [(0,), (1,), (2,), (3,)]
    writes = [each for each in facts_of(lake, "silver/copies").history.commits if each.changed_data]
    assert len(writes) == 2


def _is_at_work(settings: Settings, session: str) -> bool:
    """Whether an operation of that session still runs. One that waits for its client has ended."""
    prepare(settings)
    client = SparkConnectClient(connection=connection_url(settings, session))
    try:
        running = GetStatusResponse.OperationStatus.OPERATION_STATE_RUNNING
        statuses = client._get_operation_statuses().operation_statuses
        return any(each.state == running for each in statuses)
    finally:
        client.close()
