"""The Spark driver that writes to a lake: a record in the lake names it, and every other is refused.

1. The first writer of a lake puts down who it is: its home, or the Connect server elsewhere that its settings name.
2. A writing process reads the record once, before its first statement. Who only reads a lake is never asked.
3. A lake whose owner has moved or is gone is taken over by a person's word, `lakehouse server take-over`.

**Safety properties** (tests in `test_lake_owner.py`)
- If several drivers claim a new lake at once, one gets it: the record is written only if absent.
- A copy of a home counts as another home, even on another machine under the same path: both could
  start a server.
- While the record cannot be read, no driver may write.

Source: Delta's log stores for disk and S3A are safe within one JVM and lose acknowledged commits between two (docs/internals/decisions/0001).
"""

import hashlib
import json
import os
import socket
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from lakehouse.core.errors import Broken, Refused
from lakehouse.core.settings import Settings
from lakehouse.core.text import utc_text
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore
from lakehouse.runtime.server_state import status
from lakehouse.runtime.spark_settings import CONNECT_PORT

RECORD = "_lakehouse/owner.json"
_IDENTITY = "identity"
# Absent or empty in many containers; the home's identity tells those apart. Source: machine-id(5), which asks not to show it as it is.
_MACHINE_ID = Path("/etc/machine-id")
_LOOPBACK = ("localhost", "::1", "0.0.0.0")  # noqa: S104  # nothing is bound here
# The pairs that this process has already compared: the root, and the driver that it belongs to.
_claimed: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A driver, and since when the lake is its own. `driver` is all that is compared; the rest tells a person where to look."""

    driver: str
    home: str
    machine: str
    host: str
    since_ms: int

    @property
    def sentence(self) -> str:
        """`the home /srv/lake (id 1f0c…, machine 9d2e…), set up on host web1`."""
        return f"{self.driver}, used from host {self.host} since {utc_text(self.since_ms)}"


def claim(lake: Lake, *, asked: str) -> None:
    """Makes sure that the lake belongs to the driver of these settings; it does, if it belonged to nobody. `asked` is what for.

    Raises:
        Refused: it belongs to another driver; nothing was touched.
        Broken: the record cannot be read.
    """
    mine = _this(lake.settings)
    if (lake.settings.root, mine.driver) in _claimed:
        return
    owner = owner_of(lake)
    if owner is None:
        lake.store.put_if_absent(RECORD, _encoded(mine))
        owner = owner_of(lake)
    if owner is None or owner.driver != mine.driver:
        holder = owner.sentence if owner else "somebody who took the record away"
        raise Refused(
            f"{asked}: the lake {lake.settings.root} belongs to {holder}; this is {mine.driver}. "
            "Two Spark drivers on one table lose commits: stop the other one for good, then run: lakehouse server take-over"
        )
    _claimed.add((lake.settings.root, mine.driver))


def owner_of(lake: Lake) -> Owner | None:
    """Whose lake it is; `None` if nobody has written to it yet."""
    try:
        return Owner(**json.loads(lake.store.read(RECORD)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise Broken(
            f"the lake {lake.settings.root}: {RECORD}, which names its Spark driver, cannot be read ({type(error).__name__}); "
            "make sure that nobody else writes to this lake, then run: lakehouse server take-over"
        ) from error


def take_over(lake: Lake) -> tuple[Owner, Owner | None]:
    """The lake given to the driver of these settings: its owner from now on, and the one before, if a readable record named one.

    Raises:
        Refused: the Spark Connect server of the owner before runs on this machine.
    """
    try:
        before = owner_of(lake)
    except Broken:
        before = None
    mine = _this(lake.settings)
    if (
        before is not None
        and before.driver != mine.driver
        and before.machine == mine.machine
        and before.home != mine.home
    ):
        state = status(replace(lake.settings, home=Path(before.home)))
        if state.pid is not None:
            raise Refused(
                f"take-over of {lake.settings.root}: the Spark Connect server of {before.driver} runs here as process {state.pid}; "
                "stop it first (Ctrl-C where lakehouse up runs, or lakehouse server stop with its LAKEHOUSE_HOME)"
            )
    lake.store.put(RECORD, _encoded(mine))
    return mine, before


def _this(settings: Settings) -> Owner:
    """The driver that these settings name, as it would be written down now."""
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
    """A mark that tells this home from one that was made anew at the same path; written once."""
    store = DiskStore(settings.home)
    try:
        return store.read(_IDENTITY).decode()
    except FileNotFoundError:
        store.put_if_absent(_IDENTITY, uuid4().hex[:12].encode())
        return store.read(_IDENTITY).decode()


def _encoded(owner: Owner) -> bytes:
    return json.dumps(asdict(owner), indent=1).encode()
