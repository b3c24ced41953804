"""Settings: where the lake is stored and where it runs.

`parse_settings` does not read the environment itself. Its callers pass the environment variables as
an argument.
"""

import re
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.paths import holds_credentials, parse_address
from lakehouse.base.text import either, nearest_words

# The variables for the S3 server, in the order in which boto3 reads them.
S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# boto3 itself reads only the first of these variables, and the JVM only the second.
_S3_REGIONS = ("AWS_DEFAULT_REGION", "AWS_REGION")
_S3_KEYS = "Put keys into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into an AWS_PROFILE."
# The settings whose value is an address, each with the advice where to put credentials instead.
# Addresses are shown and written into files, so they must not contain credentials.
_ADDRESSES = {
    "LAKEHOUSE_ROOT": _S3_KEYS,
    "LAKEHOUSE_HOME": _S3_KEYS,
    "LAKEHOUSE_SPARK": "Put a token into SPARK_CONNECT_AUTHENTICATE_TOKEN.",
    **dict.fromkeys(S3_ENDPOINTS, _S3_KEYS),
}


def s3_endpoint(environ: Mapping[str, str]) -> str | None:
    """The S3 server that these environment variables name; `None` means AWS."""
    return next((environ[name] for name in S3_ENDPOINTS if environ.get(name)), None)


def s3_region(environ: Mapping[str, str]) -> str | None:
    """The S3 region that these environment variables name, if any."""
    return next((environ[name] for name in _S3_REGIONS if environ.get(name)), None)


# The prefix has the "safe characters" of S3's user guide that need no escape in a URL, and the = in
# the names of Hive partitions.
_S3_ROOT = re.compile(r"s3://[^/]+(/[A-Za-z0-9_.=-]+)*")
_SPARK = re.compile(r"server|local\[([1-9][0-9]*|\*)\]|spark://[^\s/;]+:[0-9]+|sc://[^\s/;]\S*")
# The parameters that LAKEHOUSE_SPARK must not contain.
_NOT_IN_SPARK = re.compile(r"(token|session_id)\s*=", re.IGNORECASE)
# The value of LAKEHOUSE_TABLES for a lake without a package of declarations.
NO_TABLES = "none"

# Converts a text to the setting's value, or raises `ValueError`, if possible with the reason. The
# second argument is the folder of relative paths.
ReadSetting = Callable[[str, Path], Any]


def _setting(default: str, accepted: str, read: ReadSetting) -> Any:
    return field(metadata={"default": default, "accepted": accepted, "read": read})


def _matching(
    pattern: str, convert: Callable[[str], Any] = str, *, within: Container[Any] | None = None
) -> ReadSetting:
    def read(value: str, _base: Path) -> Any:
        with suppress(ValueError):
            if re.fullmatch(pattern, value) and (within is None or convert(value) in within):
                return convert(value)
        raise ValueError

    return read


def _whole(least: int, most: int) -> ReadSetting:
    return _matching("[0-9]{1,9}", int, within=range(least, most + 1))


def _spark(value: str, _base: Path) -> str:
    """The value unchanged. A value that is not valid, or has a token or a session id, is refused.

    The message does not repeat a token, a session id or other parameters, since they may be secret.
    """
    if match := _NOT_IN_SPARK.search(value):
        raise Refused(
            f"LAKEHOUSE_SPARK names a {match[1].lower()}. Use sc://host:port/;name=value without"
            " token and session_id. Put the token into SPARK_CONNECT_AUTHENTICATE_TOKEN; each run"
            " creates its own session."
        )
    if not _SPARK.fullmatch(value):
        # Parameters follow a semicolon. They are not shown.
        raise _refused("LAKEHOUSE_SPARK", value.partition(";")[0])
    return value


def _address(value: str, base: Path) -> str:
    try:
        return parse_address(value, base=str(base))
    except Refused as error:
        raise ValueError(str(error)) from error


def _path(value: str, base: Path) -> Path:
    folder = _address(value, base)
    if folder.startswith("s3:"):
        raise ValueError
    return Path(folder)


def _root(value: str, base: Path) -> str:
    root = _address(value, base)
    if root.startswith("s3:") and not _S3_ROOT.fullmatch(root):
        raise ValueError
    return root


