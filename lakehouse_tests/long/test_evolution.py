"""Every change of a declaration, for every way of writing a table, against an oracle that was told the change."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakehouse import Table
from lakehouse.base.errors import Refused
from lakehouse.base.settings import Settings
from lakehouse.evolve.run import apply_changes, propose
from lakehouse.lake.lake import Lake, TableSession, open_lake
from lakehouse.materialize.run import write_table
from lakehouse.spark.session import connect
from lakehouse_tests.evolution_cases import AFTER, BASE, BEFORE, CASES, WAYS, Case, Way
from lakehouse_tests.support.example_lake import rows_in, rows_of


def write_all(lake: Lake, spark: SparkSession, tables: list[Table]) -> None:
    for table in tables:
        write_table(lake, spark, table)


def follow(lake: Lake, spark: SparkSession, way: Way, case: Case) -> bool:
    """Makes the table follow its changed declaration; false if that is refused, as it must be."""
    tables = way.tables(case)
    session = TableSession(lake=lake, spark=spark, table=tables[-1])
    waits = case.asks and way.mode != "overwrite"
    if waits:
        with pytest.raises(Refused, match=r"declaration has changed: .* `lakehouse evolve"):
            write_all(lake, spark, tables)
    elif not (case.drop and way.mode != "overwrite"):
        return True
    if case.impossible:
        with pytest.raises(Refused, match=case.impossible):
            propose(session, tables, drop=case.drop)
        with pytest.raises(Refused, match=case.impossible):
            apply_changes(session, tables, lambda _: None, drop=case.drop)
        return False
    assert propose(session, tables, drop=case.drop).plan.sentence
    apply_changes(session, tables, lambda _: None, drop=case.drop)
    return True


def check_case(lake: Lake, spark: SparkSession, way: Way, case: Case) -> None:
    tables = way.tables(Case(columns=BASE))
    for number, row in enumerate(BEFORE, start=1):
        way.land(lake, number, row, {})
        write_all(lake, spark, tables)
    way.land(lake, len(BEFORE) + 1, AFTER[0], {})
    if not follow(lake, spark, way, case):
        rows = [*BEFORE]
        case = Case(columns=BASE)
    else:
        names = case.renamed if way.is_landed else {}
        last = way.last_row(case)
        changed = way.tables(case)
        write_all(lake, spark, changed)
        way.land(lake, len(BEFORE) + 2, last, names)
        write_all(lake, spark, changed)
        rows = [*BEFORE, AFTER[0], last]
        session = TableSession(lake=lake, spark=spark, table=changed[-1])
        after = propose(session, tuple(changed)).plan
        assert not after.blocking
    expected = way.rows_after(case, rows, lambda place: place >= len(BEFORE))
    names = [*expected[0]]
    wanted = sorted((tuple(row.values()) for row in expected), key=str)
    assert rows_of(spark, lake, way.key, *names) == wanted
    if not lake.on_s3(way.key):
        assert rows_in(lake, way.key, *names) == wanted
    assert lake.facts("quarantine/bronze/rows") is None


@pytest.mark.parametrize("change", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_rows_after_a_change_are_those_of_an_oracle_that_was_told_it(
    lake: Lake, spark: SparkSession, way: str, change: str
) -> None:
    """Old and new landed files mixed; read by Spark and by deltalake."""
    check_case(lake, spark, Way(way), CASES[change])


@pytest.mark.parametrize("way", ["landed append", "landed merge", "derived merge"])
def test_rows_on_s3_are_those_of_the_oracle_too(on_s3: Settings, way: str) -> None:
    chosen = (
        "a column in the middle",
        "a wider decimal",
        "a new name and a wider type",
        "a narrower type that does not fit",
        "two columns less and one more",
    )
    spark = connect(on_s3)
    for number, change in enumerate(chosen):
        lake = open_lake(replace(on_s3, root=f"{on_s3.root}/{way.replace(' ', '-')}-{number}"))
        check_case(lake, spark, Way(way), CASES[change])
