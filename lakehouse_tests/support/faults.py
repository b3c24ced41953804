"""An old table, reports of it that lie, and a vacuum of it without Spark, for the tests of faults."""

import os
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.vacuum import run
from lakehouse.vacuum.facts import LakeFacts, gather, plan
from lakehouse.vacuum.inventory.run import update_inventory
from lakehouse.vacuum.plan.candidates import Candidate, VacuumFacts
from lakehouse.vacuum.plan.vacuum import VacuumPlan
from lakehouse.vacuum.run import VacuumProgress
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.reports import row_of, write_report
from lakehouse_tests.support.vacuums import table_of

KEY, NOW, HOUR = "bronze/t", now_ms(), 3_600_000
LONG_AGO = NOW - 60 * 24 * HOUR
TABLE = table_of(KEY)
OWN = re.compile("_lakehouse/|inventory/")
PAST = ["d=1/gone", "d=1/orphan"]

type_of_row = dict[str, Any]


def story_of(lake: Lake) -> LogBuilder:
    """The table, written."""
    story = LogBuilder(lake.store, KEY).create(partition_by=["d"])
    story.append([("d=1/live", 10), ("d=2/live", 20), ("d=1/gone", 30)])
    story.store_data()
    lake.store.put(f"{KEY}/d=1/orphan", b"123")
    return story.delete(["d=1/gone"])


def age(lake: Lake) -> None:
    """Everything in the lake is older than any retention."""
    for each in lake.store.walk(""):
        os.utime(Path(lake.settings.root) / each.key, (LONG_AGO / 1_000, LONG_AGO / 1_000))


def report(
    lake: Lake,
    change: Callable[[type_of_row], type_of_row | None] = dict,
    *,
    more: Iterable[str] = (),
    **options: Any,
) -> None:
    """A report of what lies there as AWS writes it, and its load; `change` is the fault, and `more` are keys that it invents."""
    there = [each for each in lake.store.walk("") if not OWN.search(each.key)]
    listed = [row_of(each) for each in there]
    listed += [{**listed[0], "key": key} for key in more]
    rows = [changed for row in listed if (changed := change(row))]
    rows = rows or [{**listed[0], "key": "elsewhere/x"}]
    write_report(lake.store, rows, **{"file_format": "CSV", "created_ms": now_ms(), **options})
    update_inventory(lake, [], now_ms=now_ms(), configuration=options.get("configuration", "daily"))


def planned(
    lake: Lake, mode: Any = "INVENTORY", table: Table = TABLE, *beside: Table
) -> VacuumPlan:
    """The plan for a table of a lake in which `beside` and the old one are declared, too."""
    found = plan(LakeFacts(lake, [table, *beside, TABLE]), table, mode=mode)
    assert found is not None
    return found


def known_of(lake: Lake) -> VacuumFacts:
    """The reading of the table that a vacuum makes now."""
    known = gather(LakeFacts(lake, [TABLE]), TABLE)
    assert known is not None
    return known


def paths(found: VacuumPlan) -> list[str]:
    return [each.name for each in found.candidates]


def inventory_of(found: VacuumPlan) -> str:
    """The configuration of the inventory that a plan was made from; empty if there is none."""
    is_used = found.mode == "INVENTORY" and found.facts.inventory is not None
    return found.facts.inventory.configuration if is_used else ""


def files(lake: Lake) -> set[str]:
    """The table's own files."""
    folder = f"{lake.store.prefix}{KEY}/"
    names = [each.key for each in lake.store.walk(KEY) if "/_delta_log/" not in each.key]
    return {name.removeprefix(folder) for name in names}


def carried_out(
    lake: Lake,
    found: VacuumPlan,
    *,
    meanwhile: Callable[[], object] = lambda: None,
    table: Table = TABLE,
    declared: Sequence[Table] = (),
    kept: Container[str] = (),
) -> tuple[set[str], VacuumProgress]:
    """The files that are gone, and what the vacuum says of it, where Delta agrees but for `kept`, and something happens after that."""
    facts = LakeFacts(lake, [table, *declared])
    known, before, work = gather(facts, table), files(lake), VacuumProgress(lake, table)
    assert known is not None

    def confirmed(*given: Any) -> list[Candidate]:
        candidates: Iterable[Candidate] = given[-1]
        meanwhile()
        return [each for each in candidates if each.name not in kept]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "confirmed_by_delta", confirmed)
        patch.setattr(run, "_PAUSES_SECONDS", (0.0, 0.0))
        try:
            run._carry_out(facts, None, replace(found, facts=known), work)  # type: ignore[arg-type]  # nobody is asked
        except LakehouseError as error:
            work.failed["error"] = f"{type(error).__name__}: {error}"
    return before - files(lake), work
