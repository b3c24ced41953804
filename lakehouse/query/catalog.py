"""Names the lake's tables in the catalog of its Spark Connect server, for all its clients.

The catalog is in the server's memory. Its entry `gold.carrier_daily` only has the address of the
table's folder. A file in the server's scratch folder, which is empty after each start, lists the
named tables, so that each is named once.

**Safety properties** (tests in `test_catalog.py`)
- No table is created or written: Spark refuses to name a folder without a table.
- DROP TABLE removes an entry and keeps the files, because the entries are external tables.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from lakehouse.declare.table import Table
from lakehouse.lake.find_tables import is_table
from lakehouse.lake.lake import Lake
from lakehouse.spark import statements
from lakehouse.spark.server.conf import scratch_folder, write_private
from lakehouse.spark.temporary_confs import session_confs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Delta neither creates a table at an empty address, nor compares the columns of an entry with those
# of the table at its new address.
# Source: Delta Lake 4.4.0, DeltaSQLConf.scala
_ENTRIES_ONLY = {
    "spark.databricks.delta.createEmptySchemaTable.enabled": "false",
    "spark.databricks.delta.alterLocation.bypassSchemaCheck": "true",
}


def name_tables(lake: Lake, spark: "SparkSession", tables: Sequence[Table]) -> None:
    """Names those of the tables that exist, if the lake has a Spark server of its own.

    A table that cannot be named now gets its name from a later call.
    """
    if lake.settings.spark != "server":
        return
    file = scratch_folder(lake.settings) / "named_tables.json"
    named = dict[str, str]()
    with suppress(OSError, ValueError):
        named = json.loads(file.read_text())
    for table in tables:
        uri = lake.table_uri(table.key)
        # Reading and writing by address go on without a name.
        with suppress(Exception):
            if named.get(table.asset_key) == uri or not is_table(lake.store, table.key):
                continue
            layer = statements.quote(table.layer)
            address = statements.literal(uri)
            name = f"{layer}.{statements.quote(table.name)}"
            with session_confs(spark, _ENTRIES_ONLY):
                spark.sql(f"CREATE DATABASE IF NOT EXISTS {layer}")
                spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION {address}")
                spark.sql(f"ALTER TABLE {name} SET LOCATION {address}")
            named[table.asset_key] = uri
            write_private(file, json.dumps(named))
