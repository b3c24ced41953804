"""Refuses writes that could lose a commit: from a second Spark driver, or next to other writers.

Where Spark's commits are conditional, no writer can overwrite another one's commit, so any number
of drivers and homes may write to a lake. Elsewhere, one driver writes:

1. The first driver that writes to a lake records itself: its home, or the address of the Spark
   Connect server that its settings name, and whether its commits are conditional.
2. Each writing process compares itself with that record once, before its first statement. Reading
   needs no record.
3. If an exclusive owner has moved or is gone for good, `lakehouse server take-over` replaces the
   record.
4. A table that other programs write to is checked before each operation: it must not belong to
   another lake, and our commits must not be able to overwrite those of other programs.

**Safety properties** (tests in `test_lake_owner.py`, `test_foreign_tables.py`)
- If several drivers claim a new lake at once, one gets it: the record is written only if absent.
- A driver without conditional commits is refused wherever another driver may write, and the other
  way round.
- A copy of a home counts as a different home, even at the same path on another machine, because
  both could start a server.
- While the record cannot be read, no driver may write.
- A table in another lake is maintained by that lake only.
- Nothing is committed to a table if that could overwrite a commit of its other writers.

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
# Absent or empty in many containers; the identity of the home distinguishes these. The content is
# confidential, so only its hash is shown. Source: machine-id(5)
_MACHINE_ID = Path("/etc/machine-id")
_LOOPBACK = ("localhost", "::1", "0.0.0.0")  # noqa: S104  # nothing is bound here
# A lake's tables lie two folders below its root, its quarantine tables three.
_TABLE_DEPTHS = (2, 3)
# Pairs of lake root and driver whose ownership this process has already checked.
_claimed: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The Spark driver that owns a lake, or the first of those that share it.

    `driver` alone identifies it; `home`, `machine` and `host` help to find it. Drivers share a lake
    if the commits of all are `conditional`.
    """

    driver: str
    home: str
    machine: str
    host: str
    since_ms: int
    conditional: bool = False

    @property
    def sentence(self) -> str:
        """Like `the home /srv/lake (id 1f0c…, machine 9d2e…), used from host web1 since …`."""
        sharing = " and other drivers with conditional commits" if self.conditional else ""
        return f"{self.driver}{sharing}, used from host {self.host} since {utc_text(self.since_ms)}"


def claim(lake: Lake, *, asked: str) -> None:
    """Makes the driver of these settings the lake's owner, or one of those that share it.

    `asked` names the operation in a refusal.

    Raises:
        Refused: another driver owns the lake; nothing was changed.
        Broken: the record cannot be read.
    """
    driver = _driver_of(lake.settings)
    if (lake.settings.root, driver) in _claimed:
        return
    mine = _new_record(lake)
    owner = owner_of(lake)
    if owner is None:
        lake.store.put_if_absent(RECORD, _encoded(mine))
        owner = owner_of(lake)
    if owner is None or not _may_write(mine, owner):
        holder = owner.sentence if owner else "another driver, which has removed its record"
        raise Refused(
            f"{asked}: the lake {lake.settings.root} belongs to {holder}; this is {mine.driver}"
            f"{'' if mine.conditional else ', whose commits are not conditional'}. "
            "Two such Spark drivers on one table lose commits. Stop the other one for good, then "
            "run: lakehouse server take-over"
        )
    if mine.conditional and not owner.conditional:
        lake.store.put(RECORD, _encoded(mine))
    _claimed.add((lake.settings.root, driver))


def _may_write(mine: Owner, owner: Owner) -> bool:
    """Whether a driver may write to a lake with this owner."""
    return mine.conditional if owner.conditional else mine.driver == owner.driver


