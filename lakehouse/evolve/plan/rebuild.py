"""Plans a rebuild, in which all rows of a table are written again in one commit, and its outcome.

A rebuild from the table's own rows changes names, types, columns or partitions. The rows stay the
same, so tables downstream skip the rebuild. The exception is a `Merge` that has not read all rows
yet: if columns change, it reads all rows once. A rebuild from inputs computes all rows of a derived
table again. These rows are new to tables downstream.

**Safety properties** (tests in `test_rebuild.py`)
- A cast that would change or lose the value of any row is refused.
- A rebuild from own rows is refused if these rows cannot become what the declaration requires. For
  example, a landed `Merge` cannot get other keys, because earlier rows of a key are gone.
- A table that other programs write is not rebuilt.
- No column is dropped, renamed or given another type before every `Append` that reads the changes
  of this table has read all of them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Literal

from lakehouse.base.errors import Refused, Transient
from lakehouse.base.frozen import frozen
from lakehouse.base.text import Document, count_of, size_text, usd_text
from lakehouse.compact.plan.estimate import Estimate, MergeWork, estimate, fit_rates
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.delta.columns import is_nested, parts, type_change, type_word
from lakehouse.delta.snapshot import Column, Snapshot, TableFacts, by_name
from lakehouse.evolve.plan.changes import NEW_KEY, EvolutionPlan, Kind, compare

_TYPE = re.compile(r"(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")


@frozen
class ColumnSource:
    """A column of the rebuilt table, and the existing column that supplies its values.

    `source` is `None` for a new column. A derived column has an `expression` over the rebuilt
    columns, for the rows without a value. Other new columns are null in all rows.
    """

    column: Column
    source: Column | None
    expression: str = ""

    @property
    def is_cast(self) -> bool:
        """Whether the values come from a column of another type."""
        return self.source is not None and self.source.type != self.column.type


def declared_sources(
    table: Table, columns: Sequence[Column], snapshot: Snapshot
) -> tuple[ColumnSource, ...]:
    """The declared columns with their sources, then existing columns that are not declared.

    The source of a renamed column has the earlier name. If the declared type is empty (unknown), or
    the declared description is empty, the existing one is kept. An `Overwrite` keeps only declared
    columns.
    """
    existing = by_name(snapshot.columns)
    derived = {} if table.source is None else table.source.derived
    changes = compare(table, columns, snapshot).changes
    earlier_names = {each.column.name: each.before for each in changes if each.column}
    sources = list[ColumnSource]()
    for declared in columns:
        column = declared
        source = existing.pop(earlier_names.get(declared.name) or declared.name, None)
        if source is not None:
            type_ = declared.type or source.type
            if not table.is_overwrite:
                type_ = type_change(source.type, type_).merged
            column = replace(declared, type=type_, comment=declared.comment or source.comment)
        expression = derived.get(declared.name, "")
        sources.append(ColumnSource(column=column, source=source, expression=expression))
    if not table.is_overwrite:
        sources += [ColumnSource(column=each, source=each) for each in existing.values()]
    return tuple(sources)


def columns_without_spark(
    landing: Landing, snapshot: Snapshot, added: Iterable[str]
) -> tuple[Column, ...]:
    """The declared columns of a landed table.

    The type of a derived column is empty, since it is unknown without Spark. Columns that
    the lake adds (names that begin with `_`) and columns `added` for undeclared fields are taken
    unchanged from the table.
    """
    types = landing.field_types
    names = landing.column_names
    declared = [Column(name=name, type=simple_type(types.get(name, ""))) for name in names]
    added_names = {*added}.difference(names)
    kept = [
        column
        for column in snapshot.columns
        if column.name in added_names or column.name.startswith("_")
    ]
    return (*declared, *kept)


def simple_type(ddl: str) -> str:
    """Spark's simple string of a type in DDL; empty if the type is unknown."""
    text = ddl.strip()
    word = type_word(text).lower()
    types = {name: simple_type(part) for name, part in parts(text).items()}
    if types:
        members = types.values()
        if word == "struct":
            members = [f"{name}:{type_}" for name, type_ in types.items()]
        return f"{word}<{','.join(members)}>" if all(types.values()) else ""
    match = _TYPE.match(text)
    if match is None or is_nested(text):
        return ""
    if word == "decimal":
        return f"decimal({match[2] or 10},{match[3] or 0})"
    # Of the types that are known here, only decimals have parameters.
    return "" if match[2] else word


