"""`lakehouse config`: the settings in force, and where each comes from."""

import os
import re
from collections.abc import Mapping
from typing import Any

import click

from lakehouse.cli.context import settings_in_force
from lakehouse.cli.output import json_option, print_grid, show, write_json
from lakehouse.core.s3_address import S3_ENDPOINTS
from lakehouse.core.settings import ACCEPTED

# A parameter in the address of a Spark Connect server, except the three that are never secret. The
# values of all others are hidden: `token` is a secret, and a parameter that PySpark does not know
# becomes a header, which may be a secret.
_PARAMETER = re.compile(r";(?!(?:use_ssl|user_id|user_agent)=)([^=;]*)=[^;]*")
# The variables of libraries whose values are shown. All others are shown as set or not set.
_SHOWN = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", *S3_ENDPOINTS)
_SECRETS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN",
)


@click.command("config", epilog="Example: LAKEHOUSE_ROOT=s3://bucket/lake lakehouse config")
@json_option
def config_command(as_json: bool) -> None:
    """Show the settings in force, and where each comes from.

    The values of secrets, for example LAKEHOUSE_ALERT_URL, are hidden. Any other address with a
    user, a password or a signed query is refused.
    """
    settings = settings_in_force()
    values = settings.as_environ()
    ours = [
        {
            "name": name,
            "value": _masked(values[name]),
            "source": "environment" if os.environ.get(name) else "default",
            "default": default,
            "accepted": accepted,
        }
        for name, (default, accepted) in ACCEPTED.items()
    ]
    names = dict.fromkeys(
        (*_SECRETS, *_SHOWN, *sorted(name for name in os.environ if name.startswith("AWS_")))
    )
    others = list[dict[str, Any]]()
    for name in names:
        value = os.environ.get(name)
        is_shown = bool(value) and name in _SHOWN
        others.append({"name": name, "set": bool(value), "value": value if is_shown else None})
    if as_json:
        write_json({"settings": ours, "others": others})
        return
    heads = ("name", "value", "source", "accepted")
    print_grid(heads, [[each[head] for head in heads] for each in ours])
    show()
    print_grid(("read by libraries", ""), [(each["name"], _value_text(each)) for each in others])


def _masked(value: str) -> str:
    """The value of a setting. The values of its parameters, such as tokens, become `***`."""
    return _PARAMETER.sub(r";\1=***", value)


def _value_text(variable: Mapping[str, Any]) -> str:
    if variable["value"]:
        return variable["value"]
    return "(set)" if variable["set"] else "(not set)"
