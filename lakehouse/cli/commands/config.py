"""`lakehouse config`: the settings in force, where each comes from, and how Spark commits."""

import os
import re

import click

from lakehouse.cli.context import settings_in_force
from lakehouse.cli.output import json_option, print_grid, show, write_json
from lakehouse.core.s3_address import S3_ENDPOINTS
from lakehouse.core.settings import ACCEPTED, SECRET_SETTINGS
from lakehouse.engine.commit_safety import commits_sentence
from lakehouse.engine.lake import open_lake

# The parameters of a Spark server's address, except these three, are headers. Their values are
# hidden, since they may be keys.
_HEADER = re.compile(r";(?!(?:use_ssl|user_id|user_agent)=)([^=;]*)=[^;]*")
# Variables of boto3 whose values are shown. The others are only shown as set or not set.
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
    """Show the settings in force, where each comes from, and whether Spark's commits are safe.

    The values of secrets are hidden. An address with credentials is refused.
    """
    settings = settings_in_force()
    shown = {
        name: "***" if value and name in SECRET_SETTINGS else _HEADER.sub(r";\1=***", value)
        for name, value in settings.as_environ().items()
    }
    sources = {name: "environment" if os.environ.get(name) else "default" for name in ACCEPTED}
    ours = [
        {
            "name": name,
            "value": shown[name],
            "source": sources[name],
            "default": default,
            "accepted": accepted,
        }
        for name, (default, accepted) in ACCEPTED.items()
    ]
    names = dict.fromkeys(
        (*_SECRETS, *_SHOWN, *sorted(name for name in os.environ if name.startswith("AWS_")))
    )
    given = [(name, os.environ.get(name)) for name in names]
    others = [
        {"name": name, "set": bool(value), "value": value if value and name in _SHOWN else None}
        for name, value in given
    ]
    commits = commits_sentence(open_lake(settings))
    if as_json:
        write_json({"settings": ours, "others": others, "commits": commits})
        return
    heads = ("name", "value", "source", "accepted")
    print_grid(heads, [[each[head] for head in heads] for each in ours])
    show()
    print_grid(
        ("read by libraries", ""),
        [
            (each["name"], each["value"] or ("(set)" if each["set"] else "(not set)"))
            for each in others
        ],
    )
    show()
    show(f"commits: {commits}")
