"""Money on the morning page: which tables cost most, why, and what to do about it."""

from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from lakehouse.core.costs.charges import MULTIPART, Charge, sum_by
from lakehouse.core.costs.price_book import PriceBook
from lakehouse.core.costs.summary import known_days, left_usd, summarize, usd_text
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.table import Table
from lakehouse.core.inventory.objects import KINDS
from lakehouse.core.report.values import Attention, Concern

_LIVE = "live data"
_KEPT = "removed files that are kept"
_DEAD = "files that a vacuum can delete"
_LOG = "log"
_ARCHIVE = "archive"
_OTHER = "other files"
_UPLOADS = "unfinished uploads"
_INVENTORY = "requests of inventory"
_NAMES = {
    "live": _LIVE,
    "kept": _KEPT,
    "old": _DEAD,
    "archive": _ARCHIVE,
    "log": _LOG,
    "other": _OTHER,
}
_PART_NAMES = {part.name.lower(): _NAMES[kind] for kind, parts in KINDS.items() for part in parts}
_PART_NAMES[MULTIPART] = _UPLOADS
# The shares of a table's cost from which on a part of the cost gets advice.
_WORTH_A_VACUUM = 0.1
_WORTH_A_LOOK = 0.25
# The share from which on a part is most of the cost.
_MOSTLY = 0.75
_DEAREST = 10
_OUTSIDE = "(outside all tables)"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAmount:
    """An amount in USD and its name."""

    name: str
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DearTable:
    """The forecast cost of a table for the present month, and its parts.

    `parts` begins with the largest one. `advice` says how the table becomes cheaper, and `command`
    shows or does that. `is_outside` marks the cost of files that belong to no table.
    """

    table: str
    owner: str
    usd_per_month: float
    parts: tuple[NamedAmount, ...]
    why: str
    advice: str
    command: str
    is_outside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """The costs of the lake in USD, as `lakehouse costs` shows them.

    - `known_days`: the days of the present month whose charges are known.
    - `has_storage`: whether any inventory is known. Otherwise, no sum includes storage.
    - `forecast_usd`: `None` if no day of the last week is known.
    - `dead_usd`: the cost per month of bytes that no newest version needs; `None` if unknown.

    A lake on a disk is priced as if it were on S3.
    """

    region: str
    as_of: str
    is_on_s3: bool
    known_days: int
    has_storage: bool
    week_usd: float
    month_usd: float
    forecast_usd: float | None
    dead_usd: float | None
    dearest: tuple[DearTable, ...]
    by_layer: tuple[NamedAmount, ...]
    by_owner: tuple[NamedAmount, ...]
    by_kind: tuple[NamedAmount, ...]


def money_of(
    charges: Sequence[Charge],
    book: PriceBook,
    declared: Mapping[str, Table],
    *,
    today: date,
    is_on_s3: bool,
) -> Money:
    """The sums, forecasts and most expensive tables. `charges` cover this month and seven days."""
    summary = summarize(charges, today=today)
    month = [charge for charge in charges if charge.day >= today.replace(day=1)]
    [dead] = [each.usd for each in summary.amounts if each.name == "dead bytes"]
    return Money(
        region=book.region,
        as_of=book.as_of,
        is_on_s3=is_on_s3,
        known_days=summary.day_count,
        has_storage=any(charge.kind == "storage" for charge in charges),
        week_usd=float(summary.week_usd),
        month_usd=float(summary.month_usd),
        forecast_usd=None if summary.forecast_usd is None else float(summary.forecast_usd),
        dead_usd=None if dead is None else float(dead),
        dearest=tuple(dearest_tables(charges, declared, today=today)[:_DEAREST]),
        by_layer=_amounts(month, "layer"),
        by_owner=_amounts(month, "owner"),
        by_kind=_amounts(month, "kind"),
    )


def dearest_tables(
    charges: Sequence[Charge], declared: Mapping[str, Table], *, today: date
) -> list[DearTable]:
    """The tables that cost something, the most expensive first, with advice for each."""
    forecast = forecast_by_table(charges, today=today)
    totals = {key: sum(parts.values()) for key, parts in forecast.items()}
    dearest = sorted((key for key in totals if totals[key] > 0), key=lambda key: -totals[key])
    return [_dear_table(key, forecast[key], declared.get(key)) for key in dearest]


def attention_to_budgets(
    charges: Sequence[Charge],
    budgets: Mapping[str, Decimal],
    tables: Mapping[str, Table],
    *,
    today: date,
) -> list[Attention]:
    """The budgets that the month will exceed. A budget is for a table, a layer, or the lake."""
    items = list[Attention]()
    for scope, left in left_usd(charges, budgets, today=today).items():
        if left >= 0:
            continue
        budget = budgets[scope]
        cost = usd_text(budget - left)
        items.append(
            Attention(
                concern=Concern.OVER_BUDGET,
                table=scope if scope in tables else "",
                sentence=f"this month, {scope} will cost {cost} USD; its budget is {budget:f} USD",
                command=f"lakehouse costs {scope if scope in tables else '--by table'}",
            )
        )
    return items


