"""The outcome of a compaction, compared with its plan."""

from dataclasses import dataclass
from typing import Any, Literal

from lakehouse.base.predicted_and_actual import Figure, figures_as_json
from lakehouse.base.text import count_of
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.compact.plan.history import NO_ERRORS, Account, Entry, errors_as_json
from lakehouse.delta.snapshot import TableFacts

_COMPARED = {
    "rows": "row counts and statistics in the log",
    "counts": "row counts in the log",
    "content": "each row",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of the rows before and after a compaction. It found no difference.

    `by` is `content` if every row was compared, `rows` if the row counts and column statistics in
    the log were compared, and `counts` if only the row counts were.
    """

    by: Literal["rows", "counts", "content"]
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutcome:
    """The plan of a compaction, and its outcome.

    If nothing was committed, `version_after` is `None`, and the counts and bytes of files are zero.

    - `seconds_optimize`: the duration of the statement alone.
    - `conflicts`: the number of attempts that lost a conflict with another writer. `wasted_bytes`
      and `wasted_seconds` measure the work of these attempts.
    - `account`: the table's compactions up to and including this one.
    - `facts`: the table after the statement, even if nothing was committed.
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
    facts: TableFacts | None = None

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
            duration += (
                f"; {self.compared.row_count:,} rows verified in {self.seconds_verify:.1f} s by "
                f"comparing {_COMPARED[self.compared.by]}"
            )
        lines = [f"predicted from {self.plan.estimate.basis}", duration]
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
        account = self.account
        means = errors_as_json(account.mean_errors if account else NO_ERRORS)
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
            "sentences": list(self.sentences),
        }
