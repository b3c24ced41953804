"""One JSON document of each command, from an example lake, without Spark."""

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from lakehouse.base.operation import Figure
from lakehouse.base.stored_objects import Part
from lakehouse.base.text import DAY_MS
from lakehouse.cli.dagster_runs import AssetRun
from lakehouse.compact.plan.history import CompactionOutcome
from lakehouse.declare.policies import Compaction, policy_for
from lakehouse.declare.table import Append, Landing, Table
from lakehouse.delta.snapshot import Column
from lakehouse.evolve.plan.changes import compare
from lakehouse.evolve.plan.rebuild import (
    EvolutionOutcome,
    Proposal,
    RebuildOutcome,
    RebuildRequest,
    rebuild_plan,
)
from lakehouse.lake.lake import open_lake
from lakehouse.land.ledger import PlannedBatches
from lakehouse.land.plan.batches import Batch
from lakehouse.land.quarantine import QuarantineReview
from lakehouse.materialize.command import run_document
from lakehouse.replay.command import replay_document
from lakehouse.replay.play import Played
from lakehouse.retain.plan.tiers import plan_tiers, tier_rule
from lakehouse.store import DiskStore
from lakehouse.vacuum.facts import LakeFacts, plan
from lakehouse.vacuum.plan.vacuum import VacuumOutcome
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.retain.example_documents import example_move, example_outcome, example_restore
from lakehouse_tests.support.example_snapshots import own_columns, plan_of
from lakehouse_tests.support.terminal import Terminal, write_example_tables
from lakehouse_tests.support.vacuum_facts import table_files, vacuum_facts
from lakehouse_tests.watch.costs.story import record_charges
from lakehouse_tests.watch.costs.test_plan import share, stored

# Their commands need Spark; lakehouse_tests/cli/test_through_dagster.py compares the names.
_QUARANTINE_SHOW = {
    "table": "",
    "reasons": [{"reason": "", "count": 0}],
    "entries": [
        {"source_file": "", "line": 0, "reason": "", "raw": "", "batch": 0, "quarantined_ms": 0}
    ],
}
_INVENTORY_LOAD = {
    "table": "",
    "report": "",
    "size_bytes": 0,
    "rows_loaded": 0,
    "missing_files": 0,
    "seconds": 0.1,
    "object_count": 0,
}


def example_documents(folder: Path) -> dict[str, Any]:
    """Name -> document. Tables are made below `folder`."""
    terminal = Terminal(folder / "home")
    write_example_tables(terminal)
    documents = {
        "error": terminal.json("plan", "nothing", exit_code=2),
        "health": terminal.json("health"),
        "plan": terminal.json("plan"),
        "history": terminal.json("history", "silver/orders"),
        "landing": terminal.json("landing", "bronze/orders"),
        "server": terminal.json("server"),
        "doctor_settings": terminal.json("doctor", "--settings"),
        "doctor": terminal.json("doctor", "--no-spark"),
        "adopt": terminal.json("adopt", _warehouse_table(folder), "--dry-run"),
        "backtest": terminal.json("backtest", "bronze/orders", "--min-small-files", "2"),
        "pause": terminal.json("pause", "bronze/orders"),
        "archive": example_move().as_json(),
        "restore": example_restore().as_json(),
        "ttl": example_outcome().as_json(),
        "tables": terminal.json("tables"),
        "sql": terminal.json("sql", "SHOW TABLES"),
    }
    LogBuilder(DiskStore(terminal.root), "bronze/more").create().append([("a", 1)]).store_data()
    terminal.scan()
    _add_column(terminal)
    record_charges(terminal.root, stored(share(Part.LIVE, 1 << 30)))
    return documents | {
        "report": terminal.json("report"),
        "inventory_report": terminal.json("inventory", "report", exit_code=1),
        "costs": terminal.json("costs", "--since", "2026-11-01"),
        "inventory_load": _INVENTORY_LOAD,
        "quarantine_show": _QUARANTINE_SHOW,
        "quarantine_review": _quarantine_review(),
        "compact": _compaction(terminal),
        "vacuum": [_vacuum(folder / "vacuum")],
        "tiers": _tiers(),
        "materialize": [run_document("bronze/orders", AssetRun(key=""), sentence="")],
        "rebuild": _rebuild(terminal),
        "evolve_dry_run": [_proposal(terminal).as_json()],
        "evolve": [_evolution(terminal)],
        "replay": replay_document(_played()),
    }


