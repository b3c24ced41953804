"""The outcome of a compaction, compared with its plan, and a measurement of its benefit."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any, Literal

from lakehouse.core.compaction.plan import CompactionPlan
from lakehouse.core.costs.compaction_history import NO_ERRORS, Account, Entry, errors_as_json
from lakehouse.core.costs.predicted_and_actual import Figure, figures_as_json
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.text import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of the rows before and after a compaction. It found no difference.

    `by` is `content` if every row was compared. It is `rows` if the row counts and column
    statistics in the log were compared.
    """

    by: Literal["rows", "content"]
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Durations in seconds of the same scan, `before` and `after` a compaction.

    `before[n]` and `after[n]` were measured as a pair. There are no pairs if too few scans fit into
    `budget_seconds`. `spent_seconds` is the time that the probe took.
    """

    table: str
    version_before: int
    version_after: int
    measured_ms: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    spent_seconds: float
    budget_seconds: float

    @property
    def before_seconds(self) -> float | None:
        """Median duration of a scan before the compaction; `None` if it was not measured."""
        return median(self.before) if self.before else None

    @property
    def after_seconds(self) -> float | None:
        """Median duration of a scan after the compaction; `None` if it was not measured."""
        return median(self.after) if self.after else None

    @property
    def gained_share(self) -> float | None:
        """The share of the scan's time that the compaction saved; negative if scans got slower."""
        if not self.before_seconds or self.after_seconds is None:
            return None
        return 1 - self.after_seconds / self.before_seconds

    @property
    def sentence(self) -> str:
        """The measurement in one line."""
        spent = f"{self.spent_seconds:.1f} of {self.budget_seconds:.0f} s spent"
        if self.gained_share is None:
            return f"the table is too large to be scanned often enough within the budget; {spent}"
        return (
            f"scan {self.before_seconds:.3f} s before, {self.after_seconds:.3f} s after: "
            f"{abs(self.gained_share):.1%} {'faster' if self.gained_share >= 0 else 'slower'} "
            f"(medians of {len(self.before)} scans each; {spent})"
        )

    def as_json(self) -> dict[str, Any]:
        """The JSON shape in the journal; `probe_from` reads it."""
        medians = {
            "before_seconds": self.before_seconds,
            "after_seconds": self.after_seconds,
            "gained_share": self.gained_share,
        }
        rounded = {name: None if each is None else round(each, 4) for name, each in medians.items()}
        return {**asdict(self), **rounded, "sentence": self.sentence}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdMove:
    """The names of the added files that were moved into a storage class.

    `problem` says why other files were not moved; it is empty if all were moved.
    """

    storage_class: str
    names: tuple[str, ...] = ()
    problem: str = ""

    @property
    def sentence(self) -> str:
        """What was moved, and why the rest was not."""
        moved = f"{count_of(len(self.names), 'file')} moved to {self.storage_class}"
        return f"{moved}; {self.problem}" if self.problem else moved


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutcome:
    """The plan of a compaction, and its outcome.

    If nothing was committed, `version_after` is `None`, and the counts and bytes of files are zero.

    - `seconds_optimize`: the duration of the statement alone.
    - `conflicts`: the number of attempts that lost a conflict with another writer. `wasted_bytes`
      and `wasted_seconds` measure the work of these attempts.
    - `account`: the table's compactions up to and including this one.
    - `facts`: the table after the statement, even if nothing was committed.
    - `moved`: with `cold_storage_class` on S3, the files that were moved.
    """

    plan: CompactionPlan
    version_after: int | None
    files_removed: int = 0
    files_added: int = 0
    bytes_removed: int = 0
    bytes_added: int = 0
    compared: Comparison | None = None
    seconds_optimize: float = 0.0
    seconds_verify: float = 0.0
    conflicts: int = 0
    wasted_bytes: int = 0
    wasted_seconds: float = 0.0
    account: Account | None = None
    probe: Probe | None = None
    facts: TableFacts | None = None
    moved: ColdMove | None = None

    @property
    def rows_verified(self) -> int | None:
        """The number of rows that were verified; `None` if rows were not compared."""
        return self.compared.row_count if self.compared else None

    @property
    def entry(self) -> Entry | None:
        """The account's entry for this compaction: its duration, price and prediction errors."""
        for entry in self.account.entries if self.account else ():
            if entry.compaction.version == self.version_after:
                return entry
        return None

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Predicted and actual figures; seconds and USD are unknown if nothing was committed."""
        entry = self.entry
        usd = entry.usd if entry else None
        actual = {
            "files_removed": self.files_removed,
            "files_added": self.files_added,
            "bytes_removed": self.bytes_removed,
            "bytes_added": self.bytes_added,
            "seconds": entry.compaction.seconds if entry else None,
            "usd": None if usd is None else round(usd, 9),
        }
        predicted = self.plan.predicted
        return tuple(Figure(name, predicted[name], actual[name]) for name in predicted)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The lines to print below the figures.

        If nothing was committed, the only line says why. Without a planned merge, there is no line.
        """
        if self.version_after is None:
            return (self._why_nothing_was_merged,) if self.plan.bins else ()
        duration = f"OPTIMIZE {self.seconds_optimize:.1f} s"
        if self.compared:
            by_log = "row counts and statistics in the log"
            compared = "each row" if self.compared.by == "content" else by_log
            duration += (
                f"; {self.compared.row_count:,} rows verified in {self.seconds_verify:.1f} s by "
                f"comparing {compared}"
            )
        lines = [f"predicted from {self.plan.estimate.basis}", duration]
        if self.moved:
            lines.append(self.moved.sentence)
        if self.probe:
            lines.append(f"probe: {self.probe.sentence}")
        if self.account:
            lines += self.account.sentences
        return tuple(lines)

    @property
    def _why_nothing_was_merged(self) -> str:
        """Why OPTIMIZE did not commit, although files were planned."""
        planned_version = self.plan.version
        newest_version = self.facts.snapshot.version if self.facts else None
        planned_files = count_of(self.plan.files_removed, "planned file")
        not_merged = f"OPTIMIZE did not merge the {planned_files}"
        if newest_version is not None and newest_version > planned_version:
            return (
                f"{not_merged}: other writers have committed up to version {newest_version} since"
                f" the planned version {planned_version}. The next plan will use the newest version"
            )
        return (
            f"{not_merged}, although no other writer committed: Delta's selection differs from the"
            f" plan of version {planned_version}. The sensor will not request this version again."
            f" Compare the plan (lakehouse plan {self.plan.table} --json) with the table's"
            " partition values"
        )

    def as_json(self) -> dict[str, Any]:
        """The JSON shape of the plan, plus the actual figures with the prefix `actual_`."""
        entry = self.entry
        account = self.account
        means = errors_as_json(entry.mean_errors if entry else NO_ERRORS)
        return {
            **self.plan.as_json(),
            "version_after": self.version_after,
            **{f"actual_{each.name}": each.actual for each in self.figures},
            "figures": figures_as_json(self.figures),
            **{f"mean_error_{name}": share for name, share in means.items()},
            "write_amplification": account.as_json()["write_amplification"] if account else None,
            "optimize_seconds": round(self.seconds_optimize, 3),
            "verify_seconds": round(self.seconds_verify, 3),
            "rows_verified": self.rows_verified,
            "verified_by": self.compared.by if self.compared else None,
            "conflicts": self.conflicts,
            "wasted_bytes": self.wasted_bytes,
            "wasted_seconds": round(self.wasted_seconds, 3),
            "moved_files": len(self.moved.names) if self.moved else None,
            "probe": self.probe.as_json() if self.probe else None,
            "sentences": list(self.sentences),
        }


def probe_from(document: Mapping[str, Any]) -> Probe:
    """The probe in a journal record.

    Raises:
        KeyError, TypeError: the record holds no probe.
    """
    figures = {each.name: document[each.name] for each in fields(Probe)}
    figures["before"] = tuple(figures["before"])
    figures["after"] = tuple(figures["after"])
    return Probe(**figures)
