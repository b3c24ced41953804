"""Random tables of every kind of partition go into their archive and back, and each row stays as it was.

`TABLES=20 FIRST=300 python -m pytest lakehouse_tests/long/test_archive_tables.py` draws others, or
fewer.
"""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from lakehouse import Archive
from lakehouse.core.archive.restore_plan import RestoreRequest
from lakehouse.core.settings import Settings
from lakehouse.engine.archive.read import read_table
from lakehouse.engine.archive.restore import run_restore
from lakehouse.engine.archive.run import run_archive
from lakehouse.engine.lake import Lake, TableSession, open_lake
from lakehouse.engine.spark.temporary_confs import session_confs
from lakehouse_tests.engine.archive.cases import DAYS, KEY, contents_now, facts_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES, FIRST = int(os.environ.get("TABLES", "20")), int(os.environ.get("FIRST", "0"))
# Partition columns with a time, and their values on a day of January 2013.
TIMES = {
    "d DATE": "DATE'2013-01-{day:02}'",
    "d TIMESTAMP": "TIMESTAMP'2013-01-{day:02} 0{hour}:00:00'",
    "d TIMESTAMP_NTZ": "TIMESTAMP_NTZ'2013-01-{day:02} 0{hour}:30:00.25'",
    "d STRING": "'2013-01-{day:02}'",
    "d DATE, the_hour INT": "DATE'2013-01-{day:02}', {hour}",
    "year INT, month INT, day INT": "2013, 1, {day}",
    "year INT, month STRING": "2013, '{day:02}'",
}
# A second partition column, and values that it may have.
OTHERS = {
    "": (),
    "p STRING": (
        *("'a b'", r"'it\'s'", "'ü%20日'", "NULL", "'x/y=z'", "'q\"u`o\\\\te'", "'[b]*?{c}'"),
        *(
            "'plus+&#'",
            "''",
            "' lead'",
            "'a\\tb'",
            "'007'",
            "'1e3'",
            "'2013-01-01'",
            "'.x'",
            "'_x'",
        ),
    ),
    "p DOUBLE": ("DOUBLE('NaN')", "0D", "-0D", "NULL", "1E300D", "0.1D", "DOUBLE('-Infinity')"),
    "p FLOAT": ("FLOAT('NaN')", "FLOAT(0.1)", "FLOAT('-0')", "NULL"),
    "p BOOLEAN": ("true", "false", "NULL"),
    "p DECIMAL(6,2)": ("1.5", "-0.05", "NULL", "1000"),
    "p BIGINT": ("9223372036854775807", "-1", "NULL", "0"),
    "p SMALLINT": ("-32768", "7"),
    "p BINARY": ("X'6162'", "X'41'", "NULL"),
    "`select` INT, `Ünï` STRING": ("1, 'a'", "NULL, 'b ü'", "2, NULL"),
}
PROPERTIES = {
    "delta.enableDeletionVectors": ("true", "true", "false"),
    "delta.columnMapping.mode": ("none", "none", "name", "id"),
    "delta.enableChangeDataFeed": ("false", "true"),
    "delta.enableRowTracking": ("false", "false", "true"),
    "delta.enableTypeWidening": ("false", "false", "true"),
    "delta.checkpointInterval": ("1", "2", "100"),
    "delta.checkpointPolicy": ("classic", "v2"),
    "delta.randomizeFilePrefixes": ("false", "false", "true"),
    "delta.dataSkippingNumIndexedCols": ("32", "0"),
}
PLAIN = (
    "id BIGINT, text STRING, number INT, more STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING>>>,"
    " pairs MAP<STRING, TIMESTAMP>"
)
RESPELLED = {"true": "T", "false": "0"}


Row = tuple[str, ...]


