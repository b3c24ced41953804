"""Money on the morning page (`lakehouse report`): the most expensive tables, why, and advice."""

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
from lakehouse.core.inventory.objects import PART_GROUPS
from lakehouse.core.report.attention import Attention, Concern

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
_PART_NAMES = {MULTIPART: _UPLOADS}
for _group, _parts in PART_GROUPS.items():
    _PART_NAMES.update({part.name.lower(): _NAMES[_group] for part in _parts})
# Advice on a part of a table's cost is shown if the part has at least this share.
_WORTH_A_VACUUM = 0.1  # for files that a vacuum can delete
_WORTH_A_LOOK = 0.25  # for any other part
# From this share on, a part is called most of the cost.
_MOSTLY = 0.75
_SHOWN_TABLES = 10  # the page shows only the most expensive tables
_OUTSIDE = "(outside all tables)"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAmount:
    """An amount in USD and its name."""

    name: str
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpensiveTable:
    """The forecast cost of a table for the present month, and its parts in descending order.

    `why` names the largest parts with their shares. `advice` says how to reduce the cost, and
    `command` shows the details. `is_outside` marks the cost of files that belong to no table.
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

    - `known_days`: the number of days of the present month with a charge.
    - `has_storage`: whether a charge for storage is known. Otherwise, no sum includes storage.
    - `week_usd`, `month_usd`: the last seven days including today, and the present month so far.
    - `forecast_usd`: for the whole month; `None` if the last seven days have no charge.
    - `dead_usd`: the monthly cost of bytes that no table's newest version needs; `None` if unknown.

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
    dearest: tuple[ExpensiveTable, ...]
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
    """The sums, the forecast, and the most expensive tables.

    `charges` cover this month and the last seven days.
    """
    summary = summarize(charges, today=today)
    month = [charge for charge in charges if charge.day >= today.replace(day=1)]
    forecast_usd = summary.forecast_usd
    amounts = {each.name: each.usd for each in summary.amounts}
    dead_usd = amounts["dead bytes"]
    expensive_tables = most_expensive_tables(charges, declared, today=today)
    return Money(
        region=book.region,
        as_of=book.as_of,
        is_on_s3=is_on_s3,
        known_days=summary.day_count,
        has_storage=any(charge.kind == "storage" for charge in charges),
        week_usd=float(summary.week_usd),
        month_usd=float(summary.month_usd),
        forecast_usd=None if forecast_usd is None else float(forecast_usd),
        dead_usd=None if dead_usd is None else float(dead_usd),
        dearest=tuple(expensive_tables[:_SHOWN_TABLES]),
        by_layer=_amounts(month, "layer"),
        by_owner=_amounts(month, "owner"),
        by_kind=_amounts(month, "kind"),
    )


def most_expensive_tables(
    charges: Sequence[Charge], declared: Mapping[str, Table], *, today: date
) -> list[ExpensiveTable]:
    """The tables with a forecast cost (and all files outside of tables), most expensive first."""
    forecast = forecast_by_table(charges, today=today)
    totals = {key: sum(parts.values()) for key, parts in forecast.items()}
    keys = sorted((key for key in totals if totals[key] > 0), key=lambda key: -totals[key])
    return [_expensive_table(key, forecast[key], declared.get(key)) for key in keys]


def attention_to_budgets(
    charges: Sequence[Charge],
    budgets: Mapping[str, Decimal],
    tables: Mapping[str, Table],
    *,
    today: date,
) -> list[Attention]:
    """The budgets that the month's forecast exceeds, each for a table, a layer, or the lake."""
    items = list[Attention]()
    for scope, left in left_usd(charges, budgets, today=today).items():
        if left >= 0:
            continue
        budget = budgets[scope]
        cost = usd_text(budget - left)
        is_table = scope in tables
        items.append(
            Attention(
                concern=Concern.OVER_BUDGET,
                table=scope if is_table else "",
                sentence=f"this month, {scope} will cost {cost} USD; its budget is {budget:f} USD",
                command=f"lakehouse costs {scope}" if is_table else "lakehouse costs --by table",
            )
        )
    return items


def forecast_by_table(charges: Sequence[Charge], *, today: date) -> dict[str, dict[str, float]]:
    """The cost of the present month by table and part.

    Each remaining day is assumed to cost as much as an average known day of the last week. The sum
    of all parts is `forecast_usd`.
    """
    first = today.replace(day=1)
    week_first = today - timedelta(days=6)
    days = known_days(charges, today=today)
    days_left = monthrange(today.year, today.month)[1] - today.day
    parts = dict[str, dict[str, float]]()
    for charge in charges:
        # A charge counts once in its month and, if it is in the mean, for each day left.
        weight = float(charge.day >= first)
        if week_first <= charge.day <= today:
            weight += days_left / days.of(charge)
        of_table = parts.setdefault(charge.table, {})
        name = _part_name(charge)
        of_table[name] = of_table.get(name, 0.0) + float(charge.usd) * weight
    return parts


