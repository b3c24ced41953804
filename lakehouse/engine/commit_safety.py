"""Refuses writes that could overwrite a commit of another Spark driver or of another program.

Conditional commits never overwrite another commit. If Spark's commits are conditional, any number
of drivers may write to a lake. Otherwise, only one driver may write:

1. The first driver that writes to a lake records itself as the owner. The record contains the home
   (LAKEHOUSE_HOME), or the address of the Spark Connect server in the settings, and whether the
   driver's commits are conditional.
2. Each writing process compares its own driver with this record once, before its first statement.
   Reading a table needs no record.
3. If an owner without conditional commits is gone for good, `lakehouse server take-over` replaces
   the record.
4. A table that other programs write is checked before each operation: the table must not be inside
   another lake, and our commits must not be able to overwrite commits of the other programs.

**Safety properties** (tests in `test_commit_safety.py`, `test_foreign_tables.py`)
- If several drivers claim a new lake, only one becomes the owner: the record is created only once.
- If the record says that the owner's commits are conditional, only drivers with conditional commits
  may write. Otherwise, only the owner may write.
- A copy of a home on another machine counts as a different home, even at the same path, because
  both homes could start a server. This holds if the machines have ids (`_MACHINE_ID`).
- While the record cannot be read, no driver may begin to write.
- A table inside a lake is maintained by that lake only.
- Nothing is committed to a table if the commit could overwrite a commit of another writer.

Source: Delta's log stores for disk and S3A are safe within one JVM. Two JVMs can lose acknowledged
commits (docs/internals/decisions/0001).
"""

import hashlib
import json
import os
import socket
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

