"""Plans a compaction: chooses the planner for the table, and prices its result.

OPTIMIZE fails if another writer removes one of its input files before OPTIMIZE commits. Then the
compaction is planned again without the partitions of the removed files
(`partitions_removed_from`).
Source: delta-io/delta v4.4.0, `ConflictChecker.scala`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, assert_never

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import Explained, Explanation, Reason
from lakehouse.base.stored_objects import total_bytes
from lakehouse.base.text import HOUR_MS, count_of, size_text
from lakehouse.compact.plan.bins import (
    Bin,
    PlanningFacts,
    Rewrite,
    Statement,
    files_added,
    last_write_ms,
    live_share,
    unmergeable_files,
)
from lakehouse.compact.plan.estimate import (
    DEFAULT_RATES,
    Estimate,
    MergeWork,
    Rates,
    estimate,
    fit_rates,
)
from lakehouse.compact.plan.packing import plain_statement, plan_packing
from lakehouse.compact.plan.purge_and_ordering import plan_clustering, plan_purge, plan_zordering
from lakehouse.compact.plan.target_size import (
    Engine,
    choose_engine,
    target_in_force,
    write_history_of,
)
from lakehouse.declare.policies import (
    BinPacking,
    Compaction,
    LiquidClustering,
    ZOrder,
)
from lakehouse.declare.table import Table
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.partition_values import typed_partition
from lakehouse.delta.protocol import AUTO_COMPACT, OPTIMIZE_WRITE, unknown_features
from lakehouse.delta.snapshot import PartitionValues, Snapshot, types_by_name


@frozen
class CompactionPlan(Explained):
    """The files that `statement` merges in `table` at `version`, and why.

    - `partitions`: the partitions that the statement is limited to; `None` means the whole table.
    - `policy`: the policy in force, with a target above 0.
    - `files_removed`, `files_added`, `bytes_removed`: what the commit removes and adds. For ordered
      rewrites, `files_added` is an upper bound.
    - `files_left`: the number of mergeable files that are left for later runs.
    - `why_not_deltalake`: empty if deltalake compacts the table, or was not considered.
    """

    table: str
    version: int
    statement: Statement
    bins: Sequence[Bin]
    partitions: tuple[PartitionValues, ...] | None
    policy: Compaction
    estimate: Estimate
    files_removed: int
    files_added: int
    bytes_removed: int
    files_left: int
    engine: Engine = "spark"
    why_not_deltalake: str = ""

    @property
    def mergeable_file_count(self) -> int:
        """The number of files that this compaction and later runs would remove together."""
        return self.files_removed + self.files_left

    @property
    def verify_sentence(self) -> str:
        """How rows are verified after the commit."""
        if self.engine == "spark" and self.policy.verify == "content":
            return "Spark compares every row after the commit"
        return "this process compares row counts and column statistics in the log"

    @property
    def predicted(self) -> dict[str, Any]:
        """The predicted figures by name, rounded as they are recorded."""
        return {
            "files_removed": self.files_removed,
            "files_added": self.files_added,
            "bytes_removed": self.bytes_removed,
            "bytes_added": self.estimate.bytes_written,
            "seconds": round(self.estimate.seconds, 3),
            "usd": round(self.estimate.usd, 9),
        }

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape, also in a commit's `userMetadata`."""
        return {
            "table": self.table,
            "version": self.version,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "engine": self.engine,
            "why_not_deltalake": self.why_not_deltalake,
            "statement": self.statement.kind,
            "target_file_bytes": self.statement.up_to_bytes,
            "files_removed": self.files_removed,
            "files_added": self.files_added,
            "bytes_removed": self.bytes_removed,
            "files_left": self.files_left,
            "verify": self.policy.verify if self.bins else None,
            "verify_sentence": self.verify_sentence if self.bins else None,
            "estimate": self.estimate.as_json(),
            "bins": [[file.path for file in bin_.files] for bin_ in self.bins],
        }


