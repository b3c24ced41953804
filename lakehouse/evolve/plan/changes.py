"""Compares a declaration with its table, and plans how each difference is applied.

The next run that writes the table applies safe changes, and with `evolution="automatic"` also
renames and wider types. Other changes (with `evolution="refuse"`, all changes) wait for `lakehouse
evolve` or `lakehouse rebuild`. While a change waits, no run writes the table or applies other
changes. Some changes stop nothing, because new rows can be written as declared without them, for
example a column that is no longer declared.

**Safety properties** (tests in `test_changes.py`)
- No column is removed, renamed or given another type, unless the same commit replaces all rows, or
  the table uses Delta's column mapping or type widening, or a person asked for it.
- Every difference in columns, types and partitioning becomes a change, as far as the declared
  columns and types are known.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.operation import Operation
from lakehouse.base.text import Document
from lakehouse.declare.table import Table
from lakehouse.delta.columns import NewColumn, is_wider, type_change
from lakehouse.delta.snapshot import Column, Snapshot, by_name

# The last alternative in messages about a table that cannot be changed as declared.
NEW_KEY = "declare the table under a new key, which leaves this one as it is"


class Way(Enum):
    """How a change is applied to the table. The value is shown to people."""

    METADATA = "metadata only"
    NEXT_WRITE = "with the rows of the next write"
    STAYS = "existing rows stay as they are"
    OWN_ROWS = "rebuild from its own rows"
    INPUTS = "rebuild from its inputs"
    IMPOSSIBLE = "not possible"


class Consent(Enum):
    """Who decides that a change is applied. The value is shown to people."""

    BY_ITSELF = "by the next write"
    BY_POLICY = 'by the next write with evolution="automatic", else on request'
    ON_REQUEST = "on request"


class Kind(Enum):
    """A kind of change: its title, the way to apply it, and who decides that it is applied."""

    COLUMN_ADDED = ("column added", Way.METADATA, Consent.BY_ITSELF)
    COMMENT_CHANGED = ("description changed", Way.METADATA, Consent.BY_ITSELF)
    TYPE_WIDENED = ("type widened", Way.OWN_ROWS, Consent.BY_POLICY)
    COLUMN_RENAMED = ("column renamed", Way.OWN_ROWS, Consent.BY_POLICY)
    COLUMN_LEFT = ("column no longer declared", Way.STAYS, Consent.BY_ITSELF)
    TYPE_CHANGED = ("type changed", Way.OWN_ROWS, Consent.ON_REQUEST)
    PARTITIONING_CHANGED = ("partitioning changed", Way.OWN_ROWS, Consent.ON_REQUEST)
    WRITE_CHANGED = ("keys or write mode changed", Way.INPUTS, Consent.ON_REQUEST)
    LANDED_WRITE_CHANGED = ("keys or write mode changed", Way.IMPOSSIBLE, Consent.ON_REQUEST)
    CODE_CHANGED = ("code changed", Way.INPUTS, Consent.ON_REQUEST)
    REPLACED = ("columns or partitioning changed", Way.NEXT_WRITE, Consent.BY_ITSELF)

    def __init__(self, title: str, way: Way, consent: Consent) -> None:
        self.title = title
        self.way = way
        self.consent = consent


# While these changes wait, new rows can still be written as declared, so they do not stop writes.
_STOP_NOTHING = (Kind.COLUMN_LEFT, Kind.CODE_CHANGED)


@frozen
class Change:
    """One difference between a declaration and its table.

    `before` is the column's name in the table. `column` is the declared column that gets its name,
    type or description. `added` is set for a column that the next write may add.
    """

    kind: Kind
    sentence: str
    before: str | None = None
    column: Column | None = None
    added: NewColumn | None = None


@frozen
class EvolutionPlan:
    """All changes between a declaration and its table at one version.

    `columns_known` is false if the declared columns are unknown, because only Spark can determine
    the columns of a function.
    """

    table: str
    version: int
    policy: str
    changes: tuple[Change, ...]
    columns_known: bool = True

    def of(self, *kinds: Kind) -> tuple[Change, ...]:
        """The changes of these kinds."""
        return tuple(change for change in self.changes if change.kind in kinds)

    @property
    def added(self) -> tuple[NewColumn, ...]:
        """The columns to add."""
        return tuple(change.added for change in self.changes if change.added is not None)

    @property
    def blocking(self) -> tuple[Change, ...]:
        """The changes that must be applied before the next write, because it does not apply them.

        With `evolution="automatic"`, the run applies renames and wider types before it writes.
        """
        stopping = [change for change in self.changes if change.kind not in _STOP_NOTHING]
        if self.policy == "refuse":
            return tuple(stopping)
        # The next write applies the other changes itself.
        return tuple(each for each in stopping if each.kind.consent is not Consent.BY_ITSELF)

    @property
    def stopping(self) -> tuple[Change, ...]:
        """The blocking changes, unless the next write makes all of them by the table's policy."""
        are_by_policy = all(each.kind.consent is Consent.BY_POLICY for each in self.blocking)
        return () if self.policy == "automatic" and are_by_policy else self.blocking

    @property
    def rebuild_from(self) -> Way | None:
        """The kind of rebuild that applies the blocking changes; `None` if no rebuild is needed."""
        ways = {change.kind.way for change in self.blocking}
        if Way.INPUTS in ways:
            return Way.INPUTS
        return Way.OWN_ROWS if Way.OWN_ROWS in ways else None

    @property
    def impossible(self) -> tuple[Change, ...]:
        """The changes that no command can apply."""
        return self.of(Kind.LANDED_WRITE_CHANGED)

    @property
    def sentence(self) -> str:
        """All changes in one sentence."""
        if self.changes:
            return "; ".join(change.sentence for change in self.changes)
        if self.columns_known:
            return "the declaration and the table agree"
        return (
            "the declaration and the table agree, as far as can be seen without Spark; the next"
            " write compares the columns"
        )

    def as_json(self) -> Document:
        """The documented shape, for `lakehouse evolve --json`."""
        return {
            "table": self.table,
            "version": self.version,
            "evolution": self.policy,
            "changes": [
                {
                    "kind": change.kind.name,
                    "sentence": change.sentence,
                    "way": change.kind.way.value,
                    "when": change.kind.consent.value,
                    "blocks": change in self.blocking,
                }
                for change in self.changes
            ],
            "sentence": self.sentence,
            "advice": self.advice,
        }

    def operation(self, size_bytes: int) -> Operation:
        """What `lakehouse evolve` or, if only the code changed, `lakehouse rebuild` would do.

        It is due if it waits for a person. `size_bytes` is the size of the table.
        """
        stopping = self.stopping
        changed_code = self.of(Kind.CODE_CHANGED)
        kinds = [each.kind.name for each in (*stopping, *changed_code, *self.changes)]
        is_due = bool(stopping or changed_code)
        return Operation(
            operation="rebuild" if changed_code and not stopping else "evolve",
            table=self.table,
            reason=kinds[0] if kinds else "UNCHANGED",
            sentence=self.sentence,
            is_due=is_due,
            stops_writes=bool(stopping),
            size_bytes=size_bytes if is_due else 0,
        )

    @property
    def advice(self) -> str:
        """What to do about the blocking changes; empty if nothing blocks."""
        if not self.blocking:
            return ""
        if self.impossible:
            return "Either restore the declaration, or declare the table under a new key."
        return (
            f"Use `lakehouse evolve {self.table} --dry-run` to see how they are applied, then"
            f" `lakehouse evolve {self.table}`."
        )