from lakehouse.core.declaration.adopted import Adopted, commits_at_risk, commits_conditionally
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.settings import Settings
from lakehouse.core.text import utc_text
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore, real_address, store_at
from lakehouse.runtime.log_store import (
    honours_conditions,
    ignoring_bucket,
    known_conditions,
    log_store_setting,
    remember_conditions,
)
from lakehouse.runtime.server_state import driver_log_stores, status
from lakehouse.runtime.spark_conf import CONNECT_PORT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD = "_lakehouse/owner.json"
_IDENTITY = "identity"
# In many containers, this file is absent or empty. There, homes differ only by their random ids.
# The content is confidential, so only a hash of it is shown. Source: machine-id(5)
_MACHINE_ID = Path("/etc/machine-id")
_LOOPBACK = ("localhost", "::1", "0.0.0.0")  # noqa: S104  # nothing is bound here
# Tables are two folders below the lake's root, quarantine tables are three folders below it.
_TABLE_DEPTHS = (2, 3)
# Pairs of lake root and driver whose ownership this process has already checked.
_claimed: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The Spark driver that owns a lake, or the first of several drivers that share the lake.

    Only `driver` identifies the owner; `home`, `machine` and `host` help people to find it. Drivers
    share a lake if all of them make `conditional` commits.
    """

    driver: str
    home: str
    machine: str
    host: str
    since_ms: int
    conditional: bool = False

    @property
    def sentence(self) -> str:
        """For example `the home /srv/lake (id 1f0…, machine 9d2…), used from host web1 since …`."""
        sharing = " and other drivers with conditional commits" if self.conditional else ""
        return f"{self.driver}{sharing}, used from host {self.host} since {utc_text(self.since_ms)}"


def claim(lake: Lake, *, asked: str) -> None:
    """Makes the settings' driver the lake's owner, or one of several drivers that share the lake.

    `asked` names the operation in error messages.

    Raises:
        Refused: another driver owns the lake; nothing was changed.
        Broken: the record cannot be read.
    """
    driver = _driver_of(lake.settings)
    if (lake.settings.root, driver) in _claimed:
        return
    writer = _new_record(lake)
    owner = owner_of(lake)
    if owner is None:
        lake.store.put_if_absent(RECORD, _encoded(writer))
        owner = owner_of(lake)
    if owner is None or not _may_write(writer, owner):
        holder = owner.sentence if owner else "another driver, which has removed its record"
        addition = "" if writer.conditional else ", whose commits are not conditional"
        raise Refused(
            f"{asked}: the lake {lake.settings.root} belongs to {holder}; this is {writer.driver}"
            f"{addition}. If both wrote to a table, commits could be lost. To write with this "
            "driver, first stop the other driver for good, then run: lakehouse server take-over"
        )
    if writer.conditional and not owner.conditional:
        lake.store.put(RECORD, _encoded(writer))
    _claimed.add((lake.settings.root, driver))


def _may_write(writer: Owner, owner: Owner) -> bool:
    """Whether the driver `writer` may write to a lake of `owner`."""
    return writer.conditional if owner.conditional else writer.driver == owner.driver


def owner_of(lake: Lake) -> Owner | None:
    """The lake's owner; `None` before the first write."""
    try:
        return Owner(**json.loads(lake.store.read(RECORD)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise Broken(
            f"the lake {lake.settings.root}: {RECORD}, which names the Spark driver, cannot be "
            f"read ({type(error).__name__}). First make sure that no other driver writes to "
            "this lake, then run: lakehouse server take-over"
        ) from error


def take_over(lake: Lake) -> tuple[Owner, Owner | None]:
    """Makes the settings' driver the owner; returns the new and the previous owner.

    The previous owner is `None` if there was no readable record.

    Raises:
        Refused: the server of the previous owner, another home, runs here; commits could be lost.
    """
    try:
        previous = owner_of(lake)
    except Broken:
        previous = None
    new = _new_record(lake)
    if (
        previous is not None
        and not (previous.conditional and new.conditional)
        and previous.driver != new.driver
        and previous.machine == new.machine
        and previous.home != new.home
    ):
        pid = status(replace(lake.settings, home=Path(previous.home))).pid
        if pid is not None:
            raise Refused(
                f"take-over of {lake.settings.root}: the Spark Connect server of {previous.driver} "
                f"runs on this machine as process {pid}. First stop that server: press Ctrl-C "
                "where lakehouse up runs, or use "
                f"LAKEHOUSE_HOME={previous.home} lakehouse server stop"
            )
    lake.store.put(RECORD, _encoded(new))
    return new, previous


def spark_commits_conditionally(lake: Lake, table_key: str | None = None) -> bool:
    """Whether Spark's commits to a table (or to the lake's root) never overwrite other commits.

    True if the driver's log store writes conditionally, and the storage honours conditions. False
    if not, or if unknown. Spark is neither started nor called, so a sensor may call this function.
    """
    address = lake.settings.root if table_key is None else lake.table_uri(table_key)
    scheme = "s3a" if address.startswith("s3") else "file"
    log_store = driver_log_stores(lake.settings).get(log_store_setting(scheme), "")
    is_honoured = scheme == "file" or honours_conditions(lake.settings, address)
    return is_honoured and commits_conditionally(log_store)


def commits_sentence(lake: Lake) -> str:
    """Whether Spark's commits to the lake are conditional, and who may therefore write."""
    settings = lake.settings
    if spark_commits_conditionally(lake):
        return "conditional: any number of Spark drivers and other conditional writers may write"
    if settings.on_s3 and (bucket := ignoring_bucket(settings)) is not None:
        why = f"the S3 server ignores If-None-Match in the bucket {bucket}"
    elif settings.spark.startswith("sc://"):
        why = "no conditional log store was seen on the Connect server"
    else:
        why = "an earlier version of this program started the Spark server; restart the server"
    return f"not conditional ({why}): one Spark driver may write"


def refuse_table_of_another_lake(lake: Lake, address: str, *, asked: str) -> None:
    """Refuses the table at `address` if it is in another lake; `asked` names the operation."""
    for depth in _TABLE_DEPTHS:
        root, *below = real_address(address).rsplit("/", depth)
        is_no_lake = root in ("", "s3:", "s3:/")
        if len(below) < depth or is_no_lake or root == real_address(lake.settings.root):
            continue
        if store_at(root).stat(RECORD) is not None:
            raise Refused(
                f"{asked}: {address} belongs to the lake {root} ({root}/{RECORD} exists), and only "
                "that lake may maintain the table. Either choose a table that is in no lake, or "
                f"maintain this table with LAKEHOUSE_ROOT={root}"
            )


def refuse_unsafe_commits(lake: Lake, spark: "SparkSession", table: Table, *, asked: str) -> None:
    """Refuses an adopted table in another lake, or whose writers' commits could be overwritten."""
    if not isinstance(table.write, Adopted):
        return
    refuse_table_of_another_lake(lake, table.write.uri, asked=asked)
    if table.write.writers == "none":
        return
    _check_conditions(lake, table.write.uri)
    if spark_commits_conditionally(lake, table.key):
        # A Connect server may have been restarted with other settings since the last connection.
        setting = log_store_setting("s3a" if table.write.on_s3 else "file")
        if commits_conditionally(spark.conf.get(setting, "") or ""):
            return
    risk = commits_at_risk(table.write, "spark", spark_is_conditional=False)
    if risk is not None:
        raise Refused(f"{asked}: {risk.sentence}")
    raise Refused(
        f'{asked}: writers = "conditional", but Spark\'s commits to {table.write.uri} are not '
        "conditional (lakehouse config shows the reason). If an earlier version of this program "
        'started the Spark server, restart the server. Otherwise, use writers = "none"'
    )


def _check_conditions(lake: Lake, uri: str) -> None:
    """Tests, once per home and bucket, whether the bucket honours conditional writes."""
    if not uri.startswith("s3://") or known_conditions(lake.settings, uri) is not None:
        return
    from lakehouse.engine.store.s3 import TAKEN, S3Store
    from lakehouse.engine.store.s3_client import completes_conditionally

    is_table = uri != lake.settings.root
    store = store_at(f"{uri}/_delta_log" if is_table else uri)
    assert isinstance(store, S3Store)
    is_honoured = store.honours_conditions() and completes_conditionally(
        store.client, store.bucket, store.prefix + TAKEN
    )
    remember_conditions(lake.settings, uri, is_honoured=is_honoured)
    if is_table:
        store.delete([TAKEN])


def _new_record(lake: Lake) -> Owner:
    """A new record of the driver in the lake's settings."""
    _check_conditions(lake, lake.settings.root)
    return Owner(
        driver=_driver_of(lake.settings),
        home=os.path.realpath(lake.settings.home),
        machine=_machine(),
        host=socket.gethostname(),
        since_ms=now_ms(),
        conditional=spark_commits_conditionally(lake),
    )


def _driver_of(settings: Settings) -> str:
    """The driver in the settings: a Connect server, or the home with all drivers that it starts."""
    if not settings.spark.startswith("sc://"):
        home = os.path.realpath(settings.home)
        return f"the home {home} (id {_identity(settings)}, machine {_machine()})"
    url = urlsplit(settings.spark)
    is_here = url.hostname in _LOOPBACK or (url.hostname or "").startswith("127.")
    where = f" of machine {_machine()}" if is_here else ""
    return f"the Connect server sc://{url.hostname}:{url.port or CONNECT_PORT}{where}"


def _machine() -> str:
    machine_id = _MACHINE_ID.read_bytes().strip() if _MACHINE_ID.is_file() else b""
    return hashlib.sha256(b"lakehouse" + machine_id).hexdigest()[:12] if machine_id else "unknown"


def _identity(settings: Settings) -> str:
    """This home's random id, which is written once. A new home at the same path gets a new id."""
    store = DiskStore(settings.home)
    try:
        return store.read(_IDENTITY).decode()
    except FileNotFoundError:
        store.put_if_absent(_IDENTITY, uuid4().hex[:12].encode())
        return store.read(_IDENTITY).decode()


def _encoded(owner: Owner) -> bytes:
    return json.dumps(asdict(owner), indent=1).encode()
