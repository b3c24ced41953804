"""`lakehouse schema`: where the columns of a landed table come from."""

from pathlib import Path

from lakehouse.core.ingest.batches import Batch
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.store import DiskStore
from lakehouse_tests.cli.conftest import Terminal

HAIL = AddedColumn(
    name="hail", type="BIGINT", file="landing/orders/8.json", policy="add", at_ms=1_763_722_800_000
)


def test_declared_columns_stand_before_those_that_came_and_one_declared_since_is_told_once(
    told: Terminal,
) -> None:
    batches = PlannedBatches(DiskStore(told.root), "bronze/orders", prefix="landing/orders/")
    now_declared = AddedColumn(name="AMOUNT", type="STRING", file="", policy="add", at_ms=0)
    batches.plan(Batch(number=1, files=(), prefix="landing/orders/", columns=(HAIL, now_declared)))
    document = told.json("schema", "bronze/orders")
    columns = [" ".join((each["name"], each["type"], each["by"])) for each in document["columns"]]
    assert columns == [
        "id STRING declared",
        "amount BIGINT declared",
        "d STRING declared",
        "hail BIGINT add",
    ]
    last = told.run("schema", "bronze/orders").stdout.splitlines()[-1]
    assert last.split() == [
        "hail",
        "BIGINT",
        "add",
        "2025-11-21",
        "11:00",
        "UTC",
        "landing/orders/8.json",
    ]
    assert told.run("schema", "silver/orders").stderr == (
        "Refused: schema silver/orders: it is derived from other tables. Use a table that is loaded from landed files\n"
    )


CSV = b"\xef\xbb\xbfid;amount;Unit Price;at\r\n007;9,50;1;2024-01-15\r\n8;NA;2;2024-01-15 10:00\r\n"
JSON = b'[{"id": 1, "who": {"a": [1, 2.5], "b": null}}, {"id": 2, "who": {"c": "2024-01-15"}}]'


def test_a_schema_to_declare_is_printed_for_a_file(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(CSV)
    assert terminal.run("schema", str(tmp_path / "a.csv")).stdout.splitlines() == [
        "Landing(",
        '    prefix="landing/…/",',
        '    format="csv",',
        '    schema="id STRING, amount DOUBLE, at TIMESTAMP",',
        "    csv=Csv(delimiter=';', decimal=','),",
        "    null_value='NA',",
        ")",
        "# Names that cannot be columns, whose values are kept in _rescued: 'Unit Price'",
    ]
    (tmp_path / "a.json").write_bytes(JSON)
    found = terminal.json("schema", str(tmp_path / "a.json"))
    assert found["schema"] == "id BIGINT, who STRUCT<a: ARRAY<DOUBLE>, c: DATE>"
    (tmp_path / "b.parquet").write_bytes(b"PAR1\x15")
    assert "Use an undamaged" in terminal.run("schema", str(tmp_path / "b.parquet")).stderr


def test_a_file_whose_fields_are_wide_or_separated_by_blanks(
    terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "wide.csv").write_text(f"id,note\n1,{'x' * 200_000}\n")
    assert terminal.json("schema", str(tmp_path / "wide.csv"))["schema"] == "id BIGINT, note STRING"
    (tmp_path / "blanks.csv").write_text("id size\n1 2\n")
    assert (
        "no field of it can be a column: 'id size'. Use another file, or other names. "
        "Blanks do not separate fields"
    ) in terminal.run("schema", str(tmp_path / "blanks.csv")).stderr