def forecast_by_table(charges: Sequence[Charge], *, today: date) -> dict[str, dict[str, float]]:
    """The cost of the present month by table and part.

    Each remaining day is assumed to cost as much as an average known day of the last week. So all
    parts sum up to `forecast_usd`.
    """
    first = today.replace(day=1)
    week_first = today - timedelta(days=6)
    days = known_days(charges, today=today)
    days_left = monthrange(today.year, today.month)[1] - today.day
    parts = dict[str, dict[str, float]]()
    for charge in charges:
        is_this_week = week_first <= charge.day <= today
        weight = float(charge.day >= first)
        if is_this_week:
            weight += days_left / days.of(charge)
        of_table = parts.setdefault(charge.table, {})
        name = _part_name(charge)
        of_table[name] = of_table.get(name, 0.0) + float(charge.usd) * weight
    return parts


def _part_name(charge: Charge) -> str:
    if charge.kind == "storage":
        return _PART_NAMES.get(charge.part, _OTHER)
    return f"{charge.kind} of {charge.part}"


def _dear_table(key: str, parts: Mapping[str, float], table: Table | None) -> DearTable:
    total = sum(parts.values())
    shares = {name: usd / total for name, usd in sorted(parts.items(), key=lambda each: -each[1])}
    advice, command = _advice(key, shares, table)
    return DearTable(
        table=key or _OUTSIDE,
        owner="" if table is None else table.owner,
        usd_per_month=total,
        parts=tuple(NamedAmount(name=name, usd=parts[name]) for name in shares),
        why=", ".join(f"{share:.0%} {name}" for name, share in shares.items() if share >= 0.005),
        advice=advice,
        command=command,
        is_outside=not key,
    )


def _advice(key: str, shares: Mapping[str, float], table: Table | None) -> tuple[str, str]:
    """How a table becomes cheaper, and the command that shows or does that."""
    if not key:
        return _advice_outside(shares)
    if shares.get(_DEAD, 0) >= _WORTH_A_VACUUM:
        return "A vacuum deletes files that no version needs", f"lakehouse vacuum {key} --dry-run"
    if shares.get(_KEPT, 0) >= _WORTH_A_LOOK:
        return (
            "Removed files are kept for readers of older versions. If none needs them for so long, "
            "use a smaller Vacuum(retention_hours=…)"
        ), f"lakehouse inventory report {key}"
    for part, advice in _advice_on_work(key, table).items():
        if shares.get(f"compute of {part}", 0) >= _WORTH_A_LOOK:
            return advice
    for part, advice in _advice_on_bytes(key).items():
        if shares.get(part, 0) >= _WORTH_A_LOOK:
            return advice
    if shares.get(_LIVE, 0) < _MOSTLY:
        return "No part of the cost stands out", f"lakehouse costs {key} --by kind"
    if table is not None and table.archive is None and table.ttl is None:
        return (
            "Most of the cost is live data. If old rows are rarely read, use "
            'archive=Archive(storage_class="STANDARD_IA"). If they are not needed, use ttl=Ttl(…)'
        ), f"lakehouse inventory report {key}"
    return "Most of the cost is live data", f"lakehouse inventory report {key}"


def _advice_outside(shares: Mapping[str, float]) -> tuple[str, str]:
    """Advice on the costs that belong to no table."""
    if shares.get(_INVENTORY, 0) >= _MOSTLY:
        return "This is what the inventory itself costs", "lakehouse costs --by kind"
    advice = "These files belong to no table. The report shows their folders"
    return advice, "lakehouse inventory report"


def _advice_on_bytes(key: str) -> dict[str, tuple[str, str]]:
    """How parts of a table's bytes become smaller, and the command that shows these parts."""
    colder = (
        "Its archive is a large part of the cost. Use a colder Archive(storage_class=…), "
        "or keep archived partitions for fewer days"
    )
    fewer_commits = "Its log is large. Write fewer, larger commits"
    rule = (
        "Uploads that never ended are a large part of the cost. Add a lifecycle rule with "
        "AbortIncompleteMultipartUpload to the bucket"
    )
    return {
        _ARCHIVE: (colder, f"lakehouse archive list {key}"),
        _LOG: (fewer_commits, f"lakehouse health {key} --verbose"),
        _UPLOADS: (rule, f"lakehouse costs {key} --by kind"),
    }


def _advice_on_work(key: str, table: Table | None) -> dict[str, tuple[str, str]]:
    """How each kind of upkeep becomes cheaper, and the command that shows its cost."""
    advice = {
        "vacuum": (
            "Its vacuums are a large part of the cost. Their plan shows the price of each mode",
            f"lakehouse vacuum {key} --dry-run",
        ),
        "archive": (
            "Its archive runs are a large part of the cost. Each partition moves only once",
            f"lakehouse archive plan {key}",
        ),
        "ttl": (
            (
                "Its TTL is a large part of the cost. If the table is partitioned by that time, "
                "deletions change only the log"
            ),
            f"lakehouse ttl plan {key}",
        ),
    }
    if table is not None:
        files = 2 * policy_for(table.layer, table.compaction).due_file_count
        advice["compaction"] = (
            "It is compacted often. Try a larger Compaction(min_small_files=…) on its history",
            f"lakehouse backtest {key} --policy min_small_files={files} --compare",
        )
    return advice


def _amounts(charges: Iterable[Charge], by: str) -> tuple[NamedAmount, ...]:
    return tuple(NamedAmount(name=each.name, usd=float(each.usd)) for each in sum_by(charges, by))
