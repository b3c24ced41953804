"""`lakehouse adopt`: what is found of tables of others, what is written down, and what is refused with what would be accepted."""

from pathlib import Path

import pytest

from lakehouse.adopt.command import write_adopted
from lakehouse.base.errors import Refused
from lakehouse.base.settings import parse_settings
from lakehouse.declare.adopted import adopted_table
from lakehouse.lake.lake import open_lake
from lakehouse.lake.lease import hold
from lakehouse.store import DiskStore
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.terminal import Terminal


def adopted(terminal: Terminal) -> str:
    return (terminal.home / "adopted.toml").read_text()


def test_an_adopted_table_is_one_of_the_lake_s(terminal: Terminal, warehouse: Path) -> None:
    shown = terminal.run("adopt", f"{warehouse}/events").stdout
    assert f"silver/events is {warehouse}/events, written by delta-rs:py-" in shown
    lines = f'["silver/events"]\nuri = "{warehouse}/events"\n'
    assert adopted(terminal).endswith(lines)
    [health] = terminal.json("health", "silver/events")
    assert (health["file_count"], health["uri"]) == (12, f"{warehouse}/events")


def test_an_adopted_table_that_is_gone_is_not_made(terminal: Terminal, warehouse: Path) -> None:
    terminal.run("adopt", f"{warehouse}/events")
    (warehouse / "events").rename(warehouse / "moved")
    refused = terminal.refused("compact", "silver/events", "--dry-run")
    assert f"is not at {warehouse}/events. If it has moved, declare" in refused


def test_all_tables_below_a_prefix_are_adopted(terminal: Terminal, warehouse: Path) -> None:
    terminal.run("adopt", f"{warehouse}/customers", "--key", "gold/customers")
    lines = terminal.run("adopt", "--prefix", str(warehouse)).stdout.splitlines()
    assert [line.split()[1] for line in lines[2:4]] == ["silver/events", "gold/customers"]
    [line] = [line for line in lines if line.startswith(f"gold/customers is {warehouse}/customers")]
    assert line.endswith("(already declared)")
    assert adopted(terminal).count("uri = ") == 2
    before = adopted(terminal)
    again = terminal.json("adopt", "--prefix", str(warehouse))
    expected = [("gold/customers", True), ("silver/events", True)]
    assert [(each["table"], each["adopted"]) for each in again] == expected
    assert adopted(terminal) == before


def test_an_unreadable_log_is_named_and_others_shown(terminal: Terminal, warehouse: Path) -> None:
    LogBuilder(DiskStore(warehouse), "broken").create()
    (warehouse / "broken/_delta_log/00000000000000000000.json").write_text("{")
    alone = terminal.run("adopt", "--prefix", f"{warehouse}/broken", "--dry-run")
    assert alone.exit_code == 1
    fleet = terminal.json("adopt", "--prefix", str(warehouse), "--dry-run", exit_code=1)
    found = {each["uri"].rpartition("/")[2]: each for each in fleet}
    broken = found.pop("broken")
    assert broken["sentence"].endswith(f"Restore the file (silver/broken is {warehouse}/broken)")
    assert broken["reason"] == "BROKEN"
    keys = {name: each["table"] for name, each in found.items()}
    assert keys == {"events": "silver/events", "customers": "silver/customers"}


def test_what_a_person_wrote_in_the_file_stays(terminal: Terminal, warehouse: Path) -> None:
    terminal.home.mkdir(parents=True)
    mine = f'# mine\n["gold/mine"]  # all mine\nuri = "{warehouse}/customers"\norphans = "delete"\n'
    (terminal.home / "adopted.toml").write_text(mine)
    terminal.run("adopt", f"{warehouse}/events")
    assert adopted(terminal).startswith(mine) and '["silver/events"]' in adopted(terminal)


def refused(terminal: Terminal, *arguments: str) -> str:
    before = adopted(terminal) if (terminal.home / "adopted.toml").exists() else ""
    result = terminal.run("adopt", *arguments)
    assert result.exit_code == 2, result.stdout
    assert (adopted(terminal) if before else "") == before
    return result.stderr


def test_refusals_say_what_is_accepted(terminal: Terminal, warehouse: Path, tmp_path: Path) -> None:
    events = f"{warehouse}/events"
    for arguments, said in (
        ([f"{warehouse}/event"], "there is no Delta table at"),
        ([events, "--key", "silver/orders"], "already has the key silver/orders. Use"),
        ([events, "--key", "silver/orders"], "Use another key, for example silver/events"),
        ([events, "--key", "copper/events"], "a layer of bronze, silver, gold"),
        ([], "use either an ADDRESS or --prefix"),
        (["--prefix", str(warehouse), "--key", "silver/x"], "Omit it: each table gets a key"),
        (["--prefix", f"{warehouse}/nothing"], "there is no Delta table at"),
    ):
        assert said in refused(terminal, *arguments)
    terminal.run("adopt", f"{warehouse}/events")
    assert "it is already declared as silver/events" in refused(
        terminal, f"{warehouse}/events", "--key", "gold/events"
    )


