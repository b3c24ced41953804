"""Which loaded files leave the landing area by the declaration's policy, and why others stay.

**Safety properties**
- A file goes only if a batch that the table's log knows has loaded it, and the commit that did is older than the landing says.
- A file goes only if it is the one that was loaded: its size and its time are those of the manifest, which also has its digest.
- A file of which a line, or which itself, is in quarantine stays.
- A file stays after somebody's RESTORE or overwrite of the table, which may have taken its rows out, as far back as the log that was read
  tells, and where a line of it was refused that the quarantine cannot have.
- Unknown stays: a batch without a commit time, a file without a digest.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.delta.commits import may_repeat_rows
from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.ingest.batches import Batch, LandedFile, ingest_app_id, may_be_same
from lakehouse.core.text import size_text
from lakehouse.core.units import DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RetirementPlan:
    """The batches with those of their files that go, and how many stay, by reason."""

    action: str
    batches: tuple[Batch, ...] = ()
    kept: Mapping[str, int]

    @property
    def files(self) -> tuple[LandedFile, ...]:
        """The files that go."""
        return tuple(file for batch in self.batches for file in batch.files)

    @property
    def sentence(self) -> str:
        """What goes, and what stays, as a sentence."""
        verb = {"archive": "go to the archive", "delete": "are deleted for good"}.get(self.action, "stay for ever")
        total = sum(file.size_bytes for file in self.files)
        stay = "".join(f"; {count} stay: {why}" for why, count in self.kept.items())
        return f"{len(self.files)} loaded files ({size_text(total)}) {verb}{stay}"


def plan_retirement(
    batches: Iterable[Batch],
    landing: Landing,
    lying: Mapping[str, LandedFile],
    facts: TableFacts | None,
    *,
    held: Collection[str],
    refused_upto: int,
    now_ms: int,
) -> RetirementPlan:
    """What goes of the loaded files that still lie in the landing area; `lying` has them by name.

    `facts` is the table as its log tells it now, `held` are the paths that stand in its quarantine, `refused_upto` is the last batch that
    the quarantine's log knows.
    """
    kept, going = Counter[str](), list[Batch]()
    if landing.after_load == "keep":
        return RetirementPlan(action=landing.after_load, kept={})
    replaced_ms = max((commit.committed_ms for commit in facts.history.commits if may_repeat_rows(commit)), default=0) if facts else 0
    for batch in batches:
        if batch.prefix != landing.prefix or not any(file.name in lying for file in batch.files):
            continue
        of_batch = _why_all_kept(batch, landing, facts, replaced_ms, refused_upto, now_ms)
        why = {
            file.name: of_batch or _why_kept(file, lying[file.name], is_held=f"{batch.prefix}{file.name}" in held)
            for file in batch.files
            if file.name in lying
        }
        kept.update(reason for reason in why.values() if reason)
        if files := tuple(file for file in batch.files if file.name in why and not why[file.name]):
            going.append(replace(batch, files=files))
    return RetirementPlan(action=landing.after_load, batches=tuple(going), kept=dict(sorted(kept.items())))


def _why_all_kept(batch: Batch, landing: Landing, facts: TableFacts | None, replaced_ms: int, refused_upto: int, now_ms: int) -> str:
    committed_ms = _committed_ms(batch.number, facts)
    if committed_ms is None or facts is None:
        return "the table's log does not know their batch"
    if now_ms - committed_ms < landing.keep_days * DAY_MS:
        return f"loaded less than {landing.keep_days:g} days ago"
    if replaced_ms >= committed_ms:
        return "somebody restored or replaced the table since: their rows may be gone"
    if batch.number > refused_upto and _has_refused(batch, landing, facts):
        return "lines of them were refused, and no quarantine has them"
    return ""


def _why_kept(file: LandedFile, now: LandedFile, *, is_held: bool) -> str:
    is_other = (file.size_bytes, file.modified_ms) != (now.size_bytes, now.modified_ms) or not may_be_same(file.etag, now.etag)
    if not file.digest or is_other:
        return "they are not as they were loaded, or nobody knows"
    return "they, or lines of them, are in quarantine" if is_held else ""


def _has_refused(batch: Batch, landing: Landing, facts: TableFacts) -> bool:
    """Whether the commit of a batch has fewer rows than the batch has records, as far as both are known."""
    if landing.changes is not None or batch.record_count is None or batch.isolated:
        return False
    app_id = ingest_app_id(facts.snapshot.table)
    of_batch = [commit for commit in facts.history.commits if commit.applications.get(app_id) == batch.number]
    rows = [commit.metrics.get("numOutputRows") for commit in of_batch if commit.parameters.get("mode") == "Append"]
    return bool(rows) and rows[-1] is not None and int(rows[-1]) < batch.record_count


def _committed_ms(number: int, facts: TableFacts | None) -> int | None:
    """No earlier than when the rows of a batch were committed; `None` if they were not, or nobody knows."""
    if facts is None or not facts.history.commits:
        return None
    app_id = ingest_app_id(facts.snapshot.table)
    if facts.snapshot.transactions.get(app_id, 0) < number:
        return None
    later = [commit.committed_ms for commit in facts.history.commits if commit.applications.get(app_id, 0) >= number]
    # The log has forgotten a commit that is older than all that it holds.
    return later[0] if later else facts.history.commits[0].committed_ms
