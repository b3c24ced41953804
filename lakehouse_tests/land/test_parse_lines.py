"""Small CSV files are staged by their headers, and Spark judges their records like those of large ones."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Csv, Dms, Landing, Merge, Table
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.ledger import landed_files
from lakehouse.land.parse_lines import RAW, REASON, UNDECLARED
from lakehouse.land.plan.batches import Batch
from lakehouse.land.spark.files import staged_csv
from lakehouse.land.staging import stage
from lakehouse.spark.temporary_confs import ANSI, session_confs

PREFIX = "landing/t/"


def judged(lake: Lake, spark: SparkSession, texts: list[str], **declared: Any) -> list[Any]:
    """The texts, problems and undeclared fields of the records of some files, in order."""
    landing = Landing(prefix=PREFIX, format="csv", **declared)
    write = Append() if landing.changes is None else Merge(keys=("id",))
    table = Table(key="bronze/t", source=landing, write=write)
    session = TableSession(lake=lake, spark=spark, table=table)
    for number, text in enumerate(texts):
        lake.store.put(f"{PREFIX}{number}.csv", text.encode("latin-1"))
    files = tuple(landed_files(lake.store, landing))
    batch, _ = stage(lake.store, "bronze/t", Batch(number=1, files=files, prefix=PREFIX), landing)
    rows = list[Any]()
    with session_confs(spark, {ANSI: "false"}):
        for frame in staged_csv(session, batch):
            names = [name for name in (RAW, REASON, UNDECLARED) if name in frame.columns]
            rows += [tuple(row) for row in frame.select(*names).collect()]
    return rows


def test_undeclared_fields_are_kept_with_their_texts(lake: Lake, spark: SparkSession) -> None:
    wide = "a b;id;x;name;y\n'1;''2''';7;;'n;m';\n;8;'' ;'';5\n;9; 'b;'';\n;10\n"
    narrow = "id;name\n11;'a\nb'\n12;\xff\n13;14;15\n"
    found = judged(
        lake,
        spark,
        [wide, narrow],
        schema="id BIGINT, name STRING",
        csv=Csv(delimiter=";", quote="'"),
    )
    assert found == [
        ("7;'n;m'", None, '{"a b":"1;\'2\'"}'),
        ("8;''", None, '{"y":"5"}'),
        ("9;''", None, '{"x":" \'b"}'),
        (";10", "it has more or fewer fields than the 5 in its header", None),
        ("11;'a\nb'", None),
        ("12;\\xff", "not UTF-8"),
        ("13;14;15", "it has more or fewer fields than the 2 declared"),
    ]


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
    [(raw, why, undeclared)] = judged(
        lake,
        spark,
        ['id,name,a,b,c,d\n1,x,,"",NULL,-\n'],
        schema="Op STRING, id BIGINT, name STRING",
        null_value=null_value,
        changes=Dms(),
    )
    assert (raw, why, undeclared) == (",1,x", None, others)