def change_texts(columns: Sequence[ColumnSource], snapshot: Snapshot) -> list[str]:
    """A phrase for each column that is added, renamed, dropped or given another type."""
    changes = list[str]()
    dropped = by_name(snapshot.columns)
    for each in columns:
        name = each.column.name
        type_ = each.column.type
        if each.source is None:
            values = "with null in all rows"
            if each.expression:
                values = f"computed as {each.expression}"
            changes.append(f"{name} ({type_}) is added, {values}")
            continue
        del dropped[each.source.name]
        if each.source.name != name:
            changes.append(f"{each.source.name} is renamed to {name}")
        if each.is_cast:
            changes.append(f"the type of {name} changes from {each.source.type} to {type_}")
        if each.expression:
            changes.append(f"{name} is computed as {each.expression} where it is null")
    return [*changes, *(f"{name} is dropped" for name in dropped)]


# Comparing every row takes this share of a rewrite's time. Source: docs/internals/decisions/0008,
# measured on 200 files of 20,000 rows.
_COMPARISON_SHARE = 0.3
# The time that the statements (count, stage, compare, replace, set properties) take for a table
# without rows. Measured on two cores.
_STATEMENTS_SECONDS = 2.5


@frozen
class RebuildRequest:
    """A rebuild of a table from its own rows, or from its inputs.

    For a rebuild from own rows, `columns` are all columns of the rebuilt table, computed from the
    `existing` ones. Without columns, the table is rebuilt from its inputs, and the transform gives
    the columns.
    """

    table: Table
    columns: tuple[ColumnSource, ...] = ()
    existing: tuple[Column, ...] = ()


@frozen
class RebuildPlan:
    """A rebuild of a table at `version`, and its predicted cost.

    - `columns`: for a rebuild from own rows, the columns of the rebuilt table; otherwise empty.
    - `changes`: a phrase for each change of partitioning and, from own rows, of columns.
    - `files`, `row_count`: those of `version`; `row_count` is `None` if it is unknown.
    - `bytes_read`: the bytes of the table's or of the inputs' files, whichever are more.
    - `readers`: a sentence for each table that has to be rebuilt afterwards.
    """

    table: str
    version: int
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
    def source(self) -> Literal["rows", "inputs"]:
        """What is read: the table's own rows, or its inputs."""
        return "rows" if self.columns else "inputs"

    @property
    def rows(self) -> Literal["same", "new"]:
        """Whether readers downstream already have the rows ("same") or not ("new")."""
        return "same" if self.source == "rows" else "new"

    @property
    def sentence(self) -> str:
        """What is written from which rows, and the predicted cost."""
        rows = "" if self.row_count is None else f"{count_of(self.row_count, 'row')}, "
        size = f"{rows}{count_of(self.files, 'file')}, {size_text(self.bytes_read)}"
        origin = "its own rows"
        if self.source == "inputs":
            origin = "its inputs, without rows and columns that the inputs no longer give"
        changes = f": {'; '.join(self.changes)}" if self.changes else ""
        cost = f"about {self.seconds:.1f} s and {usd_text(self.usd)} USD, by {self.basis}"
        return f"version {self.version} ({size}) is written again from {origin}{changes}; {cost}"

    def as_json(self) -> Document:
        """The documented shape, for `lakehouse rebuild --json`."""
        document = asdict(self)
        document["columns"] = [
            {
                "name": each.column.name,
                "type": each.column.type,
                "source": None if each.source is None else each.source.name,
            }
            for each in self.columns
        ]
        document["source"] = self.source
        return {**document, "rows": self.rows, "sentence": self.sentence}