def checked(plan: EvolutionPlan) -> EvolutionPlan:
    """The same plan, if none of its changes stops the next write.

    Raises:
        Refused: the plan has `blocking` changes.
    """
    if plan.blocking:
        changes = "; ".join(change.sentence for change in plan.blocking)
        policy = ' (its evolution is "refuse")' if plan.policy == "refuse" else ""
        raise Refused(
            f"write of {plan.table}: its declaration has changed: {changes}{policy}. Nothing was"
            f" written. {plan.advice}"
        )
    return plan


# The table property that records the keys by which landed change data was merged.
CHANGE_KEYS = "lakehouse.changeKeys"
# Columns of tables with change data.
_DELETED = "_deleted"
# Columns that the write mode `History` added, which is gone. Its tables have several rows per key.
_HISTORY = {("valid_from", "timestamp"), ("valid_to", "timestamp"), ("is_current", "boolean")}
_POSITION = "_position"
_NULL_IN_NEW_ROWS = ": new rows have null there"


def compare(
    table: Table,
    columns: Sequence[Column] | None,
    snapshot: Snapshot,
    rows: Sequence[Change] = (),
) -> EvolutionPlan:
    """The changes between a declaration and its table at one version.

    `columns` are the declared columns, or `None` if they are unknown; then, columns are not
    compared. An empty type is unknown, and is not compared. `rows` are the changes that concern how
    the table's rows were made, as its log records it.
    """
    changes = _column_changes(table, columns, snapshot) if columns is not None else []
    if partitioning := _partitioning(table, snapshot):
        changes.append(Change(kind=Kind.PARTITIONING_CHANGED, sentence=partitioning))
    if table.is_overwrite:  # its next write replaces the schema and the rows
        for place, change in enumerate(changes):
            if change.kind is not Kind.COMMENT_CHANGED:
                sentence = change.sentence.removesuffix(_NULL_IN_NEW_ROWS)
                changes[place] = replace(change, kind=Kind.REPLACED, sentence=sentence, added=None)
    if table.source is not None:
        changes += _landed_write_changes(table, snapshot)
    changes += rows
    return EvolutionPlan(
        table=table.key,
        version=snapshot.version,
        policy=table.evolution,
        changes=tuple(changes),
        columns_known=columns is not None,
    )


