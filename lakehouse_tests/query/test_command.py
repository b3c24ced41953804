"""`lakehouse sql` without a JVM: on disk, on S3, and as the page about it says."""

import json
import os
import re
import shlex
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse_tests.cli.test_output import ACTS, acting
from lakehouse_tests.support.terminal import Terminal

PAGE = Path(__file__).resolve().parents[2] / "docs" / "read-tables.md"


@pytest.fixture
def orders(terminal: Terminal) -> Terminal:
    """A lake with two versions of a table, and a log that nobody can read."""
    first = {"id": ["a", None], "amount": [1, 2], "d": ["1", "1"]}
    write_deltalake(terminal.root / "bronze/orders", pa.table(first))
    write_deltalake(terminal.root / "bronze/orders", pa.table(first), mode="append")
    write_deltalake(terminal.root / "quarantine/bronze/orders", pa.table({"raw": ["{"]}))
    broken = terminal.root / "silver/orders/_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020}.json").write_text("nonsense")
    return terminal


def rows(terminal: Terminal, statement: str, **environ: str) -> list[dict[str, object]]:
    result = terminal.run("sql", "--json", statement, **environ)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["rows"]


def test_tables_are_read_by_their_names_and_at_any_version(orders: Terminal) -> None:
    assert rows(orders, "SELECT sum(orders.amount) AS s FROM bronze.orders") == [{"s": 6}]
    old_and_new = "bronze.orders AS new LEFT ANTI JOIN bronze.orders VERSION AS OF 0 AS old"
    query = f"SELECT count(*) AS n FROM {old_and_new} ON new.id = old.id"
    assert rows(orders, query) == [{"n": 2}]
    assert rows(orders, "SELECT raw FROM quarantine.bronze.orders") == [{"raw": "{"}]


def test_a_limit_holds_where_no_column_is_read_from_files(terminal: Terminal) -> None:
    """delta-rs 1.6.6 returned all rows."""
    days = pa.table({"id": [1, 2, 3, 4], "d": ["1", "1", "2", "2"]})
    write_deltalake(terminal.root / "bronze/orders", days, partition_by=["d"])
    assert len(rows(terminal, "SELECT 1 AS x FROM bronze.orders LIMIT 3 OFFSET 2")) == 2
    assert rows(terminal, "SELECT d FROM bronze.orders WHERE d = '2' LIMIT 1") == [{"d": "2"}]


def test_a_table_that_cannot_be_read_hurts_only_who_names_it(orders: Terminal) -> None:
    names = ("bronze.orders", "quarantine.bronze.orders", "silver.orders")
    assert orders.json("sql", "SHOW TABLES")["rows"] == [{"table": name} for name in names]
    assert rows(orders, "SELECT 'silver.orders' AS x") == [{"x": "silver.orders"}]
    asked = orders.run("sql", "SELECT * FROM silver.orders", LAKEHOUSE_SPARK="sc://127.0.0.1:1")
    assert asked.exit_code == 75 and "deltalake cannot read silver/orders" in asked.stderr


def test_columns_are_described(orders: Terminal) -> None:
    described = orders.json("sql", "DESCRIBE bronze.orders VERSION AS OF 0")["rows"]
    assert described[1] == {"column_name": "amount", "data_type": "Int64", "is_nullable": "YES"}


def test_what_is_wrong_is_said_in_a_sentence(orders: Terminal) -> None:
    assert orders.refused("sql", "SELECT * FROM bronze.order").startswith(
        "Refused: sql: there is no table bronze.order. Did you mean bronze.orders"
    )
    said = "the table gold/totals does not exist yet"
    assert said in orders.refused("sql", "SELECT * FROM gold.totals")
    said = "bronze/orders has no version 9, but up to 1"
    assert said in orders.refused("sql", "SELECT * FROM bronze.orders VERSION AS OF 9")
    assert "No field named nope" in orders.refused("sql", "SELECT nope FROM bronze.orders")
    said = "Divide by zero"
    assert said in orders.refused("sql", "SELECT 1 / (amount - amount) FROM bronze.orders")
    assert "DELETE is refused" in orders.refused("sql", "DELETE FROM bronze.orders")
    expected = "Refused: sql: Expected: identifier, found: EOF\n"
    assert orders.refused("sql", "SELECT * FROM") == expected
    assert "single SQL statement" in orders.refused("sql", "SELECT 1; SELECT 2")
    assert rows(orders, "SELECT 1 AS x;") == [{"x": 1}]
    assert "exclude each other" in orders.run("sql", "SELECT 1", "--csv", "--json").stderr
    [file, *_] = DeltaTable(orders.root / "bronze/orders").file_uris()
    Path(file).unlink()
    lost = orders.run("sql", "SELECT * FROM bronze.orders")
    assert lost.exit_code == 1 and "versions): Object at location /" in lost.stderr


