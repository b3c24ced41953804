"""The plan of changes between a declaration and its table: how each is applied, and when.

The next run that writes the table applies safe changes, and with `evolution="automatic"` also
renames and wider types. Other changes (with `evolution="refuse"`, all changes) wait for `lakehouse
evolve apply` or `lakehouse rebuild`. While a change waits, no run writes the table or applies other
changes. Some changes stop nothing, because new rows can be written as declared without them, for
example a column that is no longer declared.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from lakehouse.core.delta.snapshot import Column
from lakehouse.core.errors import Refused
from lakehouse.core.evolution.column_types import NewColumn

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
    SPELLING_CHANGED = ("spelling changed", Way.OWN_ROWS, Consent.ON_REQUEST)
    REPLACED = ("columns or partitioning changed", Way.NEXT_WRITE, Consent.BY_ITSELF)

    def __init__(self, title: str, way: Way, consent: Consent) -> None:
        self.title = title
        self.way = way
        self.consent = consent


# While these changes wait, new rows can still be written as declared, so they do not stop writes.
_STOP_NOTHING = (Kind.COLUMN_LEFT, Kind.CODE_CHANGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between a declaration and its table.

    `column` is the declared column, if any. `before` is the column's name in the table; it is not
    set if the names differ only in case. `added` is set for a column that the next write may add.
    """

    kind: Kind
    sentence: str
    column: Column | None = None
    before: str | None = None
    added: NewColumn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows:
    """What the log records about the rows of a table, as far as it is known.

    - `way`: how the rows were written; `None` unless it is known to differ from `declared_way`.
    - `declared_way`: how rows are written according to the declaration.
    - `code_since`: the newest version with rows that earlier code computed; `None` without any.
    """

    way: str | None = None
    declared_way: str | None = None
    code_since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
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
    def by_policy(self) -> tuple[Change, ...]:
        """The changes that the next write applies if the table has `evolution="automatic"`."""
        return tuple(each for each in self.changes if each.kind.consent is Consent.BY_POLICY)

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
        return tuple(each for each in self.blocking if each.kind.way is Way.IMPOSSIBLE)

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

    def as_json(self) -> dict[str, Any]:
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

    @property
    def advice(self) -> str:
        """What to do about the blocking changes; empty if nothing blocks."""
        if not self.blocking:
            return ""
        if self.impossible:
            return "Either restore the declaration, or declare the table under a new key."
        return (
            f"Use `lakehouse evolve plan {self.table}` to see how they are applied, then"
            f" `lakehouse evolve apply {self.table}`."
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