def _part_name(charge: Charge) -> str:
    if charge.kind == "storage":
        return _PART_NAMES.get(charge.part, _OTHER)
    return f"{charge.kind} of {charge.part}"


def _expensive_table(key: str, parts: Mapping[str, float], table: Table | None) -> ExpensiveTable:
    total = sum(parts.values())
    names = sorted(parts, key=lambda name: -parts[name])
    shares = {name: parts[name] / total for name in names}
    advice, command = _advice(key, shares, table)
    return ExpensiveTable(
        table=key or _OUTSIDE,
        owner="" if table is None else table.owner,
        usd_per_month=total,
        parts=tuple(NamedAmount(name=name, usd=parts[name]) for name in names),
        why=", ".join(f"{share:.0%} {name}" for name, share in shares.items() if share >= 0.005),
        advice=advice,
        command=command,
        is_outside=not key,
    )


def _advice(key: str, shares: Mapping[str, float], table: Table | None) -> tuple[str, str]:
    """How to reduce a table's cost, and the command that shows the details."""
    if not key:
        return _advice_outside(shares)
    report_command = f"lakehouse inventory report {key}"
    if shares.get(_DEAD, 0) >= _WORTH_A_VACUUM:
        return "A vacuum deletes files that no version needs", f"lakehouse vacuum {key} --dry-run"
    if shares.get(_KEPT, 0) >= _WORTH_A_LOOK:
        shorter = (
            "Removed files are kept for readers of older versions. If no reader needs them for so "
            "long, use a smaller Vacuum(retention_hours=…)"
        )
        return shorter, report_command
    for part, advice in _advice_on_work(key, table).items():
        if shares.get(f"compute of {part}", 0) >= _WORTH_A_LOOK:
            return advice
    for part, advice in _advice_on_bytes(key).items():
        if shares.get(part, 0) >= _WORTH_A_LOOK:
            return advice
    if shares.get(_LIVE, 0) < _MOSTLY:
        return "No part of the cost stands out", f"lakehouse costs {key} --by kind"
    if table is not None and table.archive is None and table.ttl is None:
        fewer_rows = (
            "Most of the cost is live data. If old rows are rarely read, use "
            'archive=Archive(storage_class="STANDARD_IA"). If they are not needed, use ttl=Ttl(…)'
        )
        return fewer_rows, report_command
    return "Most of the cost is live data", report_command


def _advice_outside(shares: Mapping[str, float]) -> tuple[str, str]:
    """Advice on the costs that belong to no table."""
    if shares.get(_INVENTORY, 0) >= _MOSTLY:
        return "This is what the inventory itself costs", "lakehouse costs --by kind"
    advice = "These files belong to no table. The report shows their folders"
    return advice, "lakehouse inventory report"


def _advice_on_bytes(key: str) -> dict[str, tuple[str, str]]:
    """For parts of a table's storage: how to reduce the cost, and the command that shows it."""
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
        _ARCHIVE: (colder, f"lakehouse archive {key} --list"),
        _LOG: (fewer_commits, f"lakehouse health {key} --verbose"),
        _UPLOADS: (rule, f"lakehouse costs {key} --by kind"),
    }


def _advice_on_work(key: str, table: Table | None) -> dict[str, tuple[str, str]]:
    """For each kind of upkeep: how to reduce its cost, and the command that shows it."""
    partitioned = (
        "Its TTL is a large part of the cost. If the table is partitioned by the TTL's column, "
        "deletions change only the log"
    )
    advice = {
        "vacuum": (
            "Its vacuums are a large part of the cost. Their plan shows the price of each mode",
            f"lakehouse vacuum {key} --dry-run",
        ),
        "archive": (
            "Its archive runs are a large part of the cost. Each partition moves only once",
            f"lakehouse archive {key} --dry-run",
        ),
        "ttl": (partitioned, f"lakehouse ttl {key} --dry-run"),
    }
    if table is not None:
        files = 2 * policy_for(table.layer, table.compaction).min_small_files
        sentence = (
            "It is compacted often. Simulate a higher threshold on its history, which changes "
            f"nothing. To apply it, use Compaction(min_small_files={files})"
        )
        command = f"lakehouse backtest {key} --policy min_small_files={files} --compare"
        advice["compaction"] = (sentence, command)
    return advice


def _amounts(charges: Iterable[Charge], by: str) -> tuple[NamedAmount, ...]:
    return tuple(NamedAmount(name=each.name, usd=float(each.usd)) for each in sum_by(charges, by))