def plan_table(
    table: Table,
    snapshot: Snapshot,
    history: Commits,
    *,
    now_ms: int,
    lake_factor: float | None = None,
    or_refusal: bool = False,
) -> CompactionPlan:
    """The compaction of a declared table, priced by its history.

    `lake_factor` is the speed of the lake's newest compactions (see `fit_rates`). With
    `or_refusal`, a refused plan is a plan without bins and with the reason.

    Raises:
        Refused: see `choose_engine` and `plan_compaction`.
    """
    policy = table.compaction_policy
    try:
        engine, why_not = choose_engine(table, snapshot)
        policy = replace(policy, engine=engine)
        rates = fit_rates(
            history, snapshot, prices=table.prices, engine=engine, lake_factor=lake_factor
        )
        plan = plan_compaction(snapshot, policy, rates=rates, now_ms=now_ms, history=history)
    except Refused as refusal:
        if not or_refusal:
            raise
        facts = _planning_facts(snapshot, policy, DEFAULT_RATES, now_ms, history)
        statement = plain_statement(facts)
        why = {"why": str(refusal)}
        return _priced(facts, Rewrite(statement=statement, reason=Reason.PLAN_REFUSED, numbers=why))
    more = plan.explanation.more
    if plan.bins and engine == "deltalake":
        more += "; by deltalake"
    elif plan.bins and why_not:
        more += f"; by Spark, since {why_not}"
    explanation = replace(plan.explanation, more=more)
    return replace(plan, engine=engine, why_not_deltalake=why_not, explanation=explanation)


def plan_once_cold(
    table: Table, snapshot: Snapshot, history: Commits, *, now_ms: int
) -> tuple[int, CompactionPlan] | None:
    """When the whole table will be cold, and the plan for that time.

    `None` if the table is cold now, or its policy has no `cold_hours`.
    """
    cold_hours = table.compaction_policy.cold_hours
    if not cold_hours:
        return None
    at_ms = last_write_ms(snapshot.files, write_history_of(history)) + ceil(cold_hours * HOUR_MS)
    if at_ms <= now_ms:
        return None
    return at_ms, plan_table(table, snapshot, history, now_ms=at_ms, or_refusal=True)


def plan_compaction(
    snapshot: Snapshot, policy: Compaction, *, rates: Rates, now_ms: int, history: Commits
) -> CompactionPlan:
    """The compaction of `snapshot` under `policy`; if there is nothing to do, a plan without bins.

    Raises:
        Refused: a feature or a partition column of the table makes OPTIMIZE unpredictable, or the
            table does not fit the declared data layout.
    """
    unknown = unknown_features(snapshot.features)
    if unknown:
        raise Refused(
            f"plan of {snapshot.table}: table feature {unknown[0]} is unknown. Use a table without "
            "it, or a newer release of this program"
        )
    # Delta 4.4.0 ignores a condition on such a column: OPTIMIZE would rewrite every partition.
    ignored = [name for name in snapshot.partition_columns if set(name) & set(".`")]
    if ignored:
        raise Refused(
            f"plan of {snapshot.table}: partition column {ignored[0]!r} has a dot or a backtick in"
            " its name, and OPTIMIZE cannot be limited to partitions of such a column. Rename the"
            " column (with column mapping), or partition the table by another column"
        )
    facts = _planning_facts(snapshot, policy, rates, now_ms, history)
    return _priced(facts, _rewrite(facts))


def _planning_facts(
    snapshot: Snapshot, policy: Compaction, rates: Rates, now_ms: int, history: Commits
) -> PlanningFacts:
    write_history = write_history_of(history)
    target = target_in_force(snapshot.size_bytes, policy, write_history)
    in_force = replace(policy, target_file_bytes=target)
    return PlanningFacts(
        snapshot=snapshot, policy=in_force, rates=rates, write_history=write_history, now_ms=now_ms
    )


