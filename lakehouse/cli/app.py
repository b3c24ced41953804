"""The `lakehouse` command: its subcommands, and the conversion of errors to exit codes.

Exit codes: 0 done, 1 broken (also a bug in this program), 2 refused or misused, 75 try again, 130
interrupted. With `--json`, standard output is exactly one JSON document. If the command raises an
error, the document is `{"error": {...}}`, and the error's message is also on standard error.
"""

import sys
import traceback
from _thread import interrupt_main
from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Timer
from typing import Any, NoReturn

import click

from lakehouse.base.errors import Broken, LakehouseError, Refused
from lakehouse.base.gone import GONE
from lakehouse.base.installation import has_capability
from lakehouse.cli.output import tell, write_json

# The groups of the help, and in each the module of each command, below `lakehouse`.
_GROUPS = {
    "Use the tables": {
        "tables": "materialize.command",
        "materialize": "materialize.command",
        "sql": "query.command",
        "landing": "land.command",
        "quarantine": "land.quarantine.command",
    },
    "Keep the tables": {
        "plan": "watch.command",
        "compact": "compact.command",
        "vacuum": "vacuum.command",
        "evolve": "evolve.command",
        "rebuild": "evolve.command",
        "archive": "retain.command",
        "restore": "retain.command",
        "ttl": "retain.command",
        "tiers": "retain.command",
        "pause": "compact.command",
        "resume": "compact.command",
    },
    "Look": {
        "health": "watch.command",
        "history": "watch.command",
        "costs": "watch.costs.command",
        "inventory": "vacuum.inventory.command",
        "backtest": "backtest.command",
        "report": "report.command",
        "metrics": "watch.metrics.command",
    },
    "Set up": {
        "init": "init.command",
        "up": "cli.up",
        "schema": "land.command",
        "adopt": "adopt.command",
        "server": "cli.server_command",
        "replay": "replay.command",
        "doctor": "doctor.command",
    },
}
_COMMANDS = {name: module for group in _GROUPS.values() for name, module in group.items()}
INTERRUPTED = 130  # 128 plus the number of SIGINT, as in shells
# Python and Dagster raise different exceptions for an interrupt. The names of exceptions are
# compared, because most commands do not import Dagster.
_INTERRUPTS = ("KeyboardInterrupt", "DagsterExecutionInterruptedError")


class Terminal(click.Group):
    """A group whose commands return an exit code (`None` stands for 0), or raise an error.

    A command's module is imported when the command is used: importing all of them takes 0.15 s.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click passes it)
        """The commands whose capability is there, in the order of the help."""
        return [name for name, module in _COMMANDS.items() if has_capability(module)]

    def get_command(
        self,
        ctx: click.Context,
        cmd_name: str,
    ) -> click.Command | None:
        """The command of this name; `None` for an unknown name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"lakehouse.{_COMMANDS[cmd_name]}")
        return getattr(module, f"{cmd_name}_command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by group, each with the whole first sentence of its help."""
        for title, group in _GROUPS.items():
            rows = list[tuple[str, str]]()
            for name in group:
                command = self.get_command(ctx, name)
                if command is not None:
                    rows.append((name, command.get_short_help_str(limit=1_000)))
            with formatter.section(title):
                formatter.write_dl(rows)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **options: Any
    ) -> NoReturn:
        """Runs one command line and exits the process."""
        words = list(sys.argv[1:] if args is None else args)
        run = super().main
        options["standalone_mode"] = False
        name = prog_name or "lakehouse"

        def checked() -> int | None:
            for gone, sentence in GONE.items():
                if gone.split() == ["lakehouse", *words][: gone.count(" ") + 1]:
                    raise Refused(f"{gone} is gone. {sentence}")
            return run(words, name, **options)

        sys.exit(exit_code_of(checked, as_json="--json" in words))


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
    except click.ClickException as error:
        kind = Refused.__name__
        message = error.format_message().rstrip(".")
        if isinstance(error, click.UsageError) and error.ctx:
            message += f"; see: {error.ctx.command_path} -h"
        code = Refused.exit_code
    except Exception as error:
        tell(traceback.format_exc())
        kind = Broken.__name__
        message = f"a defect of this program: {type(error).__name__}: {error}"
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
    sys.unraisablehook = interrupt_again
    commands.main()


def interrupt_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Repeats an interrupt that Python dropped in a destructor or a weak reference's callback.

    The interrupt is sent again a moment later, because an exception raised here is dropped, too.
    """
    if ignored.exc_type.__name__ in _INTERRUPTS:
        Timer(0.05, interrupt_main).start()
    else:
        sys.__unraisablehook__(ignored)
