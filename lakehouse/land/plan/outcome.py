"""The outcomes of commands on a quarantine, and sentences about what was set aside."""

from dataclasses import dataclass, field

from lakehouse.base.text import count_of, first_names
from lakehouse.declare.landing import Landing
from lakehouse.land.plan.batches import Ledger


def quarantine_sentence(table_key: str, *, lines: int, files: int = 0) -> str:
    """`3 lines and 1 file in quarantine: lakehouse quarantine show bronze/orders`, or empty."""
    counts = [count_of(lines, "line")] if lines else []
    counts += [count_of(files, "file")] if files else []
    if not counts:
        return ""
    return f"{' and '.join(counts)} in quarantine: lakehouse quarantine show {table_key}"


def describe_set_aside(ledger: Ledger, landing: Landing) -> str | None:
    """How many files were set aside, and the first names; `None` if no file was.

    A file whose earlier content was loaded is not counted. Files that were set aside because of the
    ending of their name come first.
    """
    aside = {path: known for path, known in ledger.seen.items() if not known.is_taken}
    foreign = [path for path, known in aside.items() if known.is_foreign]
    others = [path for path, known in aside.items() if not known.is_foreign]
    sentences = list[str]()
    if foreign:
        endings = ", ".join(landing.suffixes)
        count = count_of(len(foreign), "file")
        sentences.append(
            f"{count} set aside, since the name ends in none of {endings}: {first_names(foreign)}"
        )
    if others:
        count = count_of(len(others), "file")
        sentences.append(f"{count} set aside for other reasons: {first_names(others)}")
    return "; ".join(sentences) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReview:
    """The effect of a command on a quarantine. With `dry_run`, the effect that it would have.

    `lines` and `files` count the lines and files that leave the quarantine. If `dropped` is not 0,
    a person has handled them: they are not loaded. Otherwise, they are loaded again, lines from the
    new files `landed`. `left` counts what stays in the quarantine, by reason.
    """

    table: str
    dry_run: bool
    lines: int
    files: int
    dropped: int = 0
    landed: tuple[str, ...] = ()
    left: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def sentence(self) -> str:
        """The effect as a sentence."""
        lines = count_of(self.lines, "line")
        files = count_of(self.files, "file")
        if self.dropped:
            return f"{'would drop' if self.dry_run else 'dropped'} {lines} and {files}"
        verb = "would land" if self.dry_run else "landed"
        where = f" in {first_names(self.landed)}" if self.landed else ""
        kept = "".join(f"; {count} kept: {why}" for why, count in self.left.items())
        return f"{verb} {lines} again{where}; to be read again: {files}{kept}"
