"""`archive`: what a terminal shows of an archive without a JVM, and what it refuses."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from lakehouse.cli.commands import archive as command
from lakehouse.core.archive.records import APP_ID, ArchiveOperation, RecordedPartition
from lakehouse.engine.archive.records import record_operation
from lakehouse.engine.store import DiskStore
from lakehouse_tests.cli.conftest import Terminal
from lakehouse_tests.cli.shapes import documented, shape
from lakehouse_tests.core.archive.example_archive import DAY_MS, DAYS, FILE, example_expire
from lakehouse_tests.log_builder import LogBuilder

KEY = "bronze/orders"


@pytest.fixture
def archived(terminal: Terminal) -> Terminal:
    """A table whose archive has two days; it declares none any more."""
    store = DiskStore(terminal.root)
    log = LogBuilder(store, KEY).create(partition_by=["d"])
    partitions = tuple(
        RecordedPartition(
            values=(("d", f"2013-01-0{day}"),),
            start_ms=15_705 * DAY_MS + day * DAY_MS,
            end_ms=15_706 * DAY_MS + day * DAY_MS,
            files=(replace(FILE, archived=f"archive/{KEY}/d=2013-01-0{day}/a"),),
        )
        for day in (1, 2)
    )
    operation = ArchiveOperation(
        number=1,
        kind="archive",
        table_id=log.snapshot().table_id,
        version=0,
        created_ms=0,
        cutoff_ms=0,
        storage_class="STANDARD",
        partitions=partitions,
    )
    record_operation(store, KEY, operation)
    log.append([("d=3/f", 10, 1)], transaction=(APP_ID, 1))
    return terminal


def test_the_list_names_each_partition_and_a_restore_shows_what_it_would_read(
    archived: Terminal,
) -> None:
    document = archived.json("archive", "list", KEY)
    assert shape(document) == shape(documented()["archive_list"])
    assert [each["values"]["d"] for each in document["partitions"]] == ["2013-01-01", "2013-01-02"]
    shown = archived.run("archive", "list", KEY).stdout.splitlines()
    assert shown[-1] == f"{KEY}: 2 partitions in the archive: 200 rows, 20 B"
    assert [line.split()[:3] for line in shown[2:4]] == [
        ["d=2013-01-01", "100", "10"],
        ["d=2013-01-02", "100", "10"],
    ]
    for chosen, days in (
        ([], [1, 2]),
        (["--since", "2013-01-02"], [2]),
        (["--until", "2013-01-02"], [1]),
        (["--partition", "d=2013-01-02", "--partition", "d=2013-01-09"], [2]),
        (["--until", "2013-01-01"], []),
    ):
        plan = archived.json("archive", "restore", KEY, "--into-source", "--dry-run", *chosen)
        found = [each["values"]["d"] for each in plan["partitions"]]
        assert found == [f"2013-01-0{day}" for day in days]
    plan = archived.json("archive", "restore", KEY, "--to", "bronze/again", "--dry-run")
    assert plan["target"] == f"{archived.root}/bronze/again"
    assert set(plan) == set(documented()["archive_restore"]) - {"version_after", "seconds"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["restore"], "use either --to PLACE or --into-source"),
        (["restore", "--to", "bronze/x", "--into-source"], "use either --to PLACE"),
        (["restore", "--to", "silver/orders"], "table silver/orders is declared"),
        (["restore", "--to", "Bronze/x"], "--to is 'Bronze/x'. Use layer/name"),
        (["restore", "--to", "/usr/lib"], "/usr/lib already contains files"),
        (["restore", "--into-source", "--partition", "2013-01-01"], "Use COLUMN=VALUE"),
        (["expire"], "the table declares no archive. Use Table(archive=Archive(keep_days=…))"),
        (["plan"], "none is declared. Use Table(archive=Archive(…))"),
        (["run"], "none is declared. Use Table(archive=Archive(…))"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(
    archived: Terminal, words: list[str], message: str
) -> None:
    assert message in archived.refused("archive", words[0], KEY, *words[1:])


def test_an_expiry_of_a_table_without_an_archive_deletes_nothing(archived: Terminal) -> None:
    shown = archived.run("archive", "expire", KEY, "--dry-run").stdout
    assert shown == f"{KEY}: nothing to delete: no archived partition expires\n"
    missing = archived.refused("archive", "list", "silver/orders")
    assert "Write it first: lakehouse materialize silver/orders" in missing


def test_files_that_could_not_be_deleted_fail_the_command(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = example_expire()
    monkeypatch.setattr(command, "open_table", lambda _: (SimpleNamespace(lake=None), DAYS))
    monkeypatch.setattr(command, "rehearse_expire", lambda *_: outcome.plan)
    monkeypatch.setattr(command, "_through_dagster", lambda *_, **__: outcome.as_json())
    ended = terminal.run("archive", "expire", DAYS.key)
    assert (ended.exit_code, ended.stdout.strip()) == (1, f"{DAYS.key}: {outcome.sentence}")
    assert "1 file could not be deleted, for example archive/bronze/days/" in ended.stderr
