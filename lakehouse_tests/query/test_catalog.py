"""What needs Spark: names of tables in the server, and statements that deltalake cannot answer."""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from lakehouse.base.settings import Settings
from lakehouse.declare.table import Adopted, Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.query import run
from lakehouse_tests.query.test_command import PAGE, rows
from lakehouse_tests.support.clients import new_session
from lakehouse_tests.support.terminal import Terminal

pytestmark = pytest.mark.spark

NAME_TABLES = run.name_tables  # taken before the tests' server replaces it


def stored(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def naming(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Names are noted for this test alone: other tests have the same server."""
    monkeypatch.setattr(run, "scratch_folder", lambda _: tmp_path)


@pytest.mark.usefixtures("naming")
def test_each_client_of_the_server_knows_the_tables_that_exist_by_their_names(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "tables"
    write_deltalake(folder / "there", pa.table({"id": [1]}))
    write_deltalake(folder / "there", pa.table({"id": [2]}), mode="append")
    write_deltalake(folder / "moved", pa.table({"other": [5]}))
    before = stored(folder)

    def give_names(first: str, second: str) -> None:
        tables = [
            Table(key="gold/catalog_first", write=Adopted(uri=str(folder / first))),
            Table(key="gold/catalog_second", write=Adopted(uri=str(folder / second))),
        ]
        NAME_TABLES(open_lake(settings, tables=tables), spark, tables)

    give_names("there", "missing")
    other = new_session(settings)
    assert other.sql("SELECT sum(id) FROM gold.catalog_first").collect() == [(3,)]
    assert other.sql("SELECT id FROM gold.catalog_first VERSION AS OF 0").collect() == [(1,)]
    assert not spark.catalog.tableExists("gold.catalog_second")
    give_names("moved", "missing")
    assert other.table("gold.catalog_first").columns == ["other"]
    other.sql("DROP TABLE gold.catalog_first")
    assert stored(folder) == before


@pytest.mark.usefixtures("naming")
def test_a_folder_without_a_table_stays_empty(
    spark: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its table went between the look and the statement."""
    table = Table(key="gold/catalog_gone", write=Adopted(uri=str(tmp_path / "gone")))
    monkeypatch.setattr(run, "is_table", lambda *_: True)
    NAME_TABLES(open_lake(settings, tables=[table]), spark, [table])
    assert not (tmp_path / "gone").exists()


def test_spark_answers_where_deltalake_cannot(
    spark: SparkSession, settings: Settings, terminal: Terminal
) -> None:
    table = f"delta.`{terminal.root}/bronze/orders`"
    spark.sql(
        f"CREATE TABLE {table} (id INT, v VARIANT) USING delta"
        " TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    spark.sql(f"INSERT INTO {table} SELECT 1, parse_json('{{\"a\": 1}}')")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    terminal.home.mkdir(exist_ok=True)
    (terminal.home / "server").symlink_to(settings.home / "server")
    environ = {"LAKEHOUSE_SPARK_PORT": str(settings.spark_port)}
    statement = 'SELECT o."id", to_json(v) AS v FROM bronze.orders VERSION AS OF 2 AS o'
    assert rows(terminal, statement, **environ) == [{"id": 1, "v": '{"a":1}'}]
    written = spark.sql(f"DESCRIBE HISTORY {table}").where("version = 1")
    [[time]] = written.selectExpr("CAST(timestamp AS STRING)").collect()
    at_time = f"SELECT id FROM bronze.orders FOR TIMESTAMP AS OF '{time}' AS o"
    assert rows(terminal, at_time, **environ) == [{"id": 1}]
    shown = terminal.run("sql", "SELECT id FROM bronze.orders", **environ)
    assert "deltalake cannot read bronze/orders" in shown.stderr
    asked = terminal.run("sql", "--spark", "SELECT nope FROM bronze.orders", **environ)
    assert asked.exit_code == 2 and "`nope` cannot be resolved" in asked.stderr
    assert "Project" not in asked.stderr
    assert "JVM" not in asked.stderr and "JVM" not in asked.stdout


@pytest.mark.long  # it uses the catalog and the session that other tests share
@pytest.mark.usefixtures("naming")
def test_the_snippets_of_the_page_for_spark_run(
    spark: SparkSession,
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    daily = pa.table({"airline": ["A", "B"], "flight_count": [100, 200]})
    write_deltalake(Path(lake.settings.root) / "gold/carrier_daily", daily)
    declared = Table(
        key="gold/carrier_daily", write=Adopted(uri=f"{lake.settings.root}/gold/carrier_daily")
    )
    NAME_TABLES(lake, spark, [declared])
    for name, value in lake.settings.as_environ().items():
        monkeypatch.setenv(name, value)
    port = f"localhost:{lake.settings.spark_port}"
    [by_key, by_name] = [
        block.replace("localhost:15002", port)
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
        if ".show()" in block
    ]
    exec(by_key, {})
    exec(by_name, {})
    shown = capsys.readouterr().out
    assert "|carrier_daily|" in shown and shown.count("|      B|         200|") == 2
