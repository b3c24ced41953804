"""Plans a rebuild: all rows of a table are written again, in one commit.

From its own rows, the table gets other names, types, columns or partitions, and readers downstream
have nothing to read. From its inputs, a derived table is computed again, and its rows are new.

**Safety properties** (tests in `test_rebuild.py`)
- A cast that loses or changes the value of any row is refused.
- Own rows are refused where they cannot be what the declaration asks for, such as a landed `Merge`
  with other keys: earlier rows of a key are gone.
- The rows of a table that other programs write, or that an `Append` downstream could not follow,
  are left alone.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from lakehouse.core.costs.compaction_estimate import Estimate, estimate, run_price
from lakehouse.core.costs.compaction_speed import MergeWork, fit_rates
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Append
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import Refused
from lakehouse.core.evolution.column_sources import (
    ColumnSource,
    described,
    is_other_schema,
    present_columns,
)
from lakehouse.core.evolution.downstream import (
    DownstreamReader,
    RebuildEffect,
    refuse_waiting_readers,
)
from lakehouse.core.text import count_of, size_text

# Own rows are read to count what a cast would lose, read and written next to the table, read for a
# comparison, and read and written into it. Rows of inputs are not read for a first count.
_PASSES = 2
# Statements that take this long even without rows: to count, stage, compare, replace, and to set
# properties. Measured on two cores.
_STATEMENTS_SECONDS = 2.5

RebuildSource = Literal["rows", "inputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildRequest:
    """What a rebuild of a table reads.

    `columns` are all columns of the rebuilt table, for a rebuild from its own rows. By default they
    are the present ones. The transform gives the columns of a rebuild from inputs.
    """

    table: Table
    source: RebuildSource
    columns: tuple[ColumnSource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildFacts:
    """The facts behind the plan of a rebuild.

    - `inexact`: by source column, how many rows have a value that the cast would change.
    - `input_bytes`: the live bytes of the inputs, for a rebuild from inputs.
    """

    table: TableFacts
    readers: tuple[DownstreamReader, ...] = ()
    inexact: Mapping[str, int] = field(default_factory=dict[str, int])
    input_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """A rebuild of a table at `version`, and its predicted cost.

    `rows` says whether readers already have the rows ("same") or not ("new"). `row_count` is `None`
    if it is unknown. `readers` has a sentence for each table that reads this one.
    """

    table: str
    version: int
    source: RebuildSource
    columns: tuple[ColumnSource, ...]
    partition_by: tuple[str, ...]
    changes: tuple[str, ...]
    files: int
    bytes_read: int
    row_count: int | None
    seconds: float
    usd: float
    basis: str
    readers: tuple[str, ...]

    @property
    def rows(self) -> Literal["same", "new"]:
        """Whether readers downstream already have the rows."""
        return "same" if self.source == "rows" else "new"

    @property
    def sentence(self) -> str:
        """What is written, from where, and the predicted cost."""
        rows = "" if self.row_count is None else f"{count_of(self.row_count, 'row')}, "
        size = f"{rows}{count_of(self.files, 'file')}, {size_text(self.bytes_read)}"
        origin = "its own rows"
        if self.source == "inputs":
            origin = "its inputs: rows and columns that they do not give any more are left out"
        what = f": {'; '.join(self.changes)}" if self.changes else ""
        cost = f"about {self.seconds:.1f} s and {self.usd:.6f} USD, by {self.basis}"
        return f"version {self.version} ({size}) is written again from {origin}{what}; {cost}"

    def as_json(self) -> dict[str, Any]:
        """The documented shape, for `lakehouse rebuild --json`."""
        document = asdict(self)
        document["columns"] = [
            {"name": each.column.name, "type": each.column.type, "source": each.source}
            for each in self.columns
        ]
        document["seconds"] = round(self.seconds, 3)
        document["usd"] = round(self.usd, 9)
        return {**document, "rows": self.rows, "sentence": self.sentence}


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOutcome:
    """A rebuild: its plan, and the measured figures. `facts` is the table after it."""

    plan: RebuildPlan
    version_after: int
    row_count: int
    bytes_written: int
    seconds: float
    facts: TableFacts

    @property
    def sentence(self) -> str:
        """What was written, and how long it took compared with the prediction."""
        origin = "its own rows" if self.plan.source == "rows" else "its inputs"
        return (
            f"version {self.version_after} has {count_of(self.row_count, 'row')} from {origin}, in "
            f"{self.seconds:.1f} s (predicted: {self.plan.seconds:.1f} s)"
        )

    def as_json(self) -> dict[str, Any]:
        """The documented shape, for `lakehouse rebuild --json`."""
        actual = {
            "version_after": self.version_after,
            "rows_written": self.row_count,
            "bytes_written": self.bytes_written,
            "seconds": round(self.seconds, 3),
            "sentence": self.sentence,
        }
        return {"table": self.plan.table, "plan": self.plan.as_json(), "actual": actual}


def rebuild_plan(request: RebuildRequest, facts: RebuildFacts) -> RebuildPlan:
    """The plan of a rebuild that `rebuild_limits` allows.

    Raises:
        Refused: a cast would change the values of some rows, or an `Append` downstream has not
            read all rows yet and could not read them afterwards.
    """
    table = request.table
    snapshot = facts.table.snapshot
    asked = f"rebuild of {table.key}"
    columns = request.columns or present_columns(snapshot)
    if failing := {name: count for name, count in facts.inexact.items() if count}:
        types = {each.source: each.column.type for each in columns}
        listed = "; ".join(
            f"{count:,} row(s) of {name} have a value that {types[name]} does not hold exactly"
            for name, count in failing.items()
        )
        instead = (
            "another type"
            if table.source is not None
            else f"another type, or `lakehouse rebuild {table.key} --from inputs`"
        )
        raise Refused(f"{asked}: {listed}. Nothing was written. Use {instead}")
    partition_by = table.write.partition_by if isinstance(table.write, Append) else ()
    changes = described(columns, snapshot) if request.source == "rows" else []
    if partition_by != snapshot.partition_columns:
        changes.append(f"partitioned by {', '.join(partition_by) or 'nothing'}")
    has_other_columns = request.source == "rows" and is_other_schema(columns, snapshot)
    if has_other_columns:
        refuse_waiting_readers(request.table, facts.readers)
    work = _work(facts)
    figures = _estimate(facts, work, table)
    effect = RebuildEffect(
        table=table,
        has_same_rows=request.source == "rows",
        has_other_columns=has_other_columns,
    )
    return RebuildPlan(
        table=table.key,
        version=snapshot.version,
        source=request.source,
        columns=columns if request.source == "rows" else (),
        partition_by=partition_by,
        changes=tuple(changes),
        files=snapshot.file_count,
        bytes_read=work.bytes_removed,
        row_count=snapshot.row_count,
        seconds=figures.seconds,
        usd=figures.usd,
        basis=figures.basis,
        readers=tuple(map(effect.sentence_for, facts.readers)),
    )


def _work(facts: RebuildFacts) -> MergeWork:
    """All bytes of the table, or of its inputs if they have more, written as fewer files."""
    snapshot = facts.table.snapshot
    bytes_read = max(snapshot.size_bytes, facts.input_bytes)
    partitions = {file.partition for file in snapshot.files}
    return MergeWork(
        files_removed=max(1, snapshot.file_count),
        bytes_removed=bytes_read,
        files_added=max(1, len(partitions)),
    )


def _estimate(facts: RebuildFacts, work: MergeWork, table: Table) -> Estimate:
    """The cost of all passes over these bytes, by the table's own rates."""
    snapshot = facts.table.snapshot
    rates = fit_rates(facts.table.history, snapshot, prices=table.prices)
    once = estimate(rates, work, on_s3=snapshot.on_s3)
    seconds = _STATEMENTS_SECONDS + _PASSES * (once.seconds + once.comparison_seconds)
    usd = run_price(
        table.prices,
        seconds=seconds,
        get_requests=_PASSES * once.get_requests,
        put_requests=_PASSES * once.put_requests,
    )
    return replace(once, seconds=seconds, usd=usd)
