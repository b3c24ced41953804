"""The conditions for touching a table that others write, asked each time just before.

**Safety properties** (tests in `test_guard.py`)
- A table that lies in another lake is maintained by that lake: two drivers on one table lose
  commits.
- Nothing is committed to a table if that could overwrite a commit of its other writers, whoever
  asks for it.
"""

from typing import TYPE_CHECKING

from lakehouse.core.declaration.adopted import Adopted, commits_at_risk, commits_conditionally
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused
from lakehouse.engine.lake import Lake
from lakehouse.engine.lake_owner import RECORD
from lakehouse.engine.store import real_address, store_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A lake's tables lie two folders below its root, what they set aside three.
_DEPTHS = (2, 3)


def refuse_owned(lake: Lake, address: str, *, asked: str) -> None:
    """Refuses a table that lies in another lake than this one, and one of which nobody may know it here; `asked` is what for."""
    for depth in _DEPTHS:
        root, *below = real_address(address).rsplit("/", depth)
        if len(below) < depth or root in ("", "s3:", "s3:/", real_address(lake.settings.root)):
            continue
        if store_at(root).stat(RECORD) is not None:
            raise Refused(
                f"{asked}: {address} belongs to the lake {root}, which looks after it ({root}/{RECORD}); accepted: tables of no lake, or "
                f"to work there, with LAKEHOUSE_ROOT={root}"
            )


def refuse_commits(lake: Lake, spark: "SparkSession", table: Table, *, asked: str) -> None:
    """Refuses a table of which a commit could take the place of another that somebody makes at the same moment, and another lake's."""
    if not isinstance(table.write, Adopted):
        return
    refuse_owned(lake, table.write.uri, asked=asked)
    if (risk := commits_at_risk(table.write)) is not None:
        raise Refused(f"{asked}: {risk.sentence}")
    if table.write.writers == "conditional":
        name = f"spark.delta.logStore.{'s3a' if table.write.on_s3 else 'file'}.impl"
        log_store = spark.conf.get(name, "") or ""
        if not commits_conditionally(log_store):
            raise Refused(
                f'{asked}: writers = "conditional", but Spark commits by {log_store or "its default log store"}, which looks for a version '
                f'and then writes it; accepted: {name} set to a log store with conditional writes, or writers = "none"'
            )