_MEMORY = _matching(r"[1-9][0-9]{0,8}g|(51[2-9]|5[2-9][0-9]|[6-9][0-9]{2}|[1-9][0-9]{3,8})m")
_MODULE = _matching(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@frozen
class Settings:
    """The settings in force.

    `root` is an absolute folder, or `s3://bucket` or `s3://bucket/prefix` without a final slash.
    """

    root: str = _setting("<LAKEHOUSE_HOME>/lake", "a folder, or s3://bucket/prefix", _root)
    home: Path = _setting(".lakehouse", "a folder for all state of this lake", _path)
    dagster_home: Path = _setting(
        "<LAKEHOUSE_HOME>/dagster",
        "a folder with your own dagster.yaml, for example with Postgres storage",
        _path,
    )
    spark: str = _setting("server", "server, local[N], spark://host:port or sc://host:port", _spark)
    port: int = _setting("3000", "a TCP port, 1 to 65535, for Dagster's UI", _whole(1, 65535))
    spark_port: int = _setting(
        "15002", "a TCP port, 1 to 65535, for the Spark Connect server", _whole(1, 65535)
    )
    spark_memory: str = _setting("2g", "a whole number followed by m or g, at least 512m", _MEMORY)
    compaction_budget_usd: float = _setting(
        "0",
        "a limit in USD, for example 0.25, for the predicted cost of compactions per hour; "
        "0 for no limit",
        _matching(r"[0-9]{1,6}(\.[0-9]{1,6})?", float),
    )
    compaction_slots: int = _setting(
        "1", "the number of runs that may compact at once, 1 to 16", _whole(1, 16)
    )
    metrics_port: int = _setting(
        "9464", "a TCP port, 0 to 65535, for Prometheus; 0 for no metrics", _whole(0, 65535)
    )
    log_store: str = _setting(
        "conditional",
        "conditional, or platform: the platform of the Spark server makes its commits safe",
        _matching("conditional|platform"),
    )
    records_days: int = _setting(
        "7", "days for which Dagster's own records of runs are kept, 1 to 3650", _whole(1, 3650)
    )
    tables: str = _setting(
        "lakehouse.tables",
        "the dotted name of the package that declares the tables, or none",
        _MODULE,
    )
    adopted: Path = _setting("adopted.toml", "a file that lists adopted tables", _path)
    prices: Path = _setting("prices.toml", "a file with your own prices", _path)
    replay: str = _setting("on", "on or off: whether the demo's flights land", _matching("off|on"))
    replay_hours: int = _setting("12", "simulated hours per tick, 1 to 744", _whole(1, 744))
    replay_seconds: int = _setting("45", "seconds between ticks, 5 to 86400", _whole(5, 86400))

    @property
    def on_s3(self) -> bool:
        """Whether the lake is on S3, or on a server with the same protocol."""
        return self.root.startswith("s3://")

    @property
    def spark_root(self) -> str:
        """The root in the form that Spark needs: `s3a://…`, or a path without `file:`."""
        return self.root.replace("s3://", "s3a://", 1)

    def table_uri(self, key: str) -> str:
        """The address of a table, in the form that Spark needs."""
        return f"{self.spark_root}/{key}"

    def as_environ(self) -> dict[str, str]:
        """The variables that give a process these settings, whatever its working directory."""
        return {
            f"LAKEHOUSE_{each.name.upper()}": _variable_text(getattr(self, each.name))
            for each in fields(self)
        }


# The default and a description of the accepted values, by the name of the environment variable.
ACCEPTED = {
    f"LAKEHOUSE_{each.name.upper()}": (each.metadata["default"], each.metadata["accepted"])
    for each in fields(Settings)
}


def parse_settings(environ: Mapping[str, str], *, base: Path) -> Settings:
    """The settings from environment variables. Relative paths start at `base`, an absolute path.

    Raises:
        Refused: a value is not valid, a LAKEHOUSE_ variable is unknown, or an address holds
            credentials.
    """
    for name, advice in _ADDRESSES.items():
        if holds_credentials(environ.get(name, "")):  # the message does not repeat the address
            raise Refused(
                f"{name} holds a user, a password or a signed query. Use an address without"
                f" credentials. {advice}"
            )
    _refuse_unknown(environ)
    metadata = {each.name: each.metadata for each in fields(Settings)}

    def read(setting: str, default: str = "") -> Any:
        name = f"LAKEHOUSE_{setting.upper()}"
        value = environ.get(name) or default or metadata[setting]["default"]
        try:
            return metadata[setting]["read"](value, base)
        except ValueError as error:
            raise _refused(name, value, why=str(error)) from None

    defaults = {"root": f"{read('home')}/lake", "dagster_home": f"{read('home')}/dagster"}
    values = {setting: read(setting, defaults.get(setting, "")) for setting in metadata}
    settings = Settings(**values)
    port = settings.port
    if port == settings.spark_port:
        raise Refused(
            f"LAKEHOUSE_SPARK_PORT and LAKEHOUSE_PORT are both {port}. Use two different ports."
        )
    return settings


def _refused(name: str, value: str, *, why: str = "") -> Refused:
    if why:
        return Refused(f"{name}: {why}")
    default, accepted = ACCEPTED[name]
    return Refused(f"{name} is {value!r}. Use {accepted} (default {default or 'none'}).")


def _variable_text(value: object) -> str:
    """The text of an environment variable that sets this value. A float has no exponent."""
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    known = {name.removeprefix("LAKEHOUSE_"): name for name in ACCEPTED}
    for name in environ:
        if name.startswith("LAKEHOUSE_") and name not in ACCEPTED:
            near = nearest_words(name.removeprefix("LAKEHOUSE_"), known, most=2)
            hint = f"Use one of {', '.join(ACCEPTED)}."
            if near:
                hint = f"Did you mean {either([known[each] for each in near])}?"
            raise Refused(f"{name} is not a setting. {hint}")