def change_keys_text(table: Table) -> str | None:
    """The declared value of `CHANGE_KEYS`; `None` if no change data is merged by keys."""
    is_change_data = table.source is not None and table.source.changes is not None
    if not is_change_data or not table.merge:
        return None
    return json.dumps(sorted(table.merge.keys))


def _landed_write_changes(table: Table, snapshot: Snapshot) -> list[Change]:
    """The change between appending and merging landed rows, if any.

    The property `CHANGE_KEYS` and the table's columns show how its rows were written. Existing rows
    cannot be converted. For example, a merge does not keep the earlier rows of a key.
    """
    keys = _present_keys(table, snapshot)
    names = {column.name for column in snapshot.columns}
    # A table with change data gets the property only after its first batch, but has `_position`
    # from the start. The rows of any other table without the property were appended.
    is_unknown = keys is None and (not snapshot.files or _POSITION in names)
    if is_unknown or table.is_overwrite:
        return []
    declared = table.landing.column_names
    undeclared = {(each.name, each.type) for each in snapshot.columns if each.name not in declared}
    existing_way = "appended"
    if keys is not None and undeclared >= _HISTORY:
        existing_way = f"kept as a history by {keys}"
    elif keys is not None:
        existing_way = _merged_by(keys, is_soft=_DELETED in names)
    declared_way = "appended"
    if (declared_keys := change_keys_text(table)) is not None:
        is_soft = table.merge is not None and table.merge.deletes == "soft"
        declared_way = _merged_by(declared_keys, is_soft=is_soft)
    if existing_way == declared_way:
        return []
    sentence = (
        f"its rows are to be {declared_way}, and were {existing_way}: existing rows cannot be"
        " converted"
    )
    return [Change(kind=Kind.LANDED_WRITE_CHANGED, sentence=sentence)]


def _present_keys(table: Table, snapshot: Snapshot) -> str | None:
    """The recorded keys of change data under their declared names; `None` if they are unknown.

    They are unknown if none are recorded, or if a recorded key is no longer a column, for example
    because the table's column has been renamed.
    """
    text = snapshot.properties.get(CHANGE_KEYS)
    keys: list[str] = [] if text is None else json.loads(text)
    is_known = {*keys} <= {column.name for column in snapshot.columns}
    if not keys or not is_known:
        return None
    return json.dumps(sorted(table.renamed.get(key, key) for key in keys))


def _merged_by(keys: str, *, is_soft: bool) -> str:
    marking = ", with deleted rows marked" if is_soft else ""
    return f"merged by {keys}{marking}"