def _rewrite(facts: PlanningFacts) -> Rewrite:
    snapshot = facts.snapshot
    layout = facts.policy.data_layout
    # With clustering columns, OPTIMIZE packs by Z-cube. With the feature alone, it refuses ZORDER.
    is_clustered = "clustering" in snapshot.features and (
        snapshot.clustering_columns or isinstance(layout, ZOrder)
    )
    if is_clustered and not isinstance(layout, LiquidClustering):
        columns = ", ".join(snapshot.clustering_columns)
        state = f"is clustered by {columns}" if columns else "still has the clustering feature"
        raise Refused(
            f"plan of {snapshot.table}: the table {state}, which "
            f"{type(layout).__name__} cannot plan. Use data_layout=LiquidClustering(columns=...)"
        )
    match layout:
        case BinPacking():
            return plan_purge(facts) or plan_packing(facts)
        case ZOrder():
            return plan_zordering(facts, layout)
        case LiquidClustering():
            return plan_clustering(facts, layout)
        case _:
            assert_never(layout)


def _priced(facts: PlanningFacts, rewrite: Rewrite) -> CompactionPlan:
    """The plan for a planner's result, with its sentence and its price."""
    snapshot = facts.snapshot
    work = MergeWork(
        files_removed=sum(len(bin_.files) for bin_ in rewrite.bins),
        bytes_removed=total_bytes(rewrite.bins),
        files_added=files_added(rewrite.statement, rewrite.bins),
        live_share=live_share(rewrite.bins),
    )
    types = types_by_name(snapshot.columns)
    partitions = {typed_partition(bin_.partition, types): bin_.partition for bin_ in rewrite.bins}
    is_limited = bool(snapshot.partition_columns and rewrite.bins)
    numbers: dict[str, object] = {
        "version": snapshot.version,
        "files": snapshot.file_count,
        "files_removed": work.files_removed,
        "bytes_removed": work.bytes_removed,
        "files_added": work.files_added,
        "hours": f"{facts.policy.cold_hours:g}",
        "where": f" in {len(partitions)} partitions" if len(partitions) > 1 else "",
        **rewrite.numbers,
    }
    return CompactionPlan(
        table=snapshot.table,
        version=snapshot.version,
        explanation=Explanation(rewrite.reason, numbers, _clauses(facts, rewrite)),
        statement=rewrite.statement,
        bins=rewrite.bins,
        partitions=tuple(partitions.values()) if is_limited else None,
        policy=facts.policy,
        estimate=estimate(facts.rates, work, on_s3=snapshot.on_s3),
        files_removed=work.files_removed,
        files_added=work.files_added,
        bytes_removed=work.bytes_removed,
        files_left=rewrite.files_left,
    )


def _clauses(facts: PlanningFacts, rewrite: Rewrite) -> str:
    """What the sentence adds about files that are not merged, and about actions of Delta itself."""
    clauses = ""
    if rewrite.kept:
        size = size_text(total_bytes(rewrite.kept))
        kept = f"{count_of(len(rewrite.kept), 'compacted file')} ({size})"
        clauses += f"; not merged yet, since each is larger than the merged files together: {kept}"
    if rewrite.files_left:
        clauses += f"; left for the next run: {count_of(rewrite.files_left, 'file')}"
    unmergeable = unmergeable_files(facts.snapshot)
    if unmergeable:
        size = size_text(total_bytes(unmergeable))
        clauses += (
            f"; never merged: {count_of(len(unmergeable), 'file')} ({size}) in partitions with an"
            " empty string, since OPTIMIZE would turn the string into null (delta-io/delta#6150)"
        )
    actions = {AUTO_COMPACT: "compacts after commits", OPTIMIZE_WRITE: "shuffles each write"}
    for name, action in actions.items():
        if facts.snapshot.properties.get(name) in ("true", "auto"):
            clauses += f"; Delta itself {action} ({name} is set)"
    return clauses


def partitions_removed_from(
    snapshot: Snapshot, commits: Iterable[Commit]
) -> frozenset[PartitionValues]:
    """The partitions of `snapshot` in which later `commits` with changed rows removed files."""
    paths = {path for commit in commits if commit.changed_data for path in commit.removed_paths}
    return frozenset(file.partition for file in snapshot.files if file.path in paths)
