"""Names that earlier versions knew, each with what replaced it. Kept for this version only."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from lakehouse.base.errors import Refused

Target = TypeVar("Target", bound=Callable[..., Any])

_WRITERS = (
    "Omit it: commits are conditional, so other programs may commit to the table at any time."
)
# Name as a user wrote it -> what to do now: "Class.field", "function.argument", a key of
# adopted.toml ("adopted.toml.key"), a setting, an exported class, or a command.
GONE: dict[str, str] = {
    "LAKEHOUSE_COMPACTION_TICK_SECONDS": "The sensor ticks every 10 s, and every 30 s on S3.",
    "LAKEHOUSE_COMPUTE_LOGS": (
        "Use LAKEHOUSE_DAGSTER_HOME with a dagster.yaml like deploy/dagster.yaml."
    ),
    "LAKEHOUSE_REPLAY_CDC": "Leave it out: the demo lands no change data.",
    "LAKEHOUSE_REPLAY_START": "A replay begins with the year.",
    "Adopted.writers": _WRITERS,
    "maintain.writers": _WRITERS,
    "MaintainedTables.writers": _WRITERS,
    "adopted.toml.writers": _WRITERS,
    "Landing.after_load": "Omit it: landed files stay. A lifecycle rule of the bucket ends them.",
    "Landing.keep_days": "Omit it: landed files stay. A lifecycle rule of the bucket ends them.",
    "AutoCompaction": (
        'Use Table(properties={"delta.autoOptimize.autoCompact": "true"}), without a strategy.'
    ),
    "Chosen": "Use BySensor(), AfterWrite() or Scheduled(cron=...).",
    "History": (
        "Use Append with a Landing without changes=, and a table or view over it that computes the "
        "versions of each row."
    ),
    "OptimizedWrite": (
        'Use Table(properties={"delta.autoOptimize.optimizeWrite": "true"}), without a strategy.'
    ),
    "Compaction.reads_per_day": (
        "Leave it out. Reads are counted from the runs of tables downstream, and readers that got "
        "slower make a compaction due."
    ),
    "Compaction.cold_storage_class": (
        "Use Archive(storage_class=...) to store old partitions in a colder class."
    ),
    "Compaction.windows": 'Use strategy=Scheduled(cron="0 22 * * *") for a time of the day.',
    "Window": 'Use strategy=Scheduled(cron="0 22 * * *") for a time of the day.',
    "Vacuum.readers": "Name the versions to keep in Vacuum(keep_versions=…).",
    "Archive.late": "Omit it: appended late rows of an archived partition join the archive.",
    "Archive.span": "Omit it: a partition ends where the next one starts.",
    "Table.formerly": "Use location=, the folder of the earlier key: the rows stay there.",
    "LAKEHOUSE_ALERT_URL": (
        "Use Alertmanager with the rules of deploy/observability/alerts.yml, which reads the "
        "metrics (docs/metrics.md)."
    ),
    "LAKEHOUSE_BUDGETS": (
        "Use LAKEHOUSE_COMPACTION_BUDGET_USD for a limit per hour, and lakehouse costs to see what "
        "a month costs."
    ),
    "Table.budget_usd_per_month": (
        "Use LAKEHOUSE_COMPACTION_BUDGET_USD for a limit per hour, and lakehouse costs to see what "
        "a month costs."
    ),
    "lakehouse config": "Use lakehouse doctor --settings.",
    "lakehouse server status": "Use lakehouse server.",
    "lakehouse evolve apply": "Use lakehouse evolve TABLE.",
    "lakehouse evolve plan": "Use lakehouse evolve TABLE --dry-run.",
    "lakehouse inventory scan": "Use lakehouse inventory load.",
    "prices.toml.usd_per_1000_tag_months": "Remove it. Tags are not charged.",
    "prices.toml.usd_per_million_listed": "Remove it. Reports are not charged.",
    **{
        f"prices.toml.{name}": "Remove it. Only usd_per_gb_month of a storage class is charged."
        for name in (
            *("usd_per_1000_transitions", "usd_per_gb_retrieved", "minimum_days", "minimum_bytes"),
            *("overhead_bytes", "index_bytes"),
        )
    },
}


def refuses_gone(target: Target) -> Target:
    """Decorates a class or function: an argument that went is refused with what replaced it."""
    name = target.__name__
    prefix = f"{name}."
    gone = {key.removeprefix(prefix) for key in GONE if key.startswith(prefix)}
    if not gone:
        return target
    is_class = isinstance(target, type)
    call = cast("Callable[..., Any]", target.__init__) if is_class else target

    @wraps(call)
    def checked(*arguments: Any, **named: Any) -> Any:
        for argument in sorted(gone & named.keys()):
            raise Refused(f"{name}: {argument} is gone. {GONE[prefix + argument]}")
        return call(*arguments, **named)

    if not is_class:
        return cast("Target", checked)
    target.__init__ = checked  # type: ignore[method-assign]
    return cast("Target", target)