def _warehouse_table(folder: Path) -> str:
    write_deltalake(folder / "orders", pa.table({"id": [1, 2, 3]}))
    return str(folder / "orders")


def _add_column(terminal: Terminal) -> None:
    batches = PlannedBatches(DiskStore(terminal.root), "bronze/orders", prefix="")
    batches.plan(Batch(number=1, files=(), columns=("hail",)))


def _quarantine_review() -> dict[str, Any]:
    review = QuarantineReview(
        table="", dry_run=False, lines=1, files=0, landed=("",), left={"not JSON": 1}
    )
    return {**asdict(review), "sentence": review.sentence}


def _compaction(terminal: Terminal) -> dict[str, Any]:
    story = LogBuilder(DiskStore(terminal.root), "bronze/t")
    facts = story.create().append([("a", 1), ("b", 1)]).facts()
    planned = plan_of(facts.snapshot, policy_for("bronze", Compaction()))
    return CompactionOutcome(plan=planned, facts=facts).as_json()


def _landed(key: str, schema: str) -> Table:
    landing = Landing(prefix="landing/t/", format="json", schema=schema)
    return Table(key=key, source=landing, write=Append())


def _rebuild(terminal: Terminal) -> dict[str, Any]:
    story = LogBuilder(DiskStore(terminal.root), "bronze/t")
    facts = story.create().append([("a", 1)]).facts()
    table = _landed("bronze/t", "id BIGINT")
    request = RebuildRequest(table=table, columns=own_columns(facts.snapshot))
    plan = rebuild_plan(request, facts)
    outcome = RebuildOutcome(
        plan=plan, version_after=2, row_count=1, bytes_written=900, seconds=1.5
    )
    return outcome.as_json()


def _proposal(terminal: Terminal) -> Proposal:
    table, columns = _landed("bronze/t", "id STRING"), [Column(name="id", type="string")]
    snapshot = LogBuilder(DiskStore(terminal.root), "bronze/t").create().snapshot()
    return Proposal(plan=compare(table, columns, snapshot))


def _evolution(terminal: Terminal) -> dict[str, Any]:
    left = _proposal(terminal).plan
    return EvolutionOutcome(sentences=("widened id",), left=left).as_json()


def _vacuum(home: Path) -> dict[str, Any]:
    lake = open_lake(own_settings(home))
    story = LogBuilder(lake.store, "bronze/orders").create().append([("a", 1), ("b", 1)])
    story.delete(["a"]).store_data()
    orders = _landed("bronze/orders", "id BIGINT")
    planned = plan(LakeFacts(lake, [orders]), orders, mode="LITE")
    assert planned is not None
    names = ("files", "bytes", "requests", "seconds", "usd")
    figures = tuple(Figure(name, 1, 0) for name in names)
    return VacuumOutcome(plan=planned, figures=figures, spared={}, failed={}).as_json()


def _tiers() -> dict[str, Any]:
    files = table_files(
        table="bronze/t", version=0, retention_ms=100 * DAY_MS, live={}, removed={"a": 0}
    )
    facts = vacuum_facts(files, LogBuilder(key="bronze/t").create().facts())
    plan = plan_tiers(facts, {"b"}, now_ms=0)
    return {**plan.as_json(), "rule": tier_rule("")}


def _played() -> Played:
    day = datetime(2013, 1, 1)
    return Played(since=day, until=day, files=0, events=0, share=0.0)