def test_the_key_of_a_table_in_the_lake_is_taken(terminal: Terminal, warehouse: Path) -> None:
    LogBuilder(DiskStore(terminal.root), "silver/events").create()
    said = "Use another key, for example silver/w_events"
    assert said in refused(terminal, f"{warehouse}/events", "--key", "silver/events")
    [found] = terminal.json("adopt", f"{warehouse}/events")
    assert found["table"] == "silver/w_events"


def test_a_table_is_adopted_through_a_link_by_the_place_where_it_lies(
    terminal: Terminal, warehouse: Path, tmp_path: Path
) -> None:
    LogBuilder(DiskStore(terminal.root), "silver/own").create()
    for name, target in (("events", warehouse / "events"), ("own", terminal.root / "silver/own")):
        (tmp_path / name).symlink_to(target)
        terminal.run("adopt", str(tmp_path / name))
        assert f'uri = "{target}"' in adopted(terminal)
    assert {each["table"] for each in terminal.json("health")} > {"silver/events", "silver/own"}
    assert "it is already declared as silver/events" in refused(terminal, str(tmp_path / "events"))


def test_nothing_is_written_that_stops_the_next_one(terminal: Terminal, warehouse: Path) -> None:
    tables = [
        adopted_table(f"silver/{name}", f"{warehouse}/{path}")
        for name, path in (("a", "events"), ("b", "events/deep"))
    ]
    settings = parse_settings(terminal.environ, base=warehouse)
    with pytest.raises(Refused, match=r"in the folder of the table silver/a"):
        write_adopted(settings, tables[1:], declared={"silver/a": tables[0]})
    assert not (terminal.home / "adopted.toml").exists()


def test_a_folder_with_an_odd_name_is_one_refused_row(terminal: Terminal, warehouse: Path) -> None:
    LogBuilder(DiskStore(warehouse), "odd[1]").create()
    fleet = terminal.run("adopt", "--prefix", str(warehouse))
    assert fleet.exit_code == 2 and "holds '['" in fleet.stderr and "odd" in fleet.stderr
    assert adopted(terminal).count("uri = ") == 2


def test_tables_of_a_lake_are_refused(told: Terminal, tmp_path: Path) -> None:
    other = open_lake(own_settings(tmp_path / "other"))
    LogBuilder(other.store, "silver/t").create()
    with hold(other, None, "silver/t", owner="test"):
        pass
    said = f"belongs to the lake {other.settings.root}"
    assert said in refused(told, f"{other.settings.root}/silver/t")
    assert "it is already declared as silver/orders" in refused(told, f"{told.root}/silver/orders")
    LogBuilder(DiskStore(told.root), "some/deeper/table").create()
    said = "where a table's key is its path. Use a table at layer/name"
    assert said in refused(told, f"{told.root}/some/deeper/table")


def test_a_hand_written_entry_inside_another_table_or_the_lake_is_refused_wherever_it_is_read(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.home.mkdir(parents=True)
    entries = {
        f'["silver/a"]\nuri = "{tmp_path}/a"\n["silver/b"]\nuri = "{tmp_path}/a/deep/b"\n': "in the folder of the table silver/a",
        f'["silver/a"]\nuri = "{tmp_path}/a"\n["silver/b"]\nuri = "file://{tmp_path}/a/"\n': f"are both at {tmp_path}/a. Use one key",
        f'["silver/a"]\nuri = "{terminal.root}/bronze/orders"\n': "in the lake",
        '["bronze/orders"]\nuri = "/data/orders"\n': "is also declared in lakehouse_tests.support.example_terminal",
    }
    for text, said in entries.items():
        (terminal.home / "adopted.toml").write_text(text)
        assert said in terminal.refused("health")
    (terminal.home / "adopted.toml").write_text(
        '["silver/a"]\nuri = "/data"\n["silver/b"]\nuri = "/data/x"\n'
    )
    said = f"in the folder of the table silver/a. Adopt only one of the two tables, or move one of them to another folder. (adopted tables are in {terminal.home}/adopted.toml"
    assert said in terminal.run("health").stderr
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (terminal.home / "adopted.toml").write_text(
        f'["silver/a"]\nuri = "{tmp_path}/a"\n["silver/b"]\nuri = "{tmp_path}/link"\n'
    )
    assert "are both" in terminal.run("health").stderr
