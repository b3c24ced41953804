"""Small CSV files are staged by their headers, and Spark judges their records like those of large ones."""

import pytest
from pyspark.sql import SparkSession

from lakehouse import Dms, Landing, Merge, Table
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.ledger import landed_files
from lakehouse.land.parse_lines import RAW, REASON, UNDECLARED
from lakehouse.land.plan.batches import Batch
from lakehouse.land.spark.files import staged_csv
from lakehouse.land.staging import stage
from lakehouse.spark.temporary_confs import ANSI, session_confs


@pytest.mark.parametrize(
    ("null_value", "others"),
    [
        ("NULL", '{"a":"","b":"","d":"-"}'),
        ("-", '{"a":"","b":"","c":"NULL"}'),
        ("", '{"c":"NULL","d":"-"}'),
    ],
)
def test_a_field_of_dms_that_holds_nothing_is_null_only_where_dms_writes_nulls_so(
    lake: Lake, spark: SparkSession, null_value: str, others: str
) -> None:
    schema = "Op STRING, id BIGINT, name STRING"
    landing = Landing(
        prefix="landing/t/", format="csv", schema=schema, null_value=null_value, changes=Dms()
    )
    table = Table(key="bronze/t", source=landing, write=Merge(keys=("id",)))
    lake.store.put("landing/t/0.csv", b'id,name,a,b,c,d\n1,x,,"",NULL,-\n')
    files = tuple(landed_files(lake.store, landing))
    planned = Batch(number=1, files=files, prefix="landing/t/")
    batch, _ = stage(lake.store, table.key, planned, landing)
    with session_confs(spark, {ANSI: "false"}):
        [frame] = staged_csv(TableSession(lake=lake, spark=spark, table=table), batch)
        [row] = frame.select(RAW, REASON, UNDECLARED).collect()
    assert tuple(row) == (",1,x", None, others)
