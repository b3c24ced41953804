"""The places where the lake lives and runs, read from a mapping of environment values.

`parse_settings` never looks at the environment itself: `definitions.py`, `cli/context.py` and `defs/adoption/maintain.py` hand it over.
"""

import posixpath
import re
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from lakehouse.core.errors import Refused
from lakehouse.core.text import nearest_words

# Bucket names: Amazon S3 user guide, "General purpose bucket naming rules". Prefixes: its "safe characters" that need no escape in a URL,
# and the signs that Hive folders need.
_BUCKET = re.compile(r"(?=.{3,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_IP_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_PREFIX = re.compile(r"[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*")
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>.*)", re.DOTALL)
_UNSAFE_IN_FOLDER = re.compile(r"[*?\[\]{}\\\x00-\x1f]")
_SPARK = re.compile(r"server|local\[([1-9][0-9]*|\*)\]|spark://[^\s/;]+:[0-9]+|sc://[^\s/;]\S*")
_NOT_IN_SPARK = re.compile(r"(token|session_id)\s*=", re.IGNORECASE)
# A user before an @, as in http://user:password@host (parameters of sc://, which come after a semicolon, may hold one), or a signed query.
_CREDENTIALS = re.compile(r"://[^;?]*@|://\S*\?\S*=")
S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # in boto3's order
_S3_REGIONS = (
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
)  # boto3 itself reads the first name only, the JVM the second
_S3_KEYS = "keys belong into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into an AWS_PROFILE"
# An address that may not hold credentials -> where they belong. Addresses are shown, and written into files; credentials are neither.
_ADDRESSES = {
    "LAKEHOUSE_ROOT": _S3_KEYS,
    "LAKEHOUSE_HOME": _S3_KEYS,
    "LAKEHOUSE_SPARK": "a token belongs into SPARK_CONNECT_AUTHENTICATE_TOKEN",
    **dict.fromkeys((*S3_ENDPOINTS, "AWS_ENDPOINT_URL_SQS"), _S3_KEYS),
}
_DEMO_TABLES = {"dms": "lakehouse.replay.cdc.dms", "debezium": "lakehouse.replay.cdc.debezium"}

# Value and base folder -> setting.
type_of_reader = Callable[[str, Path], Any]


class _NotAccepted(Exception):
    """A value is refused; the text is the nearest one that is accepted, if any is near."""


def _setting(default: str, accepted: str, read: type_of_reader) -> Any:
    return field(metadata={"default": default, "accepted": accepted, "read": read})


def _matching(
    pattern: str, meant: Callable[[str], Any] = str, *, within: Container[Any] | None = None
) -> type_of_reader:
    def read(value: str, _base: Path) -> Any:
        with suppress(ValueError):
            if re.fullmatch(pattern, value) and (within is None or meant(value) in within):
                return meant(value)
        raise _NotAccepted

    return read


def _whole(least: int, most: int) -> type_of_reader:
    return _matching("[0-9]{1,9}", int, within=range(least, most + 1))


def _spark(value: str, _base: Path) -> str:
    """The value, unless it names a token or a session; such a value is not repeated, since it may hold a secret."""
    if found := _NOT_IN_SPARK.search(value):
        raise Refused(
            f"LAKEHOUSE_SPARK names a {found[1].lower()}; accepted: sc://host:port/;name=value without token and session_id "
            "(the token belongs into SPARK_CONNECT_AUTHENTICATE_TOKEN, and each run has a session of its own)"
        )
    if not _SPARK.fullmatch(value):
        raise _refused(
            "LAKEHOUSE_SPARK", value.partition(";")[0]
        )  # a parameter after a semicolon may be a key
    return value


def _folder(value: str, base: Path) -> str:
    """The absolute folder, `..` taken out by its spelling, so that Spark, Python and the log name it alike."""
    if scheme := _SCHEME.fullmatch(value):
        raise _NotAccepted(
            f"/{scheme['rest'].lstrip('/')}" if scheme["scheme"].lower() == "file" else ""
        )
    if value == "/":
        raise _NotAccepted("/lake")
    if value.startswith("~") or _UNSAFE_IN_FOLDER.search(value):
        near = value.replace("~", "$HOME", 1) if value.startswith("~") else value
        raise _NotAccepted("" if "\\" in value else _UNSAFE_IN_FOLDER.sub("-", near))
    return posixpath.normpath(
        f"{base}/{value}" if not value.startswith("/") else f"/{value.lstrip('/')}"
    )


def _path(value: str, base: Path) -> Path:
    return Path(_folder(value, base))


def _root(value: str, base: Path) -> str:
    scheme = _SCHEME.fullmatch(value)
    if scheme is None or scheme["scheme"].lower() == "file":
        return _folder(value, base)
    if not value.startswith("s3://"):
        means_s3 = scheme["scheme"].lower() in (
            "s3",
            "s3a",
            "s3n",
            *(("http", "https") if ".s3" in scheme["rest"] else ()),
        )
        raise _NotAccepted(_nearest_s3(scheme["rest"]) if means_s3 else "")
    bucket, _, prefix = value.removeprefix("s3://").rstrip("/").partition("/")
    if not is_bucket(bucket) or (
        prefix and (not _PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/")))
    ):
        raise _NotAccepted(_nearest_s3(scheme["rest"]))
    return value.rstrip("/")


_USD = _matching(r"[0-9]{1,6}(\.[0-9]{1,6})?", float)
_MEMORY = _matching(r"[1-9][0-9]{0,8}g|(51[2-9]|5[2-9][0-9]|[6-9][0-9]{2}|[1-9][0-9]{3,8})m")
_DAY = _matching(r"2013-[0-9]{1,2}-[0-9]{1,2}", lambda text: datetime.strptime(text, "%Y-%m-%d"))
_LOGS = _matching("home|lake")
_MODULE = _matching(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SWITCH = _matching("on|off", "on".__eq__)
_CHANGES = _matching("off|dms|debezium")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in force. `root` is an absolute folder or `s3://bucket/prefix`, without a / at its end."""

    root: str = _setting("<LAKEHOUSE_HOME>/lake", "a folder, or s3://bucket/prefix", _root)
    home: Path = _setting(".lakehouse", "a folder for all state of this lake", _path)
    spark: str = _setting("server", "server, local[N], spark://host:port or sc://host:port", _spark)
    port: int = _setting("3000", "a TCP port, 1 to 65535, for the page", _whole(1, 65535))
    spark_port: int = _setting(
        "15002", "a TCP port, 1 to 65535, for the Spark Connect server", _whole(1, 65535)
    )
    spark_memory: str = _setting("2g", "a whole number followed by m or g, at least 512m", _MEMORY)
    compaction_budget_usd: float = _setting(
        "0",
        "USD an hour that compactions may be predicted to cost, like 0.25; 0 for no bound",
        _USD,
    )
    compaction_slots: int = _setting(
        "1", "a whole number, 1 to 16: so many compactions may be under way at once", _whole(1, 16)
    )
    compaction_tick_seconds: int = _setting(
        "10, on S3 30",
        "seconds between two ticks of the compaction sensor, 5 to 3600",
        _whole(5, 3600),
    )
    compute_logs: str = _setting(
        "home",
        "home or lake: the output of runs is kept in LAKEHOUSE_HOME, or with a lake on S3",
        _LOGS,
    )
    records_days: int = _setting(
        "7", "days, 1 to 3650, for which Dagster's own records of runs are kept", _whole(1, 3650)
    )
    tables: str = _setting(
        "lakehouse.tables", "the dotted name of the package that declares the tables", _MODULE
    )
    adopted: Path = _setting(
        "adopted.toml", "a file that names the tables that others write", _path
    )
    replay: bool = _setting(
        "on", "on or off: whether the year of flights is played into the landing area", _SWITCH
    )
    replay_cdc: str = _setting(
        "off",
        "off, dms or debezium: whether flights land as change data; with it come tables that read them",
        _CHANGES,
    )
    replay_start: datetime = _setting("2013-01-01", "a date in 2013, like 2013-01-01", _DAY)
    replay_hours: int = _setting("12", "simulated hours per tick, 1 to 744", _whole(1, 744))
    replay_seconds: int = _setting("45", "seconds between ticks, 5 to 86400", _whole(5, 86400))

    @property
    def on_s3(self) -> bool:
        """Whether the lake lives on S3 (or a server that speaks its protocol)."""
        return self.root.startswith("s3://")

    @property
    def spark_root(self) -> str:
        """The root as Spark spells it, and the only spelling that Spark may ever see: `file:` paths bare, S3 as `s3a://`."""
        return self.root.replace("s3://", "s3a://", 1)

    def table_uri(self, key: str) -> str:
        """The address of a table, as Spark spells it."""
        return f"{self.spark_root}/{key}"

    def as_environ(self) -> dict[str, str]:
        """The environment values that give exactly these settings to another process, wherever it starts."""
        return {
            f"LAKEHOUSE_{each.name.upper()}": _written(getattr(self, each.name))
            for each in fields(self)
        }


# name -> (default, accepted values)
ACCEPTED = {
    f"LAKEHOUSE_{each.name.upper()}": (each.metadata["default"], each.metadata["accepted"])
    for each in fields(Settings)
}


def parse_settings(environ: Mapping[str, str], *, base: Path) -> Settings:
    """Settings from environment values; relative folders start at `base`, an absolute path.

    Raises:
        Refused: a value, or the name of a LAKEHOUSE_ variable, is not accepted; or the address of S3 or Spark holds credentials.
    """
    _refuse_credentials(environ)
    _refuse_unknown(environ)
    settings = {each.name: each.metadata for each in fields(Settings)}

    def read(setting: str, default: str = "") -> Any:
        name = f"LAKEHOUSE_{setting.upper()}"
        value = environ.get(name) or default or settings[setting]["default"]
        try:
            return settings[setting]["read"](value, base)
        except _NotAccepted as error:
            raise _refused(name, value, near=str(error)) from None

    defaults = {"root": f"{read('home')}/lake", "tables": _DEMO_TABLES.get(read("replay_cdc"), "")}
    defaults["compaction_tick_seconds"] = (
        "30" if read("root", defaults["root"]).startswith("s3://") else "10"
    )
    found = Settings(**{setting: read(setting, defaults.get(setting, "")) for setting in settings})
    if found.port == found.spark_port:
        near = str(found.port + 1 if found.port < 65535 else found.port - 1)
        raise Refused(
            f"LAKEHOUSE_SPARK_PORT is {found.port}, as is LAKEHOUSE_PORT; accepted: two different ports, for instance {near}"
        )
    if found.compute_logs == "lake" and not found.on_s3:
        raise _refused("LAKEHOUSE_COMPUTE_LOGS", "lake")
    return found


def holds_credentials(address: str) -> bool:
    """Whether an address holds a user, a password or a signed query."""
    return _CREDENTIALS.search(address) is not None


def s3_endpoint(environ: Mapping[str, str]) -> str | None:
    """The S3 server that these variables name; `None` is AWS."""
    return next((environ[name] for name in S3_ENDPOINTS if environ.get(name)), None)


def s3_region(environ: Mapping[str, str]) -> str | None:
    """The region of S3 that these variables name, if any does."""
    return next((environ[name] for name in _S3_REGIONS if environ.get(name)), None)


def is_bucket(name: str) -> bool:
    """Whether a bucket can have that name."""
    return bool(_BUCKET.fullmatch(name)) and not _IP_ADDRESS.fullmatch(name)


def _refused(name: str, value: str, *, near: str = "") -> Refused:
    nearest = f"; did you mean {near}?" if near else ""
    return Refused(
        f"{name} is {value!r}; accepted: {ACCEPTED[name][1]} (default {ACCEPTED[name][0]}){nearest}"
    )


def _written(value: object) -> str:
    """The environment value that is read as this one."""
    match value:
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:.6f}".rstrip("0").rstrip(".")
        case datetime():
            return f"{value:%Y-%m-%d}"
        case _:
            return str(value)


def _refuse_credentials(environ: Mapping[str, str]) -> None:
    """Refuses an address with credentials in it, and does not repeat it."""
    for name, place in _ADDRESSES.items():
        if holds_credentials(environ.get(name, "")):
            raise Refused(
                f"{name} holds a user, a password or a signed query; accepted: an address without; {place}"
            )


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    known = {name.removeprefix("LAKEHOUSE_"): name for name in ACCEPTED}
    for name in environ:
        if name.startswith("LAKEHOUSE_") and name not in ACCEPTED:
            near = nearest_words(name.removeprefix("LAKEHOUSE_"), known, most=1)
            hint = f"did you mean {known[near[0]]}?" if near else f"known: {', '.join(ACCEPTED)}"
            raise Refused(f"{name} is not a setting; {hint}")


def _nearest_s3(rest: str) -> str:
    """The root that a misspelled S3 address most likely means; of a web address, the bucket stands before `.s3`."""
    host, _, path = rest.strip("/").partition("/")
    bucket = re.sub(r"[^a-z0-9.-]+", "-", host.split(".s3")[0].lower()).strip("-.")
    parts = [re.sub(r"[^A-Za-z0-9_.=-]+", "-", part) for part in path.split("/") if part.strip(".")]
    return "/".join(["s3:/", bucket, *parts]) if is_bucket(bucket) else ""
