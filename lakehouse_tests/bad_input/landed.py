"""A landed file with what a load has to make of it, and the comparison of both."""

import gzip
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakehouse import Append, Landing, Table
from lakehouse.lake.lake import Lake
from lakehouse.materialize.run import write_table

JSON = Table(
    key="bronze/json",
    source=Landing(
        prefix="landing/json/",
        format="json",
        schema="id BIGINT, at TIMESTAMP, state STRING, x DOUBLE",
        required=("id",),
    ),
    write=Append(),
)
CSV = Table(
    key="bronze/csv",
    source=Landing(
        prefix="landing/csv/",
        format="csv",
        schema="code STRING, n INT, name STRING",
        null_value="NA",
        required=("code",),
    ),
    write=Append(),
)
# A file of these may unpack to 1 MB.
_ROWS = Landing(
    prefix="landing/x/",
    format="avro",
    schema="id BIGINT, state STRING",
    required=("id",),
    max_file_bytes=250_000,
)
ROWS = {
    format: Table(
        key=f"bronze/{format}",
        source=replace(_ROWS, prefix=f"landing/{format}/", format=format),
        write=Append(),
    )
    for format in ("parquet", "avro")
}
HEADER = b"code,n,name"

type_of_row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """A file of one of the tables: the rows that it holds by their lines, and the lines that are none.

    `problem` is a part of the reason why nothing of it is read, empty where it is read.
    """

    table: Table
    name: str
    data: bytes
    rows: dict[int, type_of_row]
    bad_lines: frozenset[int] = frozenset()
    problem: str = ""

    def packed(self, data: bytes | None = None) -> "Landed":
        """The same file as gzip, or as these bytes."""
        return replace(
            self,
            name=f"{self.name}.gz",
            data=gzip.compress(self.data, mtime=0) if data is None else data,
        )

    def unread(self, problem: str) -> "Landed":
        """The same file, of which nothing can be read."""
        return replace(self, rows={}, bad_lines=frozenset(), problem=problem)


def json_file(name: str, data: bytes, rows: dict[int, type_of_row], *bad_lines: int) -> Landed:
    """A file of JSON lines."""
    return Landed(
        table=JSON, name=f"{name}.json", data=data, rows=rows, bad_lines=frozenset(bad_lines)
    )


def csv_file(name: str, data: bytes, rows: dict[int, type_of_row], *bad_lines: int) -> Landed:
    """A file of CSV, its header in its data."""
    return Landed(
        table=CSV, name=f"{name}.csv", data=data, rows=rows, bad_lines=frozenset(bad_lines)
    )


def rows_file(
    format: str, name: str, data: bytes, rows: dict[int, type_of_row], *bad_lines: int
) -> Landed:
    """A file of Parquet or Avro, whose rows are numbered from 1."""
    return Landed(
        table=ROWS[format],
        name=f"{name}.{format}",
        data=data,
        rows=rows,
        bad_lines=frozenset(bad_lines),
    )


def differences(lake: Lake, spark: SparkSession, files: Sequence[Landed]) -> list[str]:
    """Lands the files, loads them, and tells where rows loaded, lines quarantined and files set aside are not what they should be."""
    found: list[str] = []
    for table in dict.fromkeys(file.table for file in files):
        assert table.source is not None
        own = [file for file in files if file.table is table]
        for place, file in enumerate(own):
            lake.store.put(name := f"{table.source.prefix}{file.name}", file.data)
            # Of one time, a file and the same one packed would be one that a person packed.
            os.utime(
                Path(lake.settings.root, name), ns=(0, (1_600_000_000_000 + place) * 1_000_000)
            )
        outcome = write_table(lake, spark, table)
        aside = {each.name: each.why for each in outcome.set_aside}
        rows = _by_file(lake, table.key, "_source_file", "_source_line", *table.source.column_names)
        lines = _by_file(lake, f"quarantine/{table.key}", "source_file", "line")
        for file in own:
            path = f"{table.source.prefix}{file.name}"
            found += _differences(
                file, rows.pop(path, []), lines.pop(path, []), aside.pop(file.name, "")
            )
        found += [
            f"{name}: in the table or in quarantine, and never landed"
            for name in (*rows, *lines, *aside)
        ]
    return found


def _differences(
    file: Landed, rows: list[type_of_row], lines: list[type_of_row], why: str
) -> Iterable[str]:
    loaded = {row[0]: row[1:] for row in rows}
    bad = sorted(line for (line,) in lines if line is not None)
    if len(loaded) != len(rows):
        yield f"{file.name}: a line is there twice"
    if loaded != file.rows:
        yield f"{file.name}: loaded {loaded}, not {file.rows}"
    if bad != sorted(file.bad_lines):
        yield f"{file.name}: quarantined lines {bad}, not {sorted(file.bad_lines)}"
    if bool(why) != bool(file.problem) or file.problem not in why:
        yield f"{file.name}: set aside {why!r}, not {file.problem!r}"


def _by_file(lake: Lake, key: str, *columns: str) -> dict[str, list[type_of_row]]:
    """The rows of a table by their first column, each without it, in the order of the next."""
    found: dict[str, list[type_of_row]] = {}
    if lake.facts(key) is None:
        return found
    table = DeltaTable(lake.settings.table_uri(key)).to_pyarrow_table(columns=[*columns])
    for row in sorted(
        zip(*(column.to_pylist() for column in table.columns), strict=True),
        key=lambda row: (row[0], row[1] or 0),
    ):
        found.setdefault(row[0], []).append(row[1:])
    return found
