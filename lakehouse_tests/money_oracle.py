"""What a lake costs, computed again from its files alone: reports, commits, vacuums, and the TOML of the prices.

It shares no code with `lakehouse.watch.costs` and computes with fractions. An object belongs to the table in whose folder
it lies; parts are not distinguished, since their sum is the table's bill.
"""

import json
import tomllib
from calendar import monthrange
from collections import defaultdict
from datetime import UTC, date, datetime
from fractions import Fraction
from importlib.resources import files
from typing import Any

from deltalake import DeltaTable

from lakehouse.lake.lake import Lake

# Table -> USD.
Money = dict[str, Fraction]

BOOK: dict[str, Any] = tomllib.loads(
    files("lakehouse.lake").joinpath("prices.toml").read_text(encoding="utf-8"),
    parse_float=Fraction,
)["us-east-1"]
VCPUS = 2


def storage(lake: Lake, tables: list[str], day: date, stamp: str) -> Money:
    """The storage of one day, from our own scan of this stamp; objects in no table are under an empty name."""
    found: Money = defaultdict(Fraction)
    uri = lake.table_uri(f"inventory/{lake.store.bucket}")
    report = [("report", "=", f"lakehouse-scan/{stamp}")]
    table = DeltaTable(uri)
    while not (rows := table.to_pyarrow_table(partitions=report).to_pylist()):
        table.load_as_version(table.version() - 1)
    for row in rows:
        owner = next((key for key in tables if row["key"].startswith(f"{key}/")), "")
        price = BOOK["usd_per_gb_month"][row["storage_class"] or "STANDARD"]
        gb_months = Fraction(row["size_bytes"], 2**30 * monthrange(day.year, day.month)[1])
        found[owner] += gb_months * price
    return {owner: usd for owner, usd in found.items() if usd}


def operations(lake: Lake, table: str, day: date) -> Fraction:
    """The compute and the requests of a table's compactions and vacuums that ended on a day."""
    usd = Fraction(0)
    for file in lake.store.list(f"{table}/_delta_log"):
        if file.name.endswith(".json"):
            usd += _compaction(lake.store.read(file.name), day)
    ended = DeltaTable(lake.table_uri("_lakehouse/operations")).to_pyarrow_table().to_pylist()
    for row in ended:
        if (row["table"], row["kind"]) == (table, "vacuum"):
            usd += _vacuum(row, day)
    return usd


def _compaction(commit: bytes, day: date) -> Fraction:
    actions = [json.loads(line) for line in commit.splitlines()]
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    written = json.loads(info.get("userMetadata") or "{}")
    if info["operation"] != "OPTIMIZE" or _day(info["timestamp"]) != day:
        return Fraction(0)
    return _compute(Fraction(info["timestamp"] - written["started_ms"], 1000))


def _vacuum(row: dict[str, Any], day: date) -> Fraction:
    if row["ended_at"].date() != day:
        return Fraction(0)
    usd = _compute(Fraction(repr(row["seconds"])))
    for name, count in row["requests"]:
        reads = name.startswith(("Get", "Head"))
        price = BOOK["usd_per_1000_gets" if reads else "usd_per_1000_puts"]
        usd += 0 if name.startswith("Delete") else Fraction(count, 1000) * price
    return usd


def _compute(seconds: Fraction) -> Fraction:
    return seconds * VCPUS / 3600 * BOOK["usd_per_vcpu_hour"]


def _day(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).date()
