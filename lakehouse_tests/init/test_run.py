"""A project from files: what is read, what is refused, and that it is there complete or not at all."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dotenv import dotenv_values

from lakehouse.base.errors import Refused
from lakehouse.base.installation import ROOT
from lakehouse.base.settings import parse_settings
from lakehouse.init import run
from lakehouse.init.run import Project, check_target, plan_project, write_project
from lakehouse.lake.declared_tables import declared_tables
from lakehouse.store import DiskStore
from lakehouse_tests.support.storage import aws, bucket, endpoint, one_loader  # noqa: F401
from lakehouse_tests.support.terminal import Terminal

ORDERS = "Order No;amount;at\n1;1.234,50;2026-01-15 10:00:00\n2;9,50;2026-01-16 11:30:00\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a file of orders."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders-2026-01.csv").write_text(ORDERS)
    return tmp_path


def planned(source: str, folder: Path, key: str | None = None) -> Project:
    return plan_project(source, folder, key)


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_project_declares_its_tables(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(here / "home")
    shown = terminal.run("init", "my-first", "--from", "orders-2026-01.csv")
    assert shown.exit_code == 0, shown.stderr
    lines = [line.strip() for line in shown.stdout.splitlines()]
    assert lines[1] == "Its tables will be in .lakehouse/lake."
    assert lines[2].startswith("Look at my-first/my_first/bronze.py: ")
    assert lines[-5:-1] == ["cd my-first", "lakehouse materialize", "dagster dev", ""]
    assert lines[-1].endswith('lakehouse sql "SELECT * FROM silver.orders LIMIT 10"')
    project = here / "my-first"
    landed = ".lakehouse/lake/landing/orders/orders-2026-01.csv"
    texts = {".env", ".gitignore", "dagster.yaml", "pyproject.toml"}
    modules = {f"my_first/{name}.py" for name in ("__init__", "bronze", "silver")}
    assert files_in(project) == {landed, *texts, *modules}
    assert (project / landed).read_text() == ORDERS
    assert [path.name for path in here.glob(".*")] == []

    monkeypatch.syspath_prepend(str(project))
    environ = {name: str(value) for name, value in dotenv_values(project / ".env").items()}
    settings = parse_settings(environ, base=project)
    assert settings.root == str(project / ".lakehouse/lake")
    tables = declared_tables(settings)
    assert [*tables] == ["bronze/orders", "silver/orders"]
    [bronze, silver] = tables.values()
    assert bronze.landing.schema == "order_no BIGINT, amount DECIMAL(38,2), at TIMESTAMP"
    assert bronze.renamed == {"Order No": "order_no"}
    assert silver.inputs == (bronze,)
    for arguments in (["format", "--check"], ["check", "--select=ALL", "--ignore=CPY,D,ERA"]):
        ruff = [sys.executable, "-m", "ruff", *arguments, "--isolated", "--line-length=100"]
        done = subprocess.run([*ruff, "."], cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_a_dry_run_prints_every_file_and_writes_none(here: Path) -> None:
    shown = Terminal(here / "home").run("init", "shop", "--from", "orders-2026-01.csv", "--dry-run")
    assert "==> shop/shop/bronze.py <==" in shown.stdout
    assert 'csv=Csv(delimiter=";", decimal=","),' in shown.stdout
    assert shown.stdout.splitlines()[-1].endswith("orders-2026-01.csv <== (77 B, copied)")
    assert files_in(here) == {"orders-2026-01.csv"}


def test_only_a_new_or_empty_folder_is_taken(here: Path) -> None:
    (here / "shop").mkdir()
    check_target(here / "shop")
    (here / "shop" / "mine").write_text("mine")
    with pytest.raises(Refused, match="is not empty"):
        check_target(here / "shop")
    with pytest.raises(Refused, match="Make it first"):
        check_target(here / "none" / "shop")
    with pytest.raises(Refused):  # it came meanwhile
        write_project(planned("orders-2026-01.csv", here / "shop"), here / "shop")
    assert files_in(here) == {"orders-2026-01.csv", "shop/mine"}


def test_an_error_leaves_nothing_half_done(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = planned("orders-2026-01.csv", here / "shop")
    (here / "orders-2026-01.csv").unlink()  # before it is copied
    with pytest.raises(FileNotFoundError):
        write_project(new, here / "shop")
    assert [*here.iterdir()] == []


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (("a.csv", "b.json", "c.json"), r"1 csv \(a.csv\), 2 json \(b.json\)"),
        (("_delta_log/0.json", "a.parquet"), "lakehouse adopt data"),
        (("_SUCCESS", ".hidden.csv"), "has no file of a known format"),
        ((), "there is no file at .*/data"),
        (("a.xlsx",), "a.xlsx is a zip file. .* save an Excel sheet as CSV"),
    ],
)
def test_what_is_no_table_is_refused(files: tuple[str, ...], sentence: str, here: Path) -> None:
    for name in files:
        path = here / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PK\x03\x04" if name.endswith("xlsx") else b'{"id": 1}')
    with pytest.raises(Refused, match=sentence):
        planned("data", here / "shop")
    with pytest.raises(Refused, match="--table is 'gold/orders'"):
        planned("orders-2026-01.csv", here / "shop", "gold/orders")


def test_the_schema_is_that_of_several_files_and_names_get_an_ending(here: Path) -> None:
    (here / "data" / "day=1").mkdir(parents=True)
    (here / "data" / "day=1" / "a.txt").write_text("id,n,note\n1,2,x\n")
    (here / "data" / "b.txt").write_text("id,n,note\n2,2.5,y\n")
    (here / "data" / "_SUCCESS").touch()
    new = planned("data", here / "lakehouse", "bronze/events")
    assert new.suggestion.table.landing.schema == "id BIGINT, n DOUBLE, note STRING"
    landing = ".lakehouse/lake/landing/events"
    assert {*new.copies} == {f"{landing}/b.txt.csv", f"{landing}/day=1/a.txt.csv"}
    assert "lakehouse_tables/bronze.py" in new.texts  # the name `lakehouse` is taken


def test_of_a_large_file_only_a_part_is_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_SAMPLED_BYTES", 1_000)
    (here / "events.json").write_text('{"id": 1, "note": "xxxxxxxxxx"}\n' * 1_000)
    pq.write_table(pa.table({"n": [*range(9_000)], "day": ["x"] * 9_000}), here / "events.parquet")
    monkeypatch.setattr(DiskStore, "read", None)
    for name, ddl in (("json", "id BIGINT, note STRING"), ("parquet", "n BIGINT, day STRING")):
        found = planned(f"events.{name}", here / "shop").suggestion
        assert found.table.landing.schema == ddl


def test_files_on_s3_stay_where_they_are(bucket: str, here: Path) -> None:  # noqa: F811
    client: Any = boto3.client("s3")
    for key in ("raw/orders/1.csv", "raw/orders/2/3.csv", "raw/others/1.json", "top.csv"):
        client.put_object(Bucket=bucket, Key=key, Body=ORDERS.encode())
    for address in (f"s3://{bucket}/raw/orders/", f"s3://{bucket}/raw/orders/1.csv"):
        new = planned(address, here / "shop")
        table = new.suggestion.table
        assert f"\nLAKEHOUSE_ROOT=s3://{bucket}/raw\n" in new.texts[".env"]
        assert (table.key, table.landing.prefix) == ("bronze/orders", "orders/")
        assert (new.origin, new.copies) == (f"2 files ({address})", {})
    write_project(new, here / "shop")
    assert not (here / "shop" / ".lakehouse").exists()
    client.put_object(Bucket=bucket, Key="lake/landing/o/p/1.csv", Body=ORDERS.encode())
    landed = planned(f"s3://{bucket}/lake/landing/o/p", here / "shop")
    assert f"\nLAKEHOUSE_ROOT=s3://{bucket}/lake\n" in landed.texts[".env"]
    assert landed.suggestion.table.landing.prefix == "landing/o/p/"
    for wrong in (f"s3://{bucket}", f"s3://{bucket}/top.csv"):
        with pytest.raises(Refused, match="is no folder of a bucket"):
            planned(wrong, here / "shop")


def test_the_guide_shows_what_is_written(here: Path) -> None:
    rows = "1;2026-11-20 10:00:00;1234,50;Zürich\n2;2026-11-20 10:05:00;9,50;Wien\n"
    (here / "orders.csv").write_text(f"Order No;placed_at;amount;city\n{rows}", encoding="cp1252")
    texts = planned("orders.csv", here / "shop").texts
    guide = (ROOT / "docs" / "guide.md").read_text()
    for name in ("shop/bronze.py", "shop/silver.py"):
        assert f"```python\n# {name}\n{texts[name]}```\n" in guide
