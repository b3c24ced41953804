"""What `lakehouse evolve --dry-run` shows, and the outcome of `lakehouse evolve`."""

from dataclasses import dataclass
from typing import Any

from lakehouse.evolve.plan.changes import EvolutionPlan, Kind
from lakehouse.evolve.plan.rebuild import RebuildOutcome, RebuildPlan

_NO_TABLE = "there is no table yet; the first write creates it as declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The changes of a table, and how they can be applied.

    - `plan`: the changes; `None` if there is no table yet.
    - `rebuild`: the rebuild that the changes need; `None` if they need none, or if it is refused.
    - `why_no_rebuild`: why the rebuild that the changes need is refused.
    - `to_fill`: columns that the next write adds with null, and that a rebuild would compute.
    """

    table: str
    plan: EvolutionPlan | None = None
    rebuild: RebuildPlan | None = None
    why_no_rebuild: str = ""
    to_fill: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The changes in one sentence."""
        if self.plan is not None:
            return self.plan.sentence
        return _NO_TABLE

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the rebuild and its cost, about alternatives, and the command to use."""
        sentences = list[str]()
        if self.rebuild is not None:
            sentences.append(f"rebuild: {self.rebuild.sentence}")
            sentences += self.rebuild.readers
        if self.why_no_rebuild:
            sentences.append(f"the table cannot be rebuilt: {self.why_no_rebuild}")
        if self.to_fill and self.rebuild is None:
            names = ", ".join(self.to_fill)
            sentences.append(
                f"existing rows have null in {names} until `lakehouse rebuild {self.table}` "
                "computes their values"
            )
        if self.plan is not None and self.plan.of(Kind.CODE_CHANGED):
            sentences.append(f"Use `lakehouse rebuild {self.table}` to compute its rows again.")
        if self.plan is not None and self.plan.advice and not self.why_no_rebuild:
            sentences.append(self.advice)
        return tuple(sentences)

    @property
    def advice(self) -> str:
        """The command that applies the changes, or what to do if no command can."""
        if self.plan is not None and self.plan.impossible:
            return self.plan.advice
        return f"Use `lakehouse evolve {self.table}`."

    def as_json(self) -> dict[str, Any]:
        """The documented shape, for `lakehouse evolve --dry-run --json`."""
        changes: list[dict[str, Any]] = []
        if self.plan is not None:
            changes = self.plan.as_json()["changes"]
        return {
            "table": self.table,
            "version": None if self.plan is None else self.plan.version,
            "sentence": self.sentence,
            "changes": changes,
            "rebuild": None if self.rebuild is None else self.rebuild.as_json(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionOutcome:
    """The outcome of `lakehouse evolve`.

    `sentences` report what was applied. `left` contains the differences that remain.
    """

    table: str
    sentences: tuple[str, ...]
    left: EvolutionPlan
    rebuild: RebuildOutcome | None = None

    def as_json(self) -> dict[str, Any]:
        """The documented shape, for `lakehouse evolve --json`."""
        return {
            "table": self.table,
            "sentences": list(self.sentences),
            "rebuild": None if self.rebuild is None else self.rebuild.as_json(),
            "left": self.left.as_json(),
        }
