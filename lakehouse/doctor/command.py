"""`lakehouse doctor`: checks a configuration from end to end, or shows its settings."""

import os
import re
from collections.abc import Iterator

import click

from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.base.settings import ACCEPTED, Settings
from lakehouse.base.text import Document, count_of
from lakehouse.cli.output import flag, json_option, print_grid, show, write_json
from lakehouse.cli.server_command import driver_on_demand
from lakehouse.cli.settings import settings_in_force
from lakehouse.doctor.checks import checks_of_lake, checks_of_spark, scratch
from lakehouse.lake.lake import open_lake

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
    """Check this configuration from end to end: machine, tables, storage and Spark.

    Test files are written to the lake and deleted again. Ends with the first check that fails; the
    exit code is then 2.
    """
    if settings_only:
        _show_settings(settings_in_force(), as_json=as_json)
        return 0
    checks = list[Document]()
    for check in _examine(with_spark=with_spark):
        checks.append(check)
        if not as_json:
            style = "green" if check["state"] == "ok" else "red"
            show(f"{check['state']:<8}{check['name']:<20}{check['sentence']}", style=style)
    failed_count = sum(each["state"] == "failed" for each in checks)
    if as_json:
        write_json({"failed": failed_count, "checks": checks})
    else:
        show(f"{count_of(len(checks), 'check')}: {failed_count} failed")
    return Refused.exit_code if failed_count else 0


def _examine(*, with_spark: bool) -> Iterator[Document]:
    """Runs the checks up to the first one that fails, because each needs those before it.

    Yields a document per check. Its `sentence` describes what was found, or what to do.
    """
    name = "settings"
    try:
        settings = settings_in_force()
        spark = settings.spark.partition(";")[0]
        sentence = f"the lake is {settings.root}, Spark is {spark}"
        yield {"name": name, "state": "ok", "sentence": sentence}
        lake = open_lake(settings)
        with scratch(lake) as folder, driver_on_demand(settings) as open_session:
            checks = checks_of_lake(lake, folder)
            if with_spark:
                checks |= checks_of_spark(lake, folder, open_session)
            for name, check in checks.items():
                yield {"name": name, "state": "ok", "sentence": check()}
    except LakehouseError as error:
        yield {"name": name, "state": "failed", "sentence": str(error)}


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
