"""Files of DMS in Parquet, and with other names for operations and before images."""

from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.parquet

from lakehouse import Dms, Landing, Merge, Table
from lakehouse.cdc.columns import OLD_KEY, OPERATION
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import land, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from lakehouse_tests.cdc.test_read import KEY, PREFIX, people, read


def test_dms_may_have_other_names_for_operations_and_before_images(
    lake: Lake, spark: "SparkSession"
) -> None:
    land(lake, "LOAD00000001.csv", ["1,loaded,", "2,loaded,"], prefix=PREFIX)
    land(lake, "20130101-1.csv", ["U,3,moved,1", "D,2,NULL,NULL"], prefix=PREFIX)
    changes = Dms(operation="kind", before_prefix="old_")
    found, _ = read(
        lake,
        spark,
        people(
            changes, Merge(keys=("id",)), schema="kind STRING, id BIGINT, v STRING, old_id BIGINT"
        ),
    )
    assert [(row.id, row.v, row[OPERATION], row[OLD_KEY] and row[OLD_KEY].id) for row in found] == [
        (1, "loaded", "upsert", None),
        (2, "loaded", "upsert", None),
        (3, "moved", "upsert", 1),
        (2, None, "delete", None),
    ]


def test_dms_in_parquet_is_a_full_load_without_operations_and_changes_with(
    lake: Lake, spark: "SparkSession"
) -> None:
    loaded = [{"id": 1, "v": "loaded"}, {"id": 2, "v": "loaded"}]
    changes = [
        {"Op": "U", "id": 1, "v": "changed", "seq": 1},
        {"Op": "D", "id": 2, "v": None, "seq": 2},
    ]
    for name, rows in (("LOAD00000001", loaded), ("20130102-000000001", changes)):
        buffer = BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
        lake.store.put(f"{PREFIX}{name}.parquet", buffer.getvalue())
    source = Landing(
        prefix=PREFIX,
        format="parquet",
        schema="Op STRING, id BIGINT, v STRING, seq INT",
        changes=Dms(position=("seq",)),
    )
    table = Table(key=KEY, source=source, write=Merge(keys=("id",)))
    assert write_table(lake, spark, table).rows_quarantined == 0
    assert rows_in(lake, KEY, "id", "v", "seq") == [(1, "changed", 1)]
