"""The report of `lakehouse adopt` about a table, which is based only on the log and the storage.

`engine/adoption/adopt.py` reads the facts for it, and refuses tables that cannot be adopted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse.core.adoption.adopted_file import adopted_lines
from lakehouse.core.costs.compaction_estimate import usd_per_opening
from lakehouse.core.costs.compaction_speed import SECONDS_PER_OPENING
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.protocol import notable_features
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.reasons import Explanation
from lakehouse.core.scheduling.health import Health
from lakehouse.core.text import count_of, size_text
from lakehouse.core.vacuum.plan import VacuumPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFinding:
    """The findings about one inspected table.

    - `table`: its declaration, or the declaration that it would get.
    - `vacuum`: the vacuum's plan, or the reason why no vacuum may run.
    - `risk`: why a compaction could overwrite another program's commit, and so may not run; `None`
      if there is no such risk.
    - `known_as`: the key of the table if it is already declared, or empty.
    """

    table: Table
    facts: TableFacts
    health: Health
    vacuum: VacuumPlan | str
    risk: Explanation | None
    known_as: str = ""

    @property
    def address(self) -> str:
        """The URI of the table."""
        if isinstance(self.table.write, Adopted):
            return self.table.write.uri
        return self.facts.snapshot.uri

    @property
    def writers(self) -> dict[str, int]:
        """The programs that wrote the newest commits, each with its commit count, largest first."""
        engines = [commit.engine or "unknown" for commit in self.facts.history.commits]
        return dict(Counter(engines).most_common())

    @property
    def openings_saved(self) -> int:
        """The number of file opens that a compaction saves on each full read."""
        return self.health.plan.files_removed - self.health.plan.files_added

    @property
    def usd_per_read(self) -> float:
        """The USD that a compaction saves on each full read."""
        return self.openings_saved * usd_per_opening(
            self.table.prices, on_s3=self.facts.snapshot.on_s3
        )

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape."""
        snapshot = self.facts.snapshot
        plan = self.health.plan
        vacuum = self.vacuum
        risk = self.risk
        return {
            "table": self.known_as or self.table.key,
            "uri": self.address,
            "adopted": bool(self.known_as),
            "writers": self.writers,
            "features": notable_features(snapshot.features),
            "partition_by": list(snapshot.partition_columns),
            "clustered_by": list(snapshot.clustering_columns),
            "health": self.health.as_json(),
            "compaction": {
                "reason": plan.reason.name,
                "sentence": plan.sentence,
                "files_removed": plan.files_removed,
                "files_added": plan.files_added,
                "seconds": round(plan.estimate.seconds, 3),
                "usd": round(plan.estimate.usd, 9),
                "openings_saved": self.openings_saved,
                "usd_saved_per_read": round(self.usd_per_read, 9),
                "held_back": None if risk is None else risk.sentence,
            },
            "vacuum": {
                "files": 0 if isinstance(vacuum, str) else vacuum.file_count,
                "bytes": 0 if isinstance(vacuum, str) else vacuum.size_bytes,
                "sentence": vacuum if isinstance(vacuum, str) else vacuum.sentence,
            },
            "lines": adopted_lines(self.table),
        }

    def rows(self) -> list[tuple[str, str]]:
        """The rows of the report, as pairs of subject and finding."""
        snapshot = self.facts.snapshot
        health = self.health
        plan = self.health.plan
        writers = [f"{name} ({count_of(count, 'commit')})" for name, count in self.writers.items()]
        features = [*notable_features(snapshot.features)]
        if snapshot.partition_columns:
            features.append(f"partitioned by {', '.join(snapshot.partition_columns)}")
        if snapshot.clustering_columns:
            features.append(f"clustered by {', '.join(snapshot.clustering_columns)}")
        files = (
            f"{count_of(health.file_count, 'file')}, {size_text(health.size_bytes)}, "
            f"{size_text(health.average_file_bytes)} on average; "
            f"{health.small_file_count:,} small, {plan.mergeable_file_count:,} mergeable"
        )
        compaction = plan.sentence
        if plan.bins:
            seconds = self.openings_saved * SECONDS_PER_OPENING
            compaction += (
                f"; {plan.estimate.sentence}; each full read then opens "
                f"{count_of(self.openings_saved, 'fewer file')} and saves about {seconds:.3g} s "
                f"and {self.usd_per_read:.2g} USD"
            )
        rows = [
            ("written by", ", ".join(writers) or "unknown"),
            ("features", ", ".join(features) or "none that affects the upkeep"),
            ("files", files),
            ("health", health.sentence),
            ("compaction", compaction),
        ]
        if self.risk is not None:
            rows.append(("", f"not compacted: {self.risk.sentence}"))
        vacuum = self.vacuum if isinstance(self.vacuum, str) else self.vacuum.sentence
        return [*rows, ("vacuum", vacuum)]


def totals_sentence(findings: Sequence[TableFinding]) -> str:
    """What compactions and vacuums of all these tables would change, and at what cost."""
    healths = [each.health for each in findings]
    plans = [each.health.plan for each in findings if each.health.plan.bins]
    files = sum(each.file_count for each in healths)
    after = files - sum(each.openings_saved for each in findings)
    vacuums = [each.vacuum for each in findings if not isinstance(each.vacuum, str)]
    total = size_text(sum(each.size_bytes for each in healths))
    expired = size_text(sum(each.size_bytes for each in vacuums))
    seconds = sum(each.estimate.seconds for each in plans)
    usd = sum(each.estimate.usd for each in plans)
    return (
        f"{count_of(len(findings), 'table')}: {count_of(files, 'file')}, {total}. Compactions "
        f"would leave {count_of(after, 'file')}, and take about {seconds:.3g} s and {usd:.3g} USD; "
        f"vacuums would delete {expired} of files past retention."
    )
