"""Runs a table's write: loads landed files, or updates a derived table from its inputs.

The table's lock is held throughout. If the write conflicts with another writer's commit, it starts
again, a few times.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.base.errors import Refused
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Adopted
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.lake.lease import hold
from lakehouse.land.run import LandingLoad
from lakehouse.spark.delta_writes import retry_conflicts
from lakehouse.spark.errors import translated
from lakehouse.spark.temporary_confs import (
    HASH_MAPS,
    OLD_VERSIONS_REFUSED,
    READ_WHOLE,
    session_confs,
)
from lakehouse.write.commit_rows import apply_properties, with_properties
from lakehouse.write.outcome import WriteOutcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_table(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> WriteOutcome:
    """Runs the table's write. `tell` is called with sentences about the progress of a load.

    Raises:
        Refused: foreign jobs write the table; an input does not exist yet; the declaration needs
            changes to the table that are not safe; or a property makes Delta forget batches.
        Transient: another process holds the table's lock, the server is gone, or each attempt
            conflicted with another writer's commit.
        Broken: rows to read are gone or changed, and reading the input again would duplicate rows;
            or it is unknown which batches the table has.
    """
    if isinstance(table.write, Adopted):
        raise Refused(
            f"write of {table.key}: other jobs write it, at {table.write.uri}. Use `lakehouse "
            f"compact {table.key}` or `lakehouse vacuum {table.key}`"
        )
    started = time.monotonic()
    session = TableSession(lake=lake, spark=spark, table=table)
    load = LandingLoad(session, tell) if table.source else None

    def attempt() -> WriteOutcome:
        facts = lake.facts(table.key)
        confs = {
            OLD_VERSIONS_REFUSED: "false",
            HASH_MAPS: "true",
            **READ_WHOLE,
        }
        with session_confs(spark, confs):
            target = apply_properties(lake, spark, table, facts)
            if load is not None:
                outcome = load.run(target)
            else:  # imported here, because a load does not need it
                from lakehouse.materialize.derive import derive

                outcome = derive(session, target)
            return with_properties(session, target, outcome)

    with hold(lake, spark, table.key, owner=f"write of {table.key}"), translated():
        outcome = retry_conflicts(attempt)
    return replace(outcome, seconds=time.monotonic() - started)