def _column_changes(table: Table, columns: Sequence[Column], snapshot: Snapshot) -> list[Change]:
    existing = by_name(snapshot.columns)
    spellings = {name.lower(): name for name in existing}
    names = {column.name for column in columns}
    earlier_names = dict[str, str]()
    for old, new in _renamed_for(table).items():
        is_left = old in existing and old not in names
        is_new = new in names and new not in existing
        if is_left and is_new:
            earlier_names[new] = old
    changes = list[Change]()
    after: str | None = None
    for column in columns:
        # Names that differ only in upper and lower case are one column.
        spelling = spellings.get(column.name.lower(), column.name)
        present = existing.get(earlier_names.get(column.name, spelling))
        if present is not None:
            changes += _changes_of(column, present)
        else:
            changes.append(_addition(NewColumn(column=column, after=after)))
        after = column.name
    lowered = {name.lower() for name in names}
    # Renamed columns and partition columns are reported as other kinds of changes.
    reported_names = {*earlier_names.values(), *snapshot.partition_columns}
    for name, present in existing.items():
        if name.lower() not in lowered and name not in reported_names:
            sentence = f"{name} ({present.type}) is no longer declared{_NULL_IN_NEW_ROWS}"
            changes.append(Change(kind=Kind.COLUMN_LEFT, sentence=sentence, before=name))
    return changes


def _changes_of(column: Column, present: Column) -> list[Change]:
    """The changes of one declared column. The table's column may have an earlier name."""
    before = present.name
    changes = list[Change]()
    if column.name != before:
        sentence = f"{before} is renamed to {column.name} in the declaration"
        changes.append(
            Change(kind=Kind.COLUMN_RENAMED, sentence=sentence, before=before, column=column)
        )
    if column.type and column.type != present.type:
        changes += _type_changes(column, present)
    # If the declaration has no description, the table's description stays.
    if column.comment and column.comment != present.comment:
        sentence = f"the description of {column.name} has changed"
        changes.append(
            Change(kind=Kind.COMMENT_CHANGED, sentence=sentence, before=before, column=column)
        )
    return changes


def _type_changes(column: Column, present: Column) -> list[Change]:
    """The change of a column's type, or else of the members of its structs."""
    change = type_change(present.type, column.type, (column.name,))
    if change.casts:
        is_widening = all(is_wider(before, after) for before, after in change.casts)
        kind = Kind.TYPE_WIDENED if is_widening else Kind.TYPE_CHANGED
        sentence = f"{column.name} is declared as {column.type}, but is {present.type} in the table"
        return [Change(kind=kind, sentence=sentence, before=present.name)]
    changes = [*map(_addition, change.added)]
    for name, type_ in change.left:
        sentence = f"{name} ({type_}) is no longer declared{_NULL_IN_NEW_ROWS}"
        changes.append(Change(kind=Kind.COLUMN_LEFT, sentence=sentence))
    return changes


def _addition(added: NewColumn) -> Change:
    """The change that adds a declared column, or a member of it."""
    sentence = f"{added.name} ({added.column.type}) is declared, but not in the table"
    return Change(kind=Kind.COLUMN_ADDED, sentence=sentence, added=added)


def _renamed_for(table: Table) -> dict[str, str]:
    """The new name of each renamed column of the table or of its inputs, by earlier name.

    Renames of inputs count, because the transform may select a renamed column of an input under its
    new name.
    """
    of_inputs = {old: new for source in table.inputs for old, new in source.renamed.items()}
    return {**of_inputs, **table.renamed}


def _partitioning(table: Table, snapshot: Snapshot) -> str:
    """The difference between the declared and the existing partitioning; empty if they agree."""
    declared = table.partition_by
    renamed = _renamed_for(table)
    existing = tuple(renamed.get(name, name) for name in snapshot.partition_columns)
    if declared in (existing, snapshot.partition_columns):
        return ""
    return (
        f"the declaration partitions by {_names(declared)}, but the table is partitioned by"
        f" {_names(snapshot.partition_columns)}"
    )


def _names(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"
