"""`lakehouse schema`: the schema to declare for a file."""

from pathlib import Path

from lakehouse_tests.support.terminal import Terminal

CSV = b"\xef\xbb\xbfid;amount;Unit Price;at\r\n007;9,50;1;2024-01-15\r\n8;NA;2;2024-01-15 10:00\r\n"
JSON = b'[{"id": 1, "who": {"a": [1, 2.5], "b": null}}, {"id": 2, "who": {"c": "2024-01-15"}}]'


def test_a_schema_to_declare_is_printed_for_a_file(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(CSV)
    assert terminal.run("schema", str(tmp_path / "a.csv")).stdout.splitlines() == [
        "Landing(",
        '    prefix="landing/a/",',
        '    format="csv",',
        '    schema="id STRING, amount DOUBLE, unit_price BIGINT, at TIMESTAMP",',
        '    null_value="NA",',
        '    csv=Csv(delimiter=";", decimal=","),',
        ")",
        "# In the Table:",
        'renamed={"Unit Price": "unit_price"},',
        "# DOUBLE rounds. Use DECIMAL(12,2) for money: amount.",
    ]
    (tmp_path / "a.json").write_bytes(JSON)
    found = terminal.json("schema", str(tmp_path / "a.json"))
    assert found["schema"] == "id BIGINT, who STRUCT<a: ARRAY<DOUBLE>, c: DATE>"
    (tmp_path / "b.parquet").write_bytes(b"PAR1\x15")
    assert "Use an undamaged" in terminal.run("schema", str(tmp_path / "b.parquet")).stderr
