"""`lakehouse ttl plan`, and what is refused before a JVM starts."""

import json
from datetime import UTC, datetime

import pytest

from lakehouse.engine.store import DiskStore
from lakehouse_tests.cli.conftest import Terminal
from lakehouse_tests.log_builder import LogBuilder

TABLES = """
from lakehouse import Append, Landing, Table, Ttl

SOURCE = Landing(prefix="landing/x/", format="json", schema="at TIMESTAMP, d STRING")
sessions = Table(
    key="bronze/sessions",
    source=SOURCE,
    write=Append(partition_by=("d",)),
    ttl=Ttl(column="at", days=30, clock="newest_row"),
)
forever = Table(key="bronze/forever", source=SOURCE, write=Append())
"""


@pytest.fixture
def expiring(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A table whose newest row is of 10 March 2026."""
    folder = terminal.home / "declared"
    folder.mkdir(parents=True)
    (folder / "ttl_tables.py").write_text(TABLES)
    monkeypatch.syspath_prepend(str(folder))
    terminal.environ["LAKEHOUSE_TABLES"] = "ttl_tables"
    story = LogBuilder(DiskStore(terminal.root), "bronze/sessions")
    story.create(columns={"at": "timestamp", "d": "string"}, partition_by=["d"])

    def times(first: str, last: str, rows: int) -> dict[str, object]:
        bounds = {
            name: {"at": f"2026-{day}T12:00:00.000Z"}
            for name, day in (("minValues", first), ("maxValues", last))
        }
        return {"numRecords": rows, "nullCount": {"at": 0}, **bounds}

    story.append([("d=a/1", 100, times("01-01", "01-31", 10))])
    story.append([("d=b/2", 200, times("01-01", "03-10", 20))])
    return terminal


def test_the_plan_names_steps_rows_and_when_they_are_gone(expiring: Terminal) -> None:
    plan = expiring.json("ttl", "plan", "bronze/sessions")
    assert plan["cutoff_ms"] == datetime(2026, 2, 8, 12, tzinfo=UTC).timestamp() * 1_000
    assert (plan["reason"], plan["least_rows"], plan["most_rows"]) == ("PAST_THE_CUTOFF", 10, 30)
    assert [(step["by_metadata"], step["files"]) for step in plan["steps"]] == [
        (True, 1),
        (False, 1),
    ]
    shown = expiring.run("ttl", "plan", "bronze/sessions").stdout
    assert shown.startswith(
        "bronze/sessions: all rows of 1 file (100 B), and some of up to 1 file (200 B): "
        "from before 2026-02-08 12:00 UTC, 30 days before the newest row (2026-03-10 12:00 UTC)\n"
    )
    assert "at least 10 and at most 30 rows are deleted in 2 steps" in shown
    assert json.dumps(plan["notes"][0])[1:40] in shown.replace("bronze/sessions: ", "")


def test_a_table_without_a_ttl_or_without_rows_is_refused(expiring: Terminal) -> None:
    for command in ("plan", "run"):
        assert "the table declares no TTL. Use Table(ttl=Ttl(column" in expiring.refused(
            "ttl", command, "bronze/forever"
        )
    DiskStore(expiring.root).delete(
        [file.name for file in DiskStore(expiring.root).list("bronze/sessions")]
    )
    for command in ("plan", "run"):
        assert "does not exist yet. Write it first: lakehouse materialize" in expiring.refused(
            "ttl", command, "bronze/sessions"
        )
