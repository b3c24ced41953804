"""Retried lines of CSV, and rows of Parquet."""

from dataclasses import replace

from pyspark.sql import SparkSession

from lakehouse import Append, Csv, Landing, Table
from lakehouse.lake.lake import Lake
from lakehouse.land.quarantine import retry
from lakehouse.materialize.run import write_table
from lakehouse_tests.land.test_quarantine import of
from lakehouse_tests.support.example_lake import rows_in


def test_lines_of_csv_keep_their_fields_and_need_the_same_ones_in_the_declaration(
    lake: Lake, spark: SparkSession
) -> None:
    source = Landing(
        prefix="landing/codes/",
        format="csv",
        schema="code STRING, name STRING",
        required=("name",),
        null_value="NA",
        csv=Csv(delimiter=";"),
        encoding="cp1252",
    )
    codes = Table(key="bronze/codes", source=source, write=Append())
    text = 'code;more;name\nA;1;one\n"Bé\n";2;NA'
    lake.store.put(f"{source.prefix}a.csv", text.encode("cp1252"))
    write_table(lake, spark, codes)
    lenient = replace(source, required=())
    turned = replace(codes, source=replace(lenient, schema="name STRING, code STRING"))
    done = retry(of(lake, spark, turned), [], dry_run=False)
    assert (done.lines, done.left) == (0, {"the lines were read with other fields: code;name": 1})
    mended = replace(codes, source=lenient)
    assert retry(of(lake, spark, mended), [], dry_run=False).lines == 1
    # The declaration changes again before the lines are loaded.
    [aside] = write_table(lake, spark, turned).set_aside
    assert aside.is_quarantined and "and not name;code" in aside.why
    assert retry(of(lake, spark, mended), [], dry_run=False).files == 1
    write_table(lake, spark, mended)
    assert rows_in(lake, codes.key, "code", "name", "_rescued") == [
        ("A", "one", '{"more":"1"}'),
        ("Bé\n", None, '{"more":"2"}'),
    ]
