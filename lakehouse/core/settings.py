"""Where the lake lives and runs, read from a mapping of environment values.

`parse_settings` never looks at the environment itself: `definitions.py`, `cli/context.py` and `defs/adoption/maintain.py` hand it over.
"""

import posixpath
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path

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
_S3_REGIONS = ("AWS_DEFAULT_REGION", "AWS_REGION")  # boto3 itself reads the first name only, the JVM the second
_S3_KEYS = "keys belong into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into an AWS_PROFILE"
# An address that may not hold credentials -> where they belong. Addresses are shown, and written into files; credentials are neither.
_ADDRESSES = {
    "LAKEHOUSE_ROOT": _S3_KEYS,
    "LAKEHOUSE_HOME": _S3_KEYS,
    "LAKEHOUSE_SPARK": "a token belongs into SPARK_CONNECT_AUTHENTICATE_TOKEN",
    **dict.fromkeys((*S3_ENDPOINTS, "AWS_ENDPOINT_URL_SQS"), _S3_KEYS),
}
_MEMORY = re.compile(r"[1-9][0-9]{0,8}[mg]")
_WHOLE = re.compile(r"[0-9]{1,9}")
_USD = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_SWITCH = re.compile("on|off")
_CHANGES = re.compile("off|dms|debezium")
_DEMO_TABLES = {"dms": "lakehouse.replay.cdc.dms", "debezium": "lakehouse.replay.cdc.debezium"}
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

