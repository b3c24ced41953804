"""Answers a planned statement: by deltalake, without a JVM, or by Spark where deltalake cannot.

Only the tables that the statement names are opened. Nothing is written.

For all clients of the lake's Spark Connect server, its catalog has the tables by their names. It is
in the server's memory. Its entry `gold.carrier_daily` only has the address of the table's folder. A
file in the server's scratch folder, which is empty after each start, lists the named tables, so
that each is named once.

**Safety properties** (tests in `test_run.py`)
- No table is created or written: Spark refuses to name a folder without a table.
- DROP TABLE removes an entry and keeps the files, because the entries are external tables.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.text import either, nearest_words
from lakehouse.declare.table import Table
from lakehouse.lake.commits import open_with_deltalake, storage_errors
from lakehouse.lake.lake import Lake, is_table
from lakehouse.query.plan import NamedTable, QueryPlan
from lakehouse.spark import statements
from lakehouse.spark.errors import causes_of, innermost_cause, is_of_spark, translated
from lakehouse.spark.server.conf import scratch_folder, write_private
from lakehouse.spark.session import connect
from lakehouse.spark.statements import path_table
from lakehouse.spark.temporary_confs import session_confs

if TYPE_CHECKING:
    from deltalake import QueryBuilder
    from pyspark.sql import SparkSession

# Otherwise, times in Spark's default type INT96 outside of 1677 to 2262 would be wrong.
# Source: Apache DataFusion, configuration settings
_DATAFUSION = {"datafusion.execution.parquet.coerce_int96": "us"}
# deltalake 1.6.6 ignores a LIMIT over rows of which it reads no column from files. A condition that
# deltalake cannot evaluate keeps the limit with DataFusion.
# Source: delta-io/delta-rs, pull request 4744
_ALWAYS = "random() >= 0"
# Then a name in double quotes is a name, as for DataFusion.
# Source: Spark 4.2.0, SQLConf.scala, DOUBLE_QUOTED_IDENTIFIERS
_SPARK = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}
# How the engine begins and ends its messages.
_WRAPPING = re.compile(r"^SQL error: ParserError\(\"|\"\)$|^Error during planning: ")
_UNKNOWN_TABLE = re.compile(r"table 'datafusion\.(?:public\.)?(.+)' not found")


class UnreadableError(Exception):
    """deltalake cannot read a table. The message is a sentence."""


def show_tables(lake: Lake, keys: Mapping[str, str]) -> pa.RecordBatchReader:
    """The names, with dots, of the tables that exist."""
    names = [name.replace("/", ".") for name, key in keys.items() if is_table(lake.store, key)]
    return pa.table({"table": pa.array(sorted(names), pa.string())}).to_reader()


def query_deltalake(lake: Lake, plan: QueryPlan) -> pa.RecordBatchReader:
    """The rows that deltalake returns. Read them in `query_errors`.

    Raises:
        UnreadableError: deltalake cannot read one of the tables.
        Refused: a table or a version does not exist.
        Transient: the storage does not answer.
    """
    from deltalake import QueryBuilder

    builder = QueryBuilder(_DATAFUSION)
    for table in {each.quoted_name: each for each in plan.tables}.values():
        with storage_errors(f"sql: {table.key}"):
            _register(builder, lake, table)
    statement = plan.with_names(lambda table: table.quoted_name)
    return pa.RecordBatchReader.from_stream(builder.execute(statement))


def query_spark(lake: Lake, plan: QueryPlan, *, most_rows: int | None) -> pa.RecordBatchReader:
    """The rows that Spark returns, at most `most_rows`. Read them in `query_errors`.

    Raises:
        Transient: Spark does not answer.
    """
    spark = connect(lake.settings)
    from pyspark.logger import PySparkLogger

    # It prints each refused statement with its stack trace.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")

    def address_of(table: NamedTable) -> str:
        version = "" if table.version is None else f" VERSION AS OF {table.version}"
        return f"{path_table(lake.table_uri(table.key))}{version}"

    with translated(), session_confs(spark, _SPARK):
        rows = spark.sql(plan.with_names(address_of))
        return (rows if most_rows is None else rows.limit(most_rows)).toArrow().to_reader()


@contextmanager
def query_errors(keys: Mapping[str, str]) -> Iterator[None]:
    """Translates an engine's errors. A misspelled table gets a suggestion."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, pa.ArrowException) as error:
        message = _WRAPPING.sub("", str(error))
        _, unread, cause = message.partition("Object Store error: ")
        if unread:
            raise Broken(
                "sql: a file of a table cannot be read (vacuums delete the files of old versions): "
                f"{cause}"
            ) from error
        if unknown := _UNKNOWN_TABLE.search(message):
            similar = nearest_words(unknown[1], [name.replace("/", ".") for name in keys])
            hint = f"Did you mean {either(similar)}?" if similar else "Use SHOW TABLES"
            message = f"there is no table {unknown[1]}. {hint}"
        raise Refused(f"sql: {message}") from error
    except Exception as error:
        if not is_of_spark(error):
            raise
        cause = innermost_cause(causes_of(error))
        first_line = replace(cause, message=cause.message.strip().partition("\n")[0])
        raise Refused(f"sql: {first_line.line}") from error


def _register(builder: "QueryBuilder", lake: Lake, table: NamedTable) -> None:
    """Makes a table known by its quoted name."""
    from deltalake.exceptions import DeltaError, TableNotFoundError

    key = table.key
    version = table.version
    name = table.quoted_name
    try:
        opened = open_with_deltalake(lake, key)
        if version is not None:
            if version > opened.version():
                raise Refused(f"sql: {key} has no version {version}, but up to {opened.version()}")
            opened.load_as_version(version)
        schema = name.rpartition('."')[0]
        builder.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        source = name.replace('"."', ".")  # one quoted name
        builder.register(source, opened)
        view = f"CREATE VIEW {name} AS SELECT * FROM {source} WHERE {_ALWAYS}"  # noqa: S608
        builder.execute(view)
    except TableNotFoundError as error:
        raise Refused(f"sql: the table {key} does not exist yet. See: lakehouse tables") from error
    except DeltaError as error:
        raise UnreadableError(f"deltalake cannot read {key} ({error})") from error


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