class Drawn:
    """One table, which its seed decides. `told` says what was done, for the one who reads a failure."""

    def __init__(self, lake: Lake, spark: "SparkSession", seed: int) -> None:
        self.random = Random(seed)
        self.lake, self.spark = lake, spark
        self.time = self.random.choice([*TIMES])
        self.other = self.random.choice([*OTHERS])
        self.values = [*OTHERS[self.other]]
        self.properties = {name: self.random.choice(values) for name, values in PROPERTIES.items()}
        self.name = f"delta.`{lake.settings.table_uri(KEY)}`"
        self.told = [f"seed {seed}: {self.time}, {self.other}, {self.properties}"]
        self.columns = "id, text, number, more, pairs"
        archive = Archive(older_than_days=3, clock="newest_row", late="append")
        table = replace(DAYS, archive=archive)
        self.session = TableSession(lake=lake, spark=spark, table=table)
        self.next_id = 0
        self.field = "c"

    def sql(self, statement: str) -> None:
        self.told.append(statement)
        self.spark.sql(statement.replace("{t}", self.name))

    def create(self) -> None:
        columns = ", ".join(filter(None, (self.time, self.other)))
        names = ", ".join(column.rpartition(" ")[0] for column in columns.split(", "))
        properties = ", ".join(f"'{name}' = '{each}'" for name, each in self.properties.items())
        self.sql(
            f"CREATE TABLE {{t}} ({PLAIN}, {columns}) USING delta"
            f" PARTITIONED BY ({names}) TBLPROPERTIES ({properties})"
        )
        self.columns += f", {names}"

    def append(self, *days: int) -> None:
        rows = list[str]()
        for day in days:
            time = TIMES[self.time].format(day=day, hour=day % 3)
            if self.random.random() < 0.1:
                time = ", ".join(["NULL"] * (self.time.count(",") + 1))
            other = self.random.choice(self.values) if self.values else ""
            for _ in range(self.random.randint(1, 3)):
                number = self.random.choice([str(self.random.randrange(1_000)), "NULL"])
                more = f"named_struct('a', {number}, 'b', array(named_struct('{self.field}', 'c{self.next_id}')))"
                pairs = f"map('at', TIMESTAMP'2013-01-01 00:00:0{self.next_id % 10}')"
                parts = [str(self.next_id), f"'text {self.next_id}'", number]
                parts += [self.random.choice([more, "NULL"]), pairs, time, other]
                rows.append(f"({', '.join(filter(None, parts))})")
                self.next_id += 1
        self.sql(f"INSERT INTO {{t}} ({self.columns}) VALUES {', '.join(rows)}")

    def change(self) -> None:
        """A change of rows, or of the table."""
        id_, text, *_ = self.columns.split(", ")
        if self.random.random() < 0.4:
            self.sql(f"DELETE FROM {{t}} WHERE {id_} % 4 = {self.random.randrange(4)}")
        if self.random.random() < 0.3:
            self.sql(f"UPDATE {{t}} SET {text} = concat('new ', {text}) WHERE {id_} % 3 = 1")
        if self.random.random() < 0.2:
            self.sql("OPTIMIZE {t}")
        if self.random.random() < 0.5:
            before = self.all_rows()
            self.evolve()
            assert [
                row[: len(each)] for row, each in zip(self.all_rows(), before, strict=True)
            ] == before, self.told

    def evolve(self) -> None:
        """Adds a column, renames a column or a field, or makes a column wider. Values stay."""
        new = f"new_{len(self.told)}"
        first, text, number, *_ = self.columns.split(", ")
        choices = [f"ADD COLUMN ({new} INT)"]
        if self.properties["delta.columnMapping.mode"] != "none":
            renamed = self.random.choice([first, text, number])
            choices += [f"RENAME COLUMN {renamed} TO {new}"] * 2
            choices.append(f"RENAME COLUMN more.b.element.{self.field} TO {new}")
        if self.properties["delta.enableTypeWidening"] == "true":
            choices.append(f"ALTER COLUMN {number} TYPE BIGINT")
        chosen = self.random.choice(choices)
        self.sql(f"ALTER TABLE {{t}} {chosen}")
        if chosen.startswith("RENAME COLUMN more."):
            self.field = new
        elif chosen.startswith("RENAME"):
            old = chosen.split()[2]
            self.columns = ", ".join(
                new if each == old else each for each in self.columns.split(", ")
            )

    def respell(self) -> None:
        """Adds copies of files as other writers make them: partition values in other spellings."""
        snapshot = facts_now(self.lake).snapshot
        if "rowTracking" in snapshot.features:
            return  # other writers would have to number their rows
        newest = f"{KEY}/_delta_log/{snapshot.version:020}.json"
        actions = [json.loads(line) for line in self.lake.store.read(newest).splitlines()]
        lines = [json.dumps({"commitInfo": {"operation": "WRITE", "timestamp": 1}})]
        adds = [action["add"] for action in actions if "add" in action]
        for place, add in enumerate(each for each in adds if not each.get("deletionVector")):
            name = f"other-{snapshot.version}-{place}.parquet"
            self.lake.store.put(
                f"{KEY}/{name}", self.lake.store.read(f"{KEY}/{unquote(add['path'])}")
            )
            values = {
                column: value and _respelled(value)
                for column, value in add["partitionValues"].items()
            }
            copied = {**add, "path": name, "partitionValues": values, "dataChange": True}
            lines.append(json.dumps({"add": copied}))
        self.told.append(f"other spellings: {lines}")
        name = f"{KEY}/_delta_log/{snapshot.version + 1:020}.json"
        self.lake.store.put(name, "\n".join(lines).encode())

    def all_rows(self) -> list[Row]:
        """The rows of table and archive, sorted."""
        return _texts(read_table(self.session, with_archive=True))

    def archive(self) -> None:
        before = self.all_rows()
        moved = run_archive(self.session).operation
        self.told.append(f"archive: {moved and [each.values for each in moved.partitions]}")
        assert self.all_rows() == before, "; ".join(self.told)

    def check(self) -> None:
        self.create()
        self.append(1, 2, 3, 4)
        self.change()
        self.append(2, 3, 9, 10)
        if self.random.random() < 0.4:
            self.respell()
        self.archive()
        self.change()
        self.append(1, 4, 5, 6, 12)
        self.archive()
        before = self.all_rows()
        with session_confs(self.spark, {"spark.sql.session.timeZone": self.random.choice(ZONES)}):
            run_restore(self.session, RestoreRequest())
        assert contents_now(self.lake).partitions == ()
        assert self.all_rows() == before, self.told


ZONES = ("UTC", "UTC", "America/New_York")


def _respelled(value: str) -> str:
    """The value as other writers may spell it: Trino writes decimals without zeros at their end."""
    if value in RESPELLED:
        return RESPELLED[value]
    if re.fullmatch(r"-?\d+\.\d\d", value):
        return value.rstrip("0").rstrip(".")
    if re.fullmatch(r"-?\d+", value):
        return f"-0{value[1:]}" if value.startswith("-") else f"0{value}"
    return value.replace("-01-0", "-1-0")


def _texts(frame: "DataFrame") -> list[Row]:
    return sorted(tuple(map(_text, row)) for row in frame.collect())


def _text(value: Any) -> str:
    """The value without the names of fields, which change."""
    return f"({', '.join(map(_text, value))})" if isinstance(value, tuple | list) else str(value)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + TABLES))
def test_every_row_stays_as_it_was(
    shared_settings: Settings, spark: "SparkSession", tmp_path: Path, seed: int
) -> None:
    lake = open_lake(replace(shared_settings, root=str(tmp_path / "lake")))
    Drawn(lake, spark, seed).check()