@frozen
class RebuildOutcome:
    """A finished rebuild: its plan, and the measured figures.

    `version_after` is the rebuild's commit.
    """

    plan: RebuildPlan
    version_after: int
    row_count: int
    bytes_written: int
    seconds: float

    @property
    def sentence(self) -> str:
        """What was written, and the actual and the predicted seconds."""
        origin = "its own rows" if self.plan.source == "rows" else "its inputs"
        return (
            f"version {self.version_after} has {count_of(self.row_count, 'row')} from {origin}, in "
            f"{self.seconds:.1f} s (predicted: {self.plan.seconds:.1f} s)"
        )

    def as_json(self) -> Document:
        """The documented shape, for `lakehouse rebuild --json`."""
        actual = {
            "version_after": self.version_after,
            "rows_written": self.row_count,
            "bytes_written": self.bytes_written,
            "seconds": self.seconds,
            "sentence": self.sentence,
        }
        return {"table": self.plan.table, "plan": self.plan.as_json(), "actual": actual}


def refuse_impossible(request: RebuildRequest, snapshot: Snapshot) -> None:
    """Refuses a rebuild that the log or the declaration shows to be impossible.

    Raises:
        Refused: the table or its declaration must change.
        Transient: another writer changed the columns since the request. The rebuild would drop a
            column that came meanwhile.
    """
    table = request.table
    rebuild = f"rebuild of {table.key}"
    if table.adopted:
        raise Refused(
            f"{rebuild}: other programs write it, at {table.adopted.uri}. Use their tools"
        )
    if not request.columns:
        return
    if request.existing != snapshot.columns:
        raise Transient(f"{rebuild}: another run changed its columns meanwhile. Try again")
    for change in compare(table, None, snapshot).of(Kind.LANDED_WRITE_CHANGED):
        raise Refused(f"{rebuild}: {change.sentence}. Either restore the declaration, or {NEW_KEY}")
    keys = list[str]()
    if table.source is not None and table.merge:
        keys += table.merge.keys
    for each in request.columns:
        # A key of landed change data may get another name.
        if each.column.name in keys and (each.source is None or each.is_cast):
            raise Refused(
                f"{rebuild}: {each.column.name} is a key of its change data, and deleted keys are "
                f"stored under its existing type. Either restore the declaration, or {NEW_KEY}"
            )
    _refuse_unusable_columns(request)


def _refuse_unusable_columns(request: RebuildRequest) -> None:
    """Refuses columns that the rebuilt table cannot have.

    These are columns whose values cannot be converted, and partition columns that are not among the
    columns.
    """
    rebuild = f"rebuild of {request.table.key}"
    for each in request.columns:
        source = each.source
        if source is not None and not type_change(source.type, each.column.type).is_possible:
            raise Refused(
                f"{rebuild}: {source.name} is {source.type} and cannot become {each.column.type}."
                " Either restore its type, or add a column of the new type"
            )
    names = {each.column.name for each in request.columns}
    for name in request.table.partition_by:
        if name not in names:
            raise Refused(
                f"{rebuild}: the table is to be partitioned by {name}, which is not one of its "
                "columns. Use a column of the table"
            )


def rebuild_plan(
    request: RebuildRequest,
    facts: TableFacts,
    readers: Sequence[Table] = (),
    waiting: Sequence[str] = (),
    *,
    input_bytes: int = 0,
) -> RebuildPlan:
    """The plan of a rebuild that `refuse_impossible` allows.

    `readers` are the tables that read this one. `waiting` are the keys of each `Append` that
    follows it and has not read all its changes yet. `input_bytes` is the size of the live files of
    the inputs, for a rebuild from inputs.

    Raises:
        Refused: a rebuild from own rows, while an `Append` waits. If columns change, it could not
            read the change data feed of earlier versions.
    """
    table = request.table
    snapshot = facts.snapshot
    partition_by = table.partition_by
    changes = change_texts(request.columns, snapshot) if request.columns else []
    if partition_by != snapshot.partition_columns:
        changes.append(f"partitioned by {', '.join(partition_by) or 'nothing'}")
    if waiting and request.columns:
        raise Refused(
            f"rebuild of {table.key}: not all its rows have been read by {', '.join(waiting)} "
            "(Append), and they cannot be read after columns have changed. Use `lakehouse "
            f"materialize {waiting[0]}` first"
        )
    bytes_read = max(snapshot.size_bytes, input_bytes)
    figures = _estimate(facts, bytes_read, table)
    effects = [
        f"{each.key} keeps rows that were made from the earlier ones. Use `lakehouse rebuild"
        f" {each.key}` afterwards"
        for each in readers
        if not request.columns and not each.is_overwrite
    ]
    return RebuildPlan(
        table=table.key,
        version=snapshot.version,
        columns=request.columns,
        partition_by=partition_by,
        changes=tuple(changes),
        files=snapshot.file_count,
        bytes_read=bytes_read,
        row_count=snapshot.row_count,
        seconds=figures.seconds,
        usd=figures.usd,
        basis=figures.basis,
        readers=tuple(effects),
    )


