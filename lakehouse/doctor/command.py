"""`lakehouse doctor`: checks a configuration from end to end, or shows its settings."""

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack

import click

from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.base.settings import ACCEPTED, Settings
from lakehouse.base.text import Document, count_of
from lakehouse.cli.output import attributes, flag, json_option, print_grid, show, write_json
from lakehouse.cli.server_command import driver_for_command
from lakehouse.cli.settings import settings_in_force
from lakehouse.doctor.checks import Examination, check_machine, check_spark, check_storage, scratch
from lakehouse.doctor.plan import Finding
from lakehouse.lake.declared_tables import declared_tables
from lakehouse.lake.lake import Lake, open_lake

_STYLES = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}


# A parameter in the address of a Spark Connect server, except the three that are never secret. The
# values of all others are hidden: `token` is a secret, and a parameter that PySpark does not know
# becomes a header, which may be a secret.
_PARAMETER = re.compile(r";(?!(?:use_ssl|user_id|user_agent)=)([^=;]*)=[^;]*")


@click.command(
    "doctor", epilog="Examples: lakehouse doctor --no-spark; lakehouse doctor --settings"
)
@click.option(
    "--spark/--no-spark",
    "with_spark",
    default=True,
    help="Also check Spark. With LAKEHOUSE_SPARK=server, a stopped server is started for this.",
)
@flag(
    "--settings",
    "settings_only",
    help="Check nothing. Show the settings in force and where each comes from, without secrets.",
)
@json_option
def doctor_command(with_spark: bool, settings_only: bool, as_json: bool) -> int:
    """Check this configuration from end to end: machine, storage, tables, Dagster and Spark.

    Test files are written to the lake and deleted again. The exit code is 2 if a check failed.
    """
    if settings_only:
        _show_settings(settings_in_force(), as_json=as_json)
        return 0
    examination = Examination(show=(lambda _: None) if as_json else show_finding)
    settings = _settings(examination)
    if settings is not None:
        check_machine(examination, settings)
        examination.check("tables", lambda: _tables(settings))
        examination.check("dagster", lambda: _dagster(settings))
        lake = open_lake(settings)
        with scratch(lake) as folder:
            check_storage(examination, lake, folder)
            if with_spark:
                _check_spark(examination, lake, folder)
            else:
                examination.note("spark", "skipped", "by --no-spark")
    document = document_of(examination.findings)
    if as_json:
        write_json(document)
    else:
        checks = count_of(len(document["checks"]), "check")
        warnings = count_of(document["warnings"], "warning")
        show(f"{checks}: {document['failed']} failed, {warnings}")
    return Refused.exit_code if document["failed"] else 0


def _show_settings(settings: Settings, *, as_json: bool) -> None:
    values = settings.as_environ()
    documents = [
        {
            "name": name,
            "value": _PARAMETER.sub(r";\1=***", values[name]),
            "source": "environment" if os.environ.get(name) else "default",
            "default": default,
            "accepted": accepted,
        }
        for name, (default, accepted) in ACCEPTED.items()
    ]
    if as_json:
        write_json(documents)
        return
    heads = ("name", "value", "source", "accepted")
    print_grid(heads, [[each[head] for head in heads] for each in documents])


def document_of(findings: Sequence[Finding]) -> Document:
    """The JSON document of these findings."""
    states = [each.state for each in findings]
    return {
        "failed": states.count("failed"),
        "warnings": states.count("warning"),
        "checks": [attributes(each, "name", "state", "sentence") for each in findings],
    }


def show_finding(finding: Finding) -> None:
    """Prints one finding on a line."""
    show(f"{finding.state:<8}{finding.name:<20}{finding.sentence}", style=_STYLES[finding.state])


def _settings(examination: Examination) -> Settings | None:
    """The settings in force; `None` if they cannot be parsed, which is then a failed check."""
    parsed = list[Settings]()

    def parse() -> str:
        settings = settings_in_force()
        parsed.append(settings)
        return f"the lake is {settings.root}, Spark is {settings.spark.partition(';')[0]}"

    examination.check("settings", parse)
    return parsed[0] if parsed else None


def _check_spark(examination: Examination, lake: Lake, folder: str) -> None:
    needs_java = not lake.settings.spark.startswith("sc://")
    if needs_java and examination.state_of("java") == "failed":
        examination.note("spark", "skipped", "needs java, which did not pass")
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(driver_for_command(lake.settings))
        except LakehouseError as error:
            examination.note("spark", "failed", str(error))
            return
        check_spark(examination, lake, folder)


def _tables(settings: Settings) -> str:
    tables = declared_tables(settings)
    return f"{count_of(len(tables), 'table')} in {settings.tables} and {settings.adopted.name}"


def _dagster(settings: Settings) -> str:
    home = os.environ.get("DAGSTER_HOME") or str(settings.dagster_home)
    if not os.path.exists(os.path.join(home, "dagster.yaml")):
        return f"{home} has no instance yet; the first start creates it"
    import dagster as dg

    with dg.DagsterInstance.from_config(home) as instance:
        instance.get_runs(limit=1)
        storage = type(instance.run_storage).__name__
    return f"the instance at {home} answers ({storage})"
