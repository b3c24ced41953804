"""Refuses writes that could lose a commit: from a second Spark driver, or next to other writers.

1. The first driver that writes to a lake records itself: its home, or the address of the Spark
   Connect server that its settings name.
2. Each writing process compares itself with that record once, before its first statement. Reading
   needs no record.
3. If the owner has moved or is gone for good, `lakehouse server take-over` replaces the record.
4. A table that other programs write to is checked before each operation: it must not belong to
   another lake, and our commits must not be able to overwrite those of other programs.

**Safety properties** (tests in `test_lake_owner.py`, `test_foreign_tables.py`)
- If several drivers claim a new lake at once, one gets it: the record is written only if absent.
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
from lakehouse.runtime.log_store import honours_conditions, log_store_setting
from lakehouse.runtime.server_state import driver_log_stores, status
from lakehouse.runtime.spark_server_conf import CONNECT_PORT

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
    """The Spark driver that owns a lake.

    `driver` alone identifies it; the other fields help to find it.
    """

    driver: str
    home: str
    machine: str
    host: str
    since_ms: int

    @property
    def sentence(self) -> str:
        """Like `the home /srv/lake (id 1f0c…, machine 9d2e…), used from host web1 since …`."""
        return f"{self.driver}, used from host {self.host} since {utc_text(self.since_ms)}"


def claim(lake: Lake, *, asked: str) -> None:
    """Makes the driver of these settings the lake's owner, unless another one owns it.

    `asked` names the operation in a refusal.

    Raises:
        Refused: another driver owns the lake; nothing was changed.
        Broken: the record cannot be read.
    """
    mine = _new_record(lake.settings)
    if (lake.settings.root, mine.driver) in _claimed:
        return
    owner = owner_of(lake)
    if owner is None:
        lake.store.put_if_absent(RECORD, _encoded(mine))
        owner = owner_of(lake)
    if owner is None or owner.driver != mine.driver:
        holder = owner.sentence if owner else "another driver, which has removed its record"
        raise Refused(
            f"{asked}: the lake {lake.settings.root} belongs to {holder}; this is {mine.driver}. "
            "Two Spark drivers on one table lose commits. Stop the other one for good, then run: "
            "lakehouse server take-over"
        )
    _claimed.add((lake.settings.root, mine.driver))


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
    mine = _new_record(lake.settings)
    if (
        before is not None
        and before.driver != mine.driver
        and before.machine == mine.machine
        and before.home != mine.home
    ):
        state = status(replace(lake.settings, home=Path(before.home)))
        if state.pid is not None:
            raise Refused(
                f"take-over of {lake.settings.root}: the Spark Connect server of {before.driver} "
                f"runs here as process {state.pid}. Stop it first: press Ctrl-C where lakehouse up "
                "runs, or use lakehouse server stop with its LAKEHOUSE_HOME"
            )
    lake.store.put(RECORD, _encoded(mine))
    return mine, before


def spark_commits_conditionally(lake: Lake, table_key: str | None = None) -> bool:
    """Whether Spark's commits can never overwrite another one: to a table, or to the lake's root.

    True if the driver's log store writes conditionally and the storage honours this. Starts and
    asks no Spark, so a sensor may call it. False means that it is not known.
    """
    on_s3 = lake.settings.on_s3 if table_key is None else lake.on_s3(table_key)
    setting = log_store_setting("s3a" if on_s3 else "file")
    log_store = driver_log_stores(lake.settings).get(setting, "")
    return commits_conditionally(log_store) and (not on_s3 or honours_conditions(lake.settings))


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
    risk = commits_at_risk(table.write)
    if risk is not None:
        raise Refused(f"{asked}: {risk.sentence}")
    if table.write.writers == "conditional":
        setting = f"spark.delta.logStore.{'s3a' if table.write.on_s3 else 'file'}.impl"
        log_store = spark.conf.get(setting, "") or ""
        if not commits_conditionally(log_store):
            raise Refused(
                f'{asked}: writers = "conditional", but Spark commits through '
                f"{log_store or 'its default log store'}, which checks for a version and then "
                f"writes it. Either set {setting} to a log store with conditional writes, or use "
                'writers = "none"'
            )


def _new_record(settings: Settings) -> Owner:
    """A new record of the driver that these settings name."""
    home = os.path.realpath(settings.home)
    machine_id = _MACHINE_ID.read_bytes().strip() if _MACHINE_ID.is_file() else b""
    machine = (
        hashlib.sha256(b"lakehouse" + machine_id).hexdigest()[:12] if machine_id else "unknown"
    )
    if settings.spark.startswith("sc://"):
        url = urlsplit(settings.spark)
        where = (
            f" of machine {machine}"
            if url.hostname in _LOOPBACK or (url.hostname or "").startswith("127.")
            else ""
        )
        driver = f"the Connect server sc://{url.hostname}:{url.port or CONNECT_PORT}{where}"
    else:
        driver = f"the home {home} (id {_identity(settings)}, machine {machine})"
    return Owner(
        driver=driver, home=home, machine=machine, host=socket.gethostname(), since_ms=now_ms()
    )


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