def owner_of(lake: Lake) -> Owner | None:
    """The lake's owner; `None` before the first write."""
    try:
        return Owner(**json.loads(lake.store.read(RECORD)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise Broken(
            f"the lake {lake.settings.root}: {RECORD}, which names its Spark driver, cannot be "
            f"read ({type(error).__name__}). Make sure that no other driver writes to this lake, "
            "then run: lakehouse server take-over"
        ) from error


def take_over(lake: Lake) -> tuple[Owner, Owner | None]:
    """Makes the driver of these settings the owner; returns the new and the previous owner.

    The previous owner is `None` if there was no record, or an unreadable one.

    Raises:
        Refused: the Spark Connect server of the previous owner runs on this machine.
    """
    try:
        before = owner_of(lake)
    except Broken:
        before = None
    mine = _new_record(lake)
    if (
        before is not None
        and not (before.conditional and mine.conditional)
        and before.driver != mine.driver
        and before.machine == mine.machine
        and before.home != mine.home
    ):
        pid = status(replace(lake.settings, home=Path(before.home))).pid
        if pid is not None:
            raise Refused(
                f"take-over of {lake.settings.root}: the Spark Connect server of {before.driver} "
                f"runs here as process {pid}. Stop it first: press Ctrl-C where lakehouse up "
                "runs, or use lakehouse server stop with its LAKEHOUSE_HOME"
            )
    lake.store.put(RECORD, _encoded(mine))
    return mine, before


def spark_commits_conditionally(lake: Lake, table_key: str | None = None) -> bool:
    """Whether Spark's commits can never overwrite another one: to a table, or to the lake's root.

    True if the driver's log store writes conditionally and the storage honours this. Starts and
    asks no Spark, so a sensor may call it. False means that it is not known.
    """
    address = lake.settings.root if table_key is None else lake.table_uri(table_key)
    scheme = "s3a" if address.startswith("s3") else "file"
    log_store = driver_log_stores(lake.settings).get(log_store_setting(scheme), "")
    is_honoured = scheme == "file" or honours_conditions(lake.settings, address)
    return is_honoured and commits_conditionally(log_store)


def commits_sentence(lake: Lake) -> str:
    """How Spark commits to the lake, and who may therefore write."""
    settings = lake.settings
    if spark_commits_conditionally(lake):
        return "conditional: any number of Spark drivers and other conditional writers may write"
    if settings.on_s3 and (bucket := ignoring_bucket(settings)) is not None:
        why = f"the S3 server ignores If-None-Match in the bucket {bucket}"
    elif settings.spark.startswith("sc://"):
        why = "no conditional log store was seen on the Connect server"
    else:
        why = "an earlier version started the Spark server; restart it"
    return f"not conditional ({why}): one Spark driver may write"


def refuse_table_of_another_lake(lake: Lake, address: str, *, asked: str) -> None:
    """Refuses the table at `address` if it lies in another lake; `asked` names the operation."""
    for depth in _TABLE_DEPTHS:
        root, *below = real_address(address).rsplit("/", depth)
        is_no_lake = root in ("", "s3:", "s3:/")
        if len(below) < depth or is_no_lake or root == real_address(lake.settings.root):
            continue
        if store_at(root).stat(RECORD) is not None:
            raise Refused(
                f"{asked}: {address} belongs to the lake {root}, which maintains it "
                f"({root}/{RECORD}). Either choose a table that is in no lake, or maintain this "
                f"one with LAKEHOUSE_ROOT={root}"
            )


def refuse_unsafe_commits(lake: Lake, spark: "SparkSession", table: Table, *, asked: str) -> None:
    """Refuses an adopted table if a commit of ours could overwrite one of its other writers."""
    if not isinstance(table.write, Adopted):
        return
    refuse_table_of_another_lake(lake, table.write.uri, asked=asked)
    if table.write.writers == "none":
        return
    _check_conditions(lake, table.write.uri)
    if spark_commits_conditionally(lake, table.key):
        # A Connect server may have been started again, with other settings, since we asked it.
        setting = log_store_setting("s3a" if table.write.on_s3 else "file")
        if commits_conditionally(spark.conf.get(setting, "") or ""):
            return
    risk = commits_at_risk(table.write, "spark", spark_is_conditional=False)
    if risk is not None:
        raise Refused(f"{asked}: {risk.sentence}")
    raise Refused(
        f'{asked}: writers = "conditional", but Spark\'s commits to {table.write.uri} are not '
        "conditional (lakehouse config says why). Either restart the Spark server, if it was "
        'started by an earlier version, or use writers = "none"'
    )


def _check_conditions(lake: Lake, uri: str) -> None:
    """Asks a bucket, once per home, whether it honours conditional writes."""
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
    """A new record of the driver that the lake's settings name."""
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
    """The driver that the settings name: a Connect server, or a home for all drivers it starts."""
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
    """The random id of this home, written once; a new home at the same path gets another."""
    store = DiskStore(settings.home)
    try:
        return store.read(_IDENTITY).decode()
    except FileNotFoundError:
        store.put_if_absent(_IDENTITY, uuid4().hex[:12].encode())
        return store.read(_IDENTITY).decode()


def _encoded(owner: Owner) -> bytes:
    return json.dumps(asdict(owner), indent=1).encode()
