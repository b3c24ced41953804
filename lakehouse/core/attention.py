"""What the report lists as needing a person, the most urgent first, each with what helps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.reasons import Reason
from lakehouse.core.text import count_of, utc_text
from lakehouse.core.units import HOUR_MS

# Inventories and vacuums run once a day. They are late if the last one is more than two days and
# two hours ago.
LATE_HOURS = 50
_SICK_SCORE = 50
# The page has newer facts of the same kind as these checks.
_ON_PAGE = frozenset({"breaker", "quarantine"})
_UPKEEP = ("compaction", "vacuum", "archive", "ttl")
_OF_LAKE = ("inventory/", "costs/")
_STOPPED = frozenset(each.name for each in (Reason.BREAKER_OPEN, Reason.REWRITE_LOOP))
# The sensor compacts a table that waits for one of these reasons, without a person.
_SOON = frozenset(each.name for each in (Reason.NO_SLOT, Reason.COOLING_DOWN, Reason.RUN_IN_FLIGHT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A problem, and the command that helps. `table` is empty if it concerns the whole lake."""

    level: Literal["bad", "fair"]
    sentence: str
    command: str = ""
    table: str = ""


def attention_to_table(
    table: Mapping[str, Any], *, late_vacuum_ms: int | None = None
) -> list[Attention]:
    """What needs attention at one table of the report.

    `late_vacuum_ms` is the time of the last vacuum, if a vacuum is late.
    """
    key = table["table"]
    health = table["health"]
    fleet = table["plan"]["fleet"]

    def item(level: Literal["bad", "fair"], sentence: str, command: str) -> Attention:
        return Attention(level=level, table=key, sentence=sentence, command=f"lakehouse {command}")

    if table["problem"]:
        return [item("bad", table["problem"], f"health {key}")]
    items = list[Attention]()
    if fleet["reason"] in _STOPPED:
        items.append(item("bad", fleet["sentence"], f"history {key} --compactions"))
    elif _is_sick(health["score"]) and fleet["reason"] not in _SOON and not fleet["request"]:
        items.append(item("fair", health["sentence"], f"plan {key}"))
    if health["quarantine_rows"]:
        rows = count_of(health["quarantine_rows"], "record")
        items.append(item("fair", f"{rows} in quarantine", f"quarantine show {key}"))
    if late_vacuum_ms is not None:
        sentence = f"the last vacuum began at {utc_text(late_vacuum_ms)}"
        items.append(item("fair", sentence, f"vacuum {key} --dry-run"))
    if table["paused"]:
        items.append(item("fair", table["paused"], f"resume {key}"))
    return items


def attention_to_checks(
    failed: Iterable[tuple[str, str]], declared: Iterable[Table]
) -> list[Attention]:
    """The failed checks of the declared tables and of the lake, except those in `_ON_PAGE`.

    `failed` contains the asset and the name of each check that failed according to Dagster's
    records. Checks of other assets are ignored.
    """
    keys = {_asset_of(table): table.key for table in declared}
    of_upkeep = {f"{kind}/{key}": key for key in keys.values() for kind in _UPKEEP}
    items = list[Attention]()
    for asset, check in sorted(failed):
        key = keys.get(asset) or of_upkeep.get(asset, "")
        if check in _ON_PAGE or not (key or asset.startswith(_OF_LAKE)):
            continue
        sentence = f"the check {check} of {asset} failed; its page in Dagster shows why"
        command = f"lakehouse health {key} --verbose" if key else ""
        items.append(Attention(level="bad", table=key, sentence=sentence, command=command))
    return items


def attention_to_inventory(inventory_ms: int | None, *, now_ms: int) -> list[Attention]:
    """What needs attention if the newest inventory is late, or if there is none (`None`)."""
    if inventory_ms is None:
        sentence = "there is no inventory, so vacuums list the storage, and its cost is unknown"
    elif now_ms - inventory_ms > LATE_HOURS * HOUR_MS:
        sentence = f"the newest inventory is of {utc_text(inventory_ms)}"
    else:
        return []
    return [Attention(level="fair", sentence=sentence, command="lakehouse inventory load")]


def _is_sick(score: float | None) -> bool:
    return score is not None and score < _SICK_SCORE


def _asset_of(table: Table) -> str:
    """The name of the asset that has the table's checks."""
    if isinstance(table.write, Adopted) and table.write.asset_key:
        return "/".join(table.write.asset_key)
    return table.key
