"""A terminal in this process, and a lake on disk whose tables are written like stories."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from lakehouse.base.clock import now_ms
from lakehouse.base.settings import parse_settings
from lakehouse.base.stored_objects import Inventory
from lakehouse.cli.app import commands
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.store import DiskStore
from lakehouse.vacuum.inventory.run import scan
from lakehouse_tests.log_builder import LogBuilder

type_of_story = Callable[[str], LogBuilder]


class Terminal:
    """`lakehouse …` in this process, with settings of its own; nothing of this process's environment gets in."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.home = home
        self.root = home / "lake"
        self.environ = {
            "LAKEHOUSE_HOME": str(home),
            "LAKEHOUSE_TABLES": "lakehouse_tests.support.example_terminal",
            "LAKEHOUSE_ADOPTED": str(home / "adopted.toml"),
            "LAKEHOUSE_SPARK_PORT": "1",
            "LAKEHOUSE_REPLAY": "off",
            **settings,
        }

    def run(self, *arguments: str, **environ: str) -> Result:
        """One command line, to its end."""
        ours: dict[str, str | None] = {
            name: None for name in os.environ if name.startswith(("LAKEHOUSE_", "AWS_", "SPARK_"))
        }
        # PySpark notes by this variable that its sessions are Connect's; one command may use the session that another opened.
        connect = {"SPARK_CONNECT_MODE_ENABLED": "1"}
        runner = CliRunner(env={**ours, **connect, **self.environ, **environ})
        return runner.invoke(commands, arguments, prog_name="lakehouse")

    @property
    def lake(self) -> Lake:
        """The lake of the commands."""
        return open_lake(parse_settings(self.environ, base=self.home))

    def scan(self) -> Inventory:
        """Adds a scan of the lake to the inventory table."""
        return scan(self.lake, now_ms=now_ms()).inventory

    def refused(self, *arguments: str, **environ: str) -> str:
        """The sentence of a command that is refused and shows nothing else."""
        result = self.run(*arguments, **environ)
        details = (arguments, result.stdout, result.stderr)
        assert (result.exit_code, result.stdout) == (2, ""), details
        return result.stderr

    def json(self, *arguments: str, exit_code: int = 0, **environ: str) -> Any:
        """The one document that `--json` gives."""
        result = self.run(*arguments, "--json", **environ)
        assert result.exit_code == exit_code, (result.exit_code, result.stdout, result.stderr)
        return json.loads(result.stdout)

    def compactions(self, *tables: str, **environ: str) -> dict[str, dict[str, Any]]:
        """What `plan` says of the compaction of each table, by its key."""
        operations = self.json("plan", *tables, **environ)
        return {each["table"]: each for each in operations if each["operation"] == "compact"}


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """The terminal of a lake in which nothing happened yet."""
    return Terminal(tmp_path / "home")


@pytest.fixture
def story(terminal: Terminal) -> type_of_story:
    """Begins the log of a table of that lake."""
    return lambda key: LogBuilder(DiskStore(terminal.root), key)


@pytest.fixture
def told(terminal: Terminal) -> Terminal:
    """The same lake with its example tables."""
    write_example_tables(terminal)
    return terminal


def write_example_tables(terminal: Terminal) -> None:
    """Writes a table full of small files and one that was compacted; the third is only declared."""
    store = DiskStore(terminal.root)
    small = [(f"d=1/small-{number}", 100 + number, 10) for number in range(3)]
    columns = {"id": "string", "amount": "long", "d": "string"}
    bronze = LogBuilder(store, "bronze/orders").create(columns=columns, partition_by=["d"])
    bronze.append(small)
    bronze.append([("d=2/alone", 500, 50), ("d=2/large", 4000, 400)])
    silver = LogBuilder(store, "silver/orders").create()
    silver.append([("a", 100, 1)]).append([("b", 200, 2)])
    silver.optimize(["a", "b"], into=("c", 280, 3), user_metadata=json.dumps(PREDICTION))


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Tables that delta-rs wrote: one by day in 12 commits of a file each, and one of one file."""
    import pyarrow as pa
    from deltalake import write_deltalake

    for number in range(12):
        rows = pa.table({"id": [number], "day": [f"2026-01-0{number % 2 + 1}"]})
        write_deltalake(tmp_path / "w/events", rows, mode="append", partition_by=["day"])
    write_deltalake(tmp_path / "w/customers", pa.table({"id": [1, 2, 3]}))
    return tmp_path / "w"


FIGURES = {"files_removed": 2, "files_added": 1, "bytes_removed": 300}
PREDICTION: dict[str, Any] = {
    "compaction": "a mark of its own",
    "plan": {"reason": "MERGEABLE_FILES", "sentence": "why it ran", **FIGURES},
}


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """The commands of a group by name, in their order."""
    context = click.Context(group)
    named = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in named.items() if command is not None}


def is_command(line: str) -> bool:
    """Whether a command line names a command and options that exist."""
    command: click.Command = commands
    for word in shlex.split(line)[1:]:
        if isinstance(command, click.Group):
            named = subcommands(command)
            if word not in named:
                return False
            command = named[word]
        elif word.startswith("--") and not any(word in each.opts for each in command.params):
            return False
    return True