def test_a_grid_is_bounded_and_csv_and_json_are_whole(terminal: Terminal) -> None:
    wide = {f"column_{number}": [f"{number} {ACTS}{'x' * 90}"] * 60 for number in range(9)}
    write_deltalake(terminal.root / "bronze/orders", pa.table(wide))
    shown = terminal.run("sql", "SELECT * FROM bronze.orders")
    lines = shown.stdout.splitlines()
    assert len(lines) == 52 and max(map(len, lines)) <= 220 and acting(shown.stdout) == set()
    assert "the first 50 rows and 6 of 9 columns" in shown.stderr
    assert len(rows(terminal, "SELECT * FROM bronze.orders")) == 60
    csv = terminal.run("sql", "--csv", "SELECT 'a,b' AS x, NULL AS y FROM bronze.orders LIMIT 2")
    assert csv.stdout == 'x,y\n"a,b",\n"a,b",\n'


def test_every_type_has_a_text(terminal: Terminal) -> None:
    values = {
        "decimal": pa.array([Decimal("12345678901234567890.10")]),
        "double": pa.array([float("nan")]),
        "date": pa.array([date(2026, 1, 2)]),
        "time": pa.array([datetime(1500, 1, 2, 3, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "bytes": pa.array([b"\x00\xff"]),
        "nested": pa.array([{"a": [1, None]}]),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    }
    write_deltalake(terminal.root / "bronze/orders", pa.table(values))
    assert rows(terminal, "SELECT * FROM bronze.orders") == [
        {
            "decimal": "12345678901234567890.10",
            "double": "nan",
            "date": "2026-01-02",
            "time": "1500-01-02 03:00:00+00:00",
            "bytes": "00ff",
            "nested": {"a": [1, None]},
            "map": [["k", 1]],
        }
    ]
    nothing = terminal.run("sql", "SELECT nested, NULL AS x FROM bronze.orders")
    assert nothing.stdout.splitlines()[-1] == '{"a": [1, null]}  NULL'


def test_a_lake_in_a_bucket_is_read_in_the_same_way(terminal: Terminal, bucket: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    root = f"s3://{bucket}/some/lake"
    options = {"AWS_ALLOW_HTTP": "true"}
    for key in ("bronze/orders", f"inventory/{bucket}"):
        write_deltalake(f"{root}/{key}", pa.table({"id": [1, 2]}), storage_options=options)
    environ["LAKEHOUSE_ROOT"] = root
    newest = "SELECT max(id) AS x FROM bronze.orders VERSION AS OF 0"
    assert rows(terminal, newest, **environ) == [{"x": 2}]
    names = [each["table"] for each in rows(terminal, "SHOW TABLES", **environ)]
    assert names == ["bronze.orders", f"inventory.{bucket}"]
    joined = f'SELECT count(*) AS n FROM bronze.orders JOIN inventory."{bucket}" USING (id)'
    assert rows(terminal, joined, **environ) == [{"n": 2}]


def test_the_snippets_of_the_page_run(
    terminal: Terminal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those for Spark run in `test_catalog.py`."""
    daily = pa.table({"airline": ["A", "B"], "flight_count": [100, 200]})
    write_deltalake(tmp_path / ".lakehouse/lake/gold/carrier_daily", daily)
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    environ = {
        "LAKEHOUSE_HOME": str(tmp_path / ".lakehouse"),
        "LAKEHOUSE_TABLES": "lakehouse.tables",
    }
    for line in re.findall(r"^lakehouse (sql .*)$", text, flags=re.MULTILINE):
        words = shlex.split(line.partition(" >")[0])
        assert terminal.run(*words, **environ).exit_code == 0, line
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    run_here = [block for block in blocks if "spark" not in block and "lakehouse.read" not in block]
    assert len(run_here) == 3
    for block in run_here:
        exec(block, {})
        assert "200" in capsys.readouterr().out