# name -> (default, accepted values)
ACCEPTED = {
    "LAKEHOUSE_ROOT": ("<LAKEHOUSE_HOME>/lake", "a folder, or s3://bucket/prefix"),
    "LAKEHOUSE_HOME": (".lakehouse", "a folder for all state of this lake"),
    "LAKEHOUSE_SPARK": ("server", "server, local[N], spark://host:port or sc://host:port"),
    "LAKEHOUSE_PORT": ("3000", "a TCP port, 1 to 65535, for the page"),
    "LAKEHOUSE_SPARK_PORT": ("15002", "a TCP port, 1 to 65535, for the Spark Connect server"),
    "LAKEHOUSE_SPARK_MEMORY": ("2g", "a whole number followed by m or g, at least 512m"),
    "LAKEHOUSE_COMPACTION_BUDGET_USD": ("0", "USD an hour that compactions may be predicted to cost, like 0.25; 0 for no bound"),
    "LAKEHOUSE_COMPACTION_SLOTS": ("1", "a whole number, 1 to 16: so many compactions may be under way at once"),
    "LAKEHOUSE_COMPACTION_TICK_SECONDS": ("10, on S3 30", "seconds between two ticks of the compaction sensor, 5 to 3600"),
    "LAKEHOUSE_COMPUTE_LOGS": ("home", "home or lake: the output of runs is kept in LAKEHOUSE_HOME, or with a lake on S3"),
    "LAKEHOUSE_TABLES": ("lakehouse.tables", "the dotted name of the package that declares the tables"),
    "LAKEHOUSE_ADOPTED": ("adopted.toml", "a file that names the tables that others write"),
    "LAKEHOUSE_REPLAY": ("on", "on or off: whether the year of flights is played into the landing area"),
    "LAKEHOUSE_REPLAY_CDC": ("off", "off, dms or debezium: whether flights land as change data; with it come tables that read them"),
    "LAKEHOUSE_REPLAY_START": ("2013-01-01", "a date in 2013, like 2013-01-01"),
    "LAKEHOUSE_REPLAY_HOURS": ("12", "simulated hours per tick, 1 to 744"),
    "LAKEHOUSE_REPLAY_SECONDS": ("45", "seconds between ticks, 5 to 86400"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in force. `root` is an absolute folder or `s3://bucket/prefix`, without a / at its end."""

    root: str
    home: Path
    spark: str
    port: int
    spark_port: int
    spark_memory: str
    compaction_budget_usd: float
    compaction_slots: int
    compaction_tick_seconds: int
    compute_logs: str
    tables: str
    adopted: Path
    replay: bool
    replay_cdc: str
    replay_start: datetime
    replay_hours: int
    replay_seconds: int

    @property
    def on_s3(self) -> bool:
        """Whether the lake lives on S3 (or a server that speaks its protocol)."""
        return self.root.startswith("s3://")

    @property
    def spark_root(self) -> str:
        """The root as Spark spells it, and the only spelling that Spark may ever see: `file:` paths bare, S3 as `s3a://`."""
        return self.root.replace("s3://", "s3a://", 1) if self.on_s3 else self.root

    def table_uri(self, key: str) -> str:
        """Where a table lies, as Spark spells it."""
        return f"{self.spark_root}/{key}"

    def as_environ(self) -> dict[str, str]:
        """The environment values that give exactly these settings to another process, wherever it starts."""
        return {f"LAKEHOUSE_{each.name.upper()}": _written(getattr(self, each.name)) for each in fields(self)}


def parse_settings(environ: Mapping[str, str], *, base: Path) -> Settings:
    """Settings from environment values; relative folders start at `base`, an absolute path.

    Raises:
        Refused: a value, or the name of a LAKEHOUSE_ variable, is not accepted; or the address of S3 or Spark holds credentials.
    """
    _refuse_credentials(environ)
    _refuse_unknown(environ)
    values = {name: environ.get(name) or default for name, (default, _) in ACCEPTED.items()}
    home = _folder("LAKEHOUSE_HOME", values["LAKEHOUSE_HOME"], base=base)
    root = _root(environ.get("LAKEHOUSE_ROOT") or f"{home}/lake", base=base)
    tick = "LAKEHOUSE_COMPACTION_TICK_SECONDS"
    values[tick] = environ.get(tick) or ("30" if root.startswith("s3://") else "10")
    changes = _matching(values, "LAKEHOUSE_REPLAY_CDC", _CHANGES)
    values["LAKEHOUSE_TABLES"] = environ.get("LAKEHOUSE_TABLES") or _DEMO_TABLES.get(changes, values["LAKEHOUSE_TABLES"])
    port, spark_port = _ports(values)
    if values["LAKEHOUSE_COMPUTE_LOGS"] not in (("home", "lake") if root.startswith("s3://") else ("home",)):
        raise _refused("LAKEHOUSE_COMPUTE_LOGS", values["LAKEHOUSE_COMPUTE_LOGS"])
    return Settings(
        root=root,
        home=Path(home),
        spark=_spark(values),
        port=port,
        spark_port=spark_port,
        spark_memory=_memory(values),
        compaction_budget_usd=float(_matching(values, "LAKEHOUSE_COMPACTION_BUDGET_USD", _USD)),
        compaction_slots=_whole(values, "LAKEHOUSE_COMPACTION_SLOTS", 1, 16),
        compaction_tick_seconds=_whole(values, tick, 5, 3600),
        compute_logs=values["LAKEHOUSE_COMPUTE_LOGS"],
        tables=_matching(values, "LAKEHOUSE_TABLES", _MODULE),
        adopted=Path(_folder("LAKEHOUSE_ADOPTED", values["LAKEHOUSE_ADOPTED"], base=base)),
        replay=_matching(values, "LAKEHOUSE_REPLAY", _SWITCH) == "on",
        replay_cdc=changes,
        replay_start=_day(values, "LAKEHOUSE_REPLAY_START"),
        replay_hours=_whole(values, "LAKEHOUSE_REPLAY_HOURS", 1, 744),
        replay_seconds=_whole(values, "LAKEHOUSE_REPLAY_SECONDS", 5, 86400),
    )


def holds_credentials(address: str) -> bool:
    """Whether an address holds a user, a password or a signed query."""
    return _CREDENTIALS.search(address) is not None


def s3_endpoint(environ: Mapping[str, str]) -> str | None:
    """The S3 server that these variables name; `None` is AWS."""
    return next((environ[name] for name in S3_ENDPOINTS if environ.get(name)), None)


def s3_region(environ: Mapping[str, str]) -> str | None:
    """The region of S3 that these variables name, if any does."""
    return next((environ[name] for name in _S3_REGIONS if environ.get(name)), None)


def _refused(name: str, value: str, *, near: str | None = None) -> Refused:
    nearest = f"; did you mean {near}?" if near else ""
    return Refused(f"{name} is {value!r}; accepted: {ACCEPTED[name][1]} (default {ACCEPTED[name][0]}){nearest}")


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
            raise Refused(f"{name} holds a user, a password or a signed query; accepted: an address without; {place}")


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    known = {name.removeprefix("LAKEHOUSE_"): name for name in ACCEPTED}
    for name in environ:
        if name.startswith("LAKEHOUSE_") and name not in ACCEPTED:
            near = nearest_words(name.removeprefix("LAKEHOUSE_"), known, most=1)
            hint = f"did you mean {known[near[0]]}?" if near else f"known: {', '.join(ACCEPTED)}"
            raise Refused(f"{name} is not a setting; {hint}")


def _folder(name: str, value: str, *, base: Path) -> str:
    """The absolute folder, `..` taken out by its spelling, so that Spark, Python and the log name it alike."""
    if scheme := _SCHEME.fullmatch(value):
        raise _refused(name, value, near=f"/{scheme['rest'].lstrip('/')}" if scheme["scheme"].lower() == "file" else None)
    if value == "/" or value.startswith("~") or _UNSAFE_IN_FOLDER.search(value):
        raise _refused(name, value, near=_nearest_folder(value))
    return posixpath.normpath(f"{base}/{value}" if not value.startswith("/") else f"/{value.lstrip('/')}")


def _nearest_folder(value: str) -> str | None:
    if value == "/":
        return "/lake"
    return None if "\\" in value else _UNSAFE_IN_FOLDER.sub("-", value.replace("~", "$HOME", 1) if value.startswith("~") else value)


def _root(value: str, *, base: Path) -> str:
    scheme = _SCHEME.fullmatch(value)
    if scheme is None or scheme["scheme"].lower() == "file":
        return _folder("LAKEHOUSE_ROOT", value, base=base)
    if not value.startswith("s3://"):
        means_s3 = scheme["scheme"].lower() in ("s3", "s3a", "s3n", *(("http", "https") if ".s3" in scheme["rest"] else ()))
        raise _refused("LAKEHOUSE_ROOT", value, near=_nearest_s3(scheme["rest"]) if means_s3 else None)
    bucket, _, prefix = value.removeprefix("s3://").rstrip("/").partition("/")
    if not is_bucket(bucket) or (prefix and (not _PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/")))):
        raise _refused("LAKEHOUSE_ROOT", value, near=_nearest_s3(scheme["rest"]))
    return value.rstrip("/")


def is_bucket(name: str) -> bool:
    """Whether a bucket can have that name."""
    return bool(_BUCKET.fullmatch(name)) and not _IP_ADDRESS.fullmatch(name)


def _nearest_s3(rest: str) -> str | None:
    """The root that a misspelled S3 address most likely means; of a web address, the bucket stands before `.s3`."""
    host, _, path = rest.strip("/").partition("/")
    bucket = re.sub(r"[^a-z0-9.-]+", "-", host.split(".s3")[0].lower()).strip("-.")
    parts = [re.sub(r"[^A-Za-z0-9_.=-]+", "-", part) for part in path.split("/") if part.strip(".")]
    return "/".join(["s3:/", bucket, *parts]) if is_bucket(bucket) else None


def _ports(values: Mapping[str, str]) -> tuple[int, int]:
    port, spark_port = _whole(values, "LAKEHOUSE_PORT", 1, 65535), _whole(values, "LAKEHOUSE_SPARK_PORT", 1, 65535)
    if port == spark_port:
        near = str(port + 1 if port < 65535 else port - 1)
        raise Refused(f"LAKEHOUSE_SPARK_PORT is {port}, as is LAKEHOUSE_PORT; accepted: two different ports, for instance {near}")
    return port, spark_port


def _matching(values: Mapping[str, str], name: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(values[name]):
        raise _refused(name, values[name])
    return values[name]


def _spark(values: Mapping[str, str]) -> str:
    """The value, unless it names a token or a session; such a value is not repeated, since it may hold a secret."""
    if found := _NOT_IN_SPARK.search(values["LAKEHOUSE_SPARK"]):
        raise Refused(
            f"LAKEHOUSE_SPARK names a {found[1].lower()}; accepted: sc://host:port/;name=value without token and session_id "
            "(the token belongs into SPARK_CONNECT_AUTHENTICATE_TOKEN, and each run has a session of its own)"
        )
    if not _SPARK.fullmatch(values["LAKEHOUSE_SPARK"]):
        # A parameter after a semicolon may be a key.
        raise _refused("LAKEHOUSE_SPARK", values["LAKEHOUSE_SPARK"].partition(";")[0])
    return values["LAKEHOUSE_SPARK"]


def _whole(values: Mapping[str, str], name: str, least: int, most: int) -> int:
    value = values[name]
    if not _WHOLE.fullmatch(value) or not least <= int(value) <= most:
        raise _refused(name, value)
    return int(value)


def _memory(values: Mapping[str, str]) -> str:
    value = _matching(values, "LAKEHOUSE_SPARK_MEMORY", _MEMORY)
    if int(value[:-1]) * (1024 if value.endswith("g") else 1) < 512:
        raise _refused("LAKEHOUSE_SPARK_MEMORY", value)
    return value


def _day(values: Mapping[str, str], name: str) -> datetime:
    with suppress(ValueError):
        day = datetime.strptime(values[name], "%Y-%m-%d")
        if day.year == 2013:
            return day
    raise _refused(name, values[name])
