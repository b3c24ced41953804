"""A writer of one table in a process of its own: a Spark driver, or deltalake. Its output names each acknowledged commit.

    python -m lakehouse_tests.committing_driver NAME COUNT ADDRESS

A driver appends COUNT rows (NAME, 0), (NAME, 1), … in one commit each, and deltalake appends COUNT * `DELTALAKE_SHARE`: a
commit of Spark takes two seconds of a core, one of deltalake a hundredth of that. What failed is repeated with the same
transaction id, and so is the row at which an earlier process of this name was killed.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lakehouse.base.settings import parse_settings

_TRIES = 40
_COMPACTED_EVERY, _MERGED_EVERY = 12, 9
_DRIVERS = ("one", "two")
DELTALAKE_SHARE = 9


def main(name: str, count: int, address: str) -> None:
    """Writes what is left to write; the lines of `<home>/<name>` are the rows that were acknowledged."""
    acknowledged = Path(os.environ["LAKEHOUSE_HOME"]) / name
    done = _acknowledged_count(name)
    append = _deltalake(name, address) if name == "deltalake" else _spark(name, address)
    for number in range(done, count * DELTALAKE_SHARE if name == "deltalake" else count):
        if name == "deltalake":
            _wait_for_drivers(number)
        _wait_for_impatient(name)
        _until_acknowledged(name, lambda number=number: append(number))
        with acknowledged.open("a") as file:
            file.write(f"{number}\n")


def _acknowledged_count(name: str) -> int:
    acknowledged = Path(os.environ["LAKEHOUSE_HOME"]) / name
    return len(acknowledged.read_text().splitlines()) if acknowledged.exists() else 0


def _wait_for_drivers(number: int) -> None:
    """Waits while a driver is far behind: each append of deltalake makes its MERGE start again."""
    while min(map(_acknowledged_count, _DRIVERS)) < number // DELTALAKE_SHARE - 1:
        time.sleep(0.2)


def _wait_for_impatient(name: str) -> None:
    """Waits while another writer fails again and again, as a MERGE does next to many appends."""
    home = Path(os.environ["LAKEHOUSE_HOME"])
    while {path.stem for path in home.glob("*.impatient")} - {name}:
        time.sleep(0.05)


def _until_acknowledged(name: str, append: Callable[[], None]) -> None:
    impatient = Path(os.environ["LAKEHOUSE_HOME"]) / f"{name}.impatient"
    for _ in range(_TRIES - 1):
        try:
            append()
        except Exception as error:
            print(f"{type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
            impatient.touch()
        else:
            return impatient.unlink(missing_ok=True)
    return append()


def _deltalake(name: str, address: str) -> Callable[[int], None]:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    options = {"aws_conditional_put": "etag", "AWS_ALLOW_HTTP": "true"}
    storage = options if address.startswith("s3") else {}
    table_address = address.replace("s3a://", "s3://")

    def append(number: int) -> None:
        table = DeltaTable(table_address, storage_options=storage)
        last = table.transaction_version(name)
        if last is not None and last >= number:
            return
        write_deltalake(
            table,
            pa.table({"writer": [name], "number": pa.array([number], pa.int64())}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(name, number)]),
        )

    return append


def _spark(name: str, address: str) -> Callable[[int], None]:
    from pyspark.sql import SparkSession

    from lakehouse.spark.session import prepare, session_config

    settings = parse_settings(os.environ, base=Path.cwd())
    prepare(settings)
    builder = SparkSession.builder
    for setting, value in session_config(settings).items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def append(number: int) -> None:
        row = f"SELECT '{name}' AS writer, {number}L AS number"
        transaction = {"txnAppId": name, "txnVersion": str(number)}
        if number % _MERGED_EVERY == 1:
            names = {
                f"spark.databricks.delta.write.{each}": transaction[each] for each in transaction
            }
            for setting, value in names.items():
                spark.conf.set(setting, value)
            try:
                spark.sql(
                    f"MERGE INTO delta.`{address}` AS t USING ({row}) AS s"
                    " ON t.writer = s.writer AND t.number = s.number WHEN NOT MATCHED THEN INSERT *"
                )
            finally:
                for setting in names:
                    spark.conf.unset(setting)
        else:
            frame = spark.sql(row).coalesce(1).write.format("delta")
            frame.options(**transaction).mode("append").save(address)
        if number % _COMPACTED_EVERY == 5 and name == "one":
            try:
                spark.sql(f"OPTIMIZE delta.`{address}`")
            except Exception as error:
                print(f"OPTIMIZE: {str(error)[:200]}", file=sys.stderr, flush=True)

    return append


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
