"""The `lakehouse` command: its subcommands, and the conversion of errors to exit codes.

Exit codes: 0 done, 1 broken (also a bug in this program), 2 refused or misused, 75 try again, 130
interrupted. With `--json`, standard output is exactly one JSON document. If the command raises an
error, the document is `{"error": {...}}`, and the error's message is also on standard error.
"""

import atexit
import gc
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

import click

from lakehouse.base.errors import Broken, LakehouseError, Refused, as_defect
from lakehouse.base.installation import has_capability
from lakehouse.cli.output import tell, write_json

# The commands in groups, each with its module below `lakehouse` and its line in `lakehouse --help`.
_COMMANDS = {
    "Use the tables": {
        "tables": ("materialize.command", "List the tables, and the state of each."),
        "materialize": ("materialize.command", "Write tables, inputs first, through Dagster."),
        "sql": ("query.command", "Query the tables with SQL, by Spark only if needed."),
        "landing": ("land.command", "Show landed files, and what the next load does."),
        "quarantine": ("land.command", "Show, retry or settle lines that did not load."),
    },
    "Keep the tables": {
        "plan": ("watch.command", "Show what is due of all tables, most urgent first."),
        "compact": ("compact.command", "Merge the small files of a table."),
        "vacuum": ("vacuum.command", "Delete files that are no longer needed."),
        "inventory": ("vacuum.command", "Show the lake's storage, by table and use."),
        "archive": ("retain.command", "Move old partitions of a table to its archive."),
        "restore": ("retain.command", "Bring archived partitions back into a table."),
        "ttl": ("retain.command", "Delete expired rows of a table."),
        "tiers": ("retain.command", "Tag removed files for a cheaper storage class."),
        "evolve": ("evolve.command", "Make tables match their declarations."),
        "rebuild": ("evolve.command", "Write all rows of a table again, in one commit."),
        "pause": ("compact.command", "Pause the upkeep of a table."),
        "resume": ("compact.command", "End the pause of a table."),
    },
    "Look": {
        "health": ("watch.command", "Show file counts and health scores."),
        "history": ("watch.command", "Show a table's commits, and what its upkeep cost."),
        "costs": ("watch.costs.command", "Show what the lake, or a table, costs."),
        "report": ("report.command", "Write the state of the lake to one HTML page."),
        "metrics": ("watch.metrics.command", "Print the lake's metrics for Prometheus."),
        "backtest": ("backtest.command", "Replay a table's log under another policy."),
    },
    "Set up": {
        "init": ("init.command", "Make a project from files of your own."),
        "up": ("cli.up", "Run Spark, Dagster's web page and the sensors, until Ctrl-C."),
        "adopt": ("adopt.command", "Adopt a Delta table that other programs write."),
        "schema": ("land.command", "Print a schema to declare for a file."),
        "server": ("cli.server_command", "Start, stop or show the Spark Connect server."),
        "replay": ("replay.command", "Land the next hours of a real year of flights."),
        "doctor": ("doctor.command", "Check this configuration from end to end."),
    },
}
INTERRUPTED = 130  # 128 plus the number of SIGINT, as in shells


def _present(group: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """The commands of a group without those of capabilities that were deleted."""
    return {name: entry for name, entry in group.items() if has_capability(entry[0])}


class Terminal(click.Group):
    """A group whose commands return an exit code (`None` stands for 0), or raise an error.

    A command's module is imported when the command is used: importing all of them takes a second.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click passes it)
        """The commands whose capability is there, in the order in which a new user needs them."""
        return [name for group in _COMMANDS.values() for name in _present(group)]

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Lists the commands in groups, without importing their modules."""
        for title, group in _COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in _present(group).items()])

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        """The command of this name; `None` for an unknown name."""
        for group in _COMMANDS.values():
            if cmd_name in _present(group):
                module, _ = group[cmd_name]
                return getattr(import_module(f"lakehouse.{module}"), f"{cmd_name}_command")
        return None

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **options: Any
    ) -> NoReturn:
        """Runs one command line and exits the process."""
        words = list(sys.argv[1:] if args is None else args)
        options["standalone_mode"] = False
        run = partial(super().main, words, prog_name or "lakehouse", **options)
        sys.exit(exit_code_of(run, as_json="--json" in words))


def exit_code_of(run: Callable[[], int | None], *, as_json: bool) -> int:
    """Calls `run`; returns its exit code, or prints its error and returns the error's exit code."""
    try:
        return run() or 0
    except LakehouseError as error:
        kind = type(error).__name__
        message = str(error)
        code = error.exit_code
    except click.Abort:
        kind = "Interrupted"
        message = "stopped on request; uncommitted work is not part of any table"
        code = INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        tell(error.format_message())
        return Refused.exit_code
    except click.ClickException as error:
        kind = Refused.__name__
        message = error.format_message().rstrip(".")
        if isinstance(error, click.UsageError) and error.ctx:
            message += f"; see: {error.ctx.command_path} -h"
        code = Refused.exit_code
    except Exception as error:
        tell(traceback.format_exc())
        kind = Broken.__name__
        message = str(as_defect(error))
        code = Broken.exit_code
    tell(f"{kind}: {message}")
    if as_json:
        write_json({"error": {"kind": kind, "message": message, "exit_code": code}})
    return code


@click.group(
    cls=Terminal, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
def commands() -> None:
    """A lakehouse that maintains itself.

    Settings are LAKEHOUSE_ environment variables (see: lakehouse doctor --settings). Exit codes: 0
    done, 1 broken, 2 refused or misused, 75 try again, 130 interrupted.
    """


def main() -> NoReturn:
    """The `lakehouse` command."""
    # With Python's default thresholds, garbage collection takes a quarter of the imports' time. At
    # the end of the process, it takes up to a second more, unless all objects are exempt.
    gc.set_threshold(50_000, 20, 20)
    atexit.register(gc.freeze)
    commands.main()
