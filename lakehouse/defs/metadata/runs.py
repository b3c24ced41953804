"""The outcome of a write, a compaction or a vacuum as Dagster metadata."""

from collections.abc import Iterable, Sequence
from itertools import islice

import dagster as dg

from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.costs.predicted_and_actual import FIGURE_HEADS, Figure
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.vacuum.plan import VacuumOutcome
from lakehouse.defs.dagster_records import COMMITTED
from lakehouse.defs.metadata.markdown import markdown_table, markdown_value
from lakehouse.defs.metadata.table import Metadata

_COMPACTION_FIELDS = (
    "version_after",
    "optimize_seconds",
    "verify_seconds",
    "conflicts",
    "wasted_bytes",
    "wasted_seconds",
    "rows_verified",
    "verified_by",
)
_VACUUM_FIELDS = (
    "mode",
    "files",
    "actual_files",
    "bytes",
    "actual_bytes",
    "actual_usd",
    "list_requests_saved",
    "list_seconds_saved",
)
# At most this many paths are listed in metadata. A dry run in the terminal lists all paths.
_PATHS = 1_000


def vacuum_metadata(outcome: VacuumOutcome, prices: Prices) -> Metadata:
    """A vacuum's plan and outcome, with at most 1,000 planned, spared and failed paths each."""
    plan = outcome.plan
    record = outcome.record
    document = outcome.as_json()
    document["paths"] = document["paths"][:_PATHS]
    for kind in ("spared", "failed"):
        document[kind] = dict(islice(document[kind].items(), _PATHS))
    metadata: Metadata = {
        "lakehouse/outcome": plan.sentence,
        **{f"lakehouse/{name}": document[name] for name in _VACUUM_FIELDS},
        "lakehouse/predicted_seconds": document["seconds"],
        "lakehouse/seconds": document["actual_seconds"],
        "lakehouse/predicted_usd": document["usd"],
        "lakehouse/requests": sum(record.requests.values()),
        "lakehouse/list_usd_saved": round(record.lists_saved * prices.usd_per_1000_puts / 1_000, 9),
        "lakehouse/prices": f"list prices of {prices.region}, {prices.as_of}",
        "lakehouse/account": figures_table(outcome.figures),
        "lakehouse/spared": record.spared,
        "lakehouse/failed": len(outcome.failed),
        "lakehouse/vacuum": dg.MetadataValue.json(document),
    }
    if plan.notes:
        metadata["lakehouse/notes"] = "\n".join(plan.notes)
    return metadata


def write_metadata(outcome: WriteOutcome) -> Metadata:
    """The outcome of one run that writes a table."""
    # A landing area may be full of foreign files. The journal names all of them, and Dagster's page
    # names the first 20.
    set_aside = markdown_table(
        ["file", "bytes", "why"],
        [[each.name, str(each.size_bytes), each.why] for each in outcome.set_aside[:20]],
    )
    if_any = {
        "lakehouse/rows_superseded": outcome.rows_superseded,
        "lakehouse/rows_rescued": outcome.rows_rescued,
        "lakehouse/columns_added": ", ".join(outcome.columns_added),
        "lakehouse/set_aside": outcome.set_aside and markdown_value(set_aside),
    }
    since = outcome.code_changed_since
    return {
        "lakehouse/outcome": outcome.sentence,
        **({} if since is None else {"lakehouse/code_changed_since_version": since}),
        "lakehouse/rows_written": outcome.rows_written,
        "lakehouse/rows_quarantined": outcome.rows_quarantined,
        **{name: value for name, value in if_any.items() if value},
        "lakehouse/files_read": outcome.files_read,
        "lakehouse/seconds": round(outcome.seconds, 3),
        "lakehouse/files_set_aside": len(outcome.set_aside),
    }


def compaction_metadata(outcome: CompactionOutcome) -> Metadata:
    """The predicted and actual figures and the durations, with the paths of at most 1,000 files."""
    plan = outcome.plan
    entry = outcome.entry
    document = outcome.as_json()
    document["bins"] = _first_paths(document["bins"])
    # Without a commit, the outcome's sentences say why.
    failure = None if outcome.version_after else " ".join(outcome.sentences)
    metadata = {
        "lakehouse/plan": plan.sentence,
        "lakehouse/outcome": failure or None,
        "lakehouse/reason": plan.reason.name,
        "lakehouse/version_before": plan.version,
        COMMITTED: entry and dg.MetadataValue.timestamp(entry.compaction.committed_ms / 1000),
        **{f"lakehouse/predicted_{each.name}": each.predicted for each in outcome.figures},
        **{f"lakehouse/actual_{each.name}": each.actual for each in outcome.figures},
        "lakehouse/predicted_by": plan.estimate.basis,
        "lakehouse/bytes_added": outcome.bytes_added,
        **{f"lakehouse/{name}": document[name] for name in _COMPACTION_FIELDS},
        "lakehouse/account": figures_table(outcome.figures),
        "lakehouse/compaction": dg.MetadataValue.json(document),
    }
    if outcome.account is not None:
        account = outcome.account.as_json()
        metadata |= {
            f"lakehouse/mean_error_{name}": share for name, share in account["mean_errors"].items()
        }
        metadata |= {
            f"lakehouse/total_{name}": account[name]
            for name in ("wasted_runs", "wasted_seconds", "wasted_bytes")
        }
        metadata["lakehouse/write_amplification"] = account["write_amplification"]
    # Unknown figures are omitted, because a plot that showed them as zero would mislead.
    return {name: value for name, value in metadata.items() if value is not None}


def _first_paths(bins: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The bins with the first `_PATHS` paths."""
    shown = list[Sequence[str]]()
    left_count = _PATHS
    for paths in bins:
        if left_count == 0:
            break
        shown.append(paths[:left_count])
        left_count -= len(shown[-1])
    return shown


def figures_table(figures: Iterable[Figure]) -> dg.MarkdownMetadataValue:
    """The predicted and actual figures as a table."""
    return markdown_value(markdown_table(FIGURE_HEADS, [each.cells for each in figures]))