def refuse_inexact_casts(
    table: Table, columns: Sequence[ColumnSource], inexact: Mapping[str, int]
) -> None:
    """Refuses casts that would change values.

    `inexact` has, for source columns, the number of rows with a value that the cast would change.
    """
    types = dict[str, str]()
    for each in columns:
        if each.source is not None:
            is_partition = each.column.name in table.partition_by
            what = "a partition column of type " if is_partition else ""
            types[each.source.name] = f"{what}{each.column.type}"
    reasons = [
        f"{types[name]} cannot exactly hold the values of {name} in {count_of(count, 'row')}"
        for name, count in inexact.items()
        if count
    ]
    if not reasons:
        return
    instead = "another type or other partitions"
    if table.source is None:
        instead += f", or `lakehouse rebuild {table.key}`"
    raise Refused(
        f"rebuild of {table.key}: {'; '.join(reasons)}. Nothing was written. Use {instead}"
    )


def _estimate(facts: TableFacts, bytes_read: int, table: Table) -> Estimate:
    """The cost of all passes over these bytes, at the rates measured for this table.

    All rows are written again, as one file per partition.
    """
    snapshot = facts.snapshot
    partitions = {file.partition for file in snapshot.files}
    work = MergeWork(
        files_removed=max(1, snapshot.file_count),
        bytes_removed=bytes_read,
        files_added=max(1, len(partitions)),
    )
    rates = fit_rates(facts.history, snapshot, prices=table.prices)
    once = estimate(rates, work, on_s3=snapshot.on_s3)
    seconds = _STATEMENTS_SECONDS + (1 + _COMPARISON_SHARE) * once.seconds
    usd = table.prices.run_usd(
        seconds=seconds,
        get_requests=once.get_requests,
        put_requests=2 * once.put_requests,  # each file is written, then copied into the table
    )
    return replace(once, seconds=seconds, usd=usd)


@frozen
class Proposal:
    """The changes of a table, and how they can be applied.

    - `rebuild`: the rebuild that the changes need; `None` if they need none.
    - `to_fill`: columns that the next write adds with null, and that a rebuild would compute.
    """

    plan: EvolutionPlan
    rebuild: RebuildPlan | None = None
    to_fill: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the rebuild and its cost, about alternatives, and the command to use."""
        sentences = list[str]()
        if self.rebuild is not None:
            sentences.append(f"rebuild: {self.rebuild.sentence}")
            sentences += self.rebuild.readers
        if self.to_fill and self.rebuild is None:
            names = ", ".join(self.to_fill)
            sentences.append(
                f"existing rows have null in {names} until `lakehouse rebuild {self.plan.table}`"
                " computes their values"
            )
        if self.plan.of(Kind.CODE_CHANGED):
            sentences.append(
                f"Use `lakehouse rebuild {self.plan.table}` to compute its rows again."
            )
        if self.plan.impossible:
            sentences.append(self.plan.advice)
        elif self.plan.blocking:
            sentences.append(f"Use `lakehouse evolve {self.plan.table}`.")
        return tuple(sentences)

    def as_json(self) -> Document:
        """The documented shape, for `lakehouse evolve --dry-run --json`."""
        return {
            **self.plan.as_json(),
            "rebuild": None if self.rebuild is None else self.rebuild.as_json(),
            "notes": list(self.notes),
        }


@frozen
class EvolutionOutcome:
    """The outcome of `lakehouse evolve`.

    `sentences` report what was applied. `left` contains the differences that remain.
    """

    sentences: tuple[str, ...]
    left: EvolutionPlan
    rebuild: RebuildOutcome | None = None

    def as_json(self) -> Document:
        """The documented shape, for `lakehouse evolve --json`."""
        return {
            "table": self.left.table,
            "sentences": list(self.sentences),
            "rebuild": None if self.rebuild is None else self.rebuild.as_json(),
            "left": self.left.as_json(),
        }
