"""The loaded files that leave the landing area by the declaration's policy, and why others stay.

**Safety properties** (tests in `test_retire.py`)
- A file goes only if a batch that the table's log knows has loaded it, and the commit of that batch
  is older than the landing's `keep_days`.
- A file goes only if it is the one that was loaded: size, time and etag are those of the manifest,
  which also has its digest. A file that landed after the commit that is said to have loaded it
  stays: the log is of another life of the table.
- A file stays while it, or a line of it, is in quarantine.
- A file stays if a RESTORE or overwrite by others may have taken out its rows, or if a line of it
  was refused that the quarantine cannot have.
- A file is not deleted for good if the log does not show everything that happened to the table
  since its batch.
- Unknown stays: a batch without a commit time, a file without a digest.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.delta.commits import Commit, may_repeat_rows
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.ingest.batches import Batch, LandedFile, ingest_app_id, may_be_same
from lakehouse.core.text import size_text
from lakehouse.core.units import DAY_MS

_CLOCKS_APART_MS = (
    DAY_MS  # of who landed a file and of who committed its rows, at most; also their zones
)


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
        """The files that go, and those that stay, as a sentence."""
        verb = {"archive": "go to the archive", "delete": "are deleted for good"}.get(
            self.action, "stay for ever"
        )
        total = sum(file.size_bytes for file in self.files)
        stay = "".join(f"; {count} stay: {why}" for why, count in self.kept.items())
        return f"{len(self.files)} loaded files ({size_text(total)}) {verb}{stay}"


class JudgedBatch(NamedTuple):
    """A batch, and why each of its files that lie in the landing area stays there whatever the table's log tells; empty if none does."""

    batch: Batch
    why: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A commit that brought a batch into a table; `row_count` is `None` where it is no append, or does not tell."""

    number: int
    version: int
    committed_ms: int
    row_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """The commits that brought a table its batches, oldest first, as far back as its log was read; `newest` is the last batch it holds."""

    newest: int
    found: tuple[Arrival, ...]
    first_version: int | None  # of the oldest commit that was read, `None` if none was
    first_ms: int
    replaced_version: (
        int | None
    )  # of the newest commit of somebody else that may have taken rows of batches out
    is_partial: bool = False  # older commits were left unread

    def reaches(self, number: int) -> bool:
        """Whether every commit since that of a batch was read."""
        return self.first_version == 0 or bool(self.found and self.found[0].number <= number)

    def settles(self, number: int) -> bool:
        """Whether older commits would change nothing for a batch and those after it."""
        return self.replaced_version is not None or self.reaches(number)


def read_arrivals(facts: TableFacts, commits: Iterable[Commit], *, oldest: int) -> Arrivals:
    """The arrivals of a table by its commits, newest first. No more are taken than it needs for the batch `oldest` and those after it."""
    app_id = ingest_app_id(facts.snapshot.table)
    found, first, replaced_version = list[Arrival](), None, None
    for commit in commits:
        first, number = commit, commit.applications.get(app_id)
        if number is not None:
            rows = (
                commit.metrics.get("numOutputRows")
                if commit.parameters.get("mode") == "Append"
                else None
            )
            row_count = None if rows is None else int(rows)
            found.append(
                Arrival(
                    number=number,
                    version=commit.version,
                    committed_ms=commit.committed_ms,
                    row_count=row_count,
                )
            )
        if may_take_rows(commit):
            replaced_version = commit.version
            break  # the files of every batch before it stay
        if number is not None and number <= oldest:
            break
    return Arrivals(
        newest=facts.snapshot.transactions.get(app_id, 0),
        found=tuple(reversed(found)),
        first_version=None if first is None else first.version,
        first_ms=0 if first is None else first.committed_ms,
        replaced_version=replaced_version,
    )


def judge_files(
    batches: Iterable[Batch],
    landing: Landing,
    lying: Mapping[str, LandedFile],
    *,
    held: Collection[str],
) -> list[JudgedBatch]:
    """The batches of which a file still lies in the landing area, where `lying` has it by name; `held` are the paths in quarantine."""
    ours = [batch for batch in batches if batch.prefix == landing.prefix]
    last_batch = {file.name: batch.number for batch in ours for file in batch.files}
    below = [
        (
            batch,
            [
                file
                for file in batch.files
                if file.name in lying and last_batch[file.name] == batch.number
            ],
        )
        for batch in ours
    ]
    return [
        JudgedBatch(
            batch, {file.name: _why_kept(file, lying[file.name], batch, held) for file in files}
        )
        for batch, files in below
        if files
    ]


def plan_retirement(
    judged: Iterable[JudgedBatch],
    landing: Landing,
    arrivals: Arrivals | None,
    *,
    quarantined: Container[int],
    now_ms: int,
) -> RetirementPlan:
    """The plan of what goes of the loaded files that still lie in the landing area.

    `arrivals` is the table's log, `None` where there is none, `quarantined` the batches that the quarantine's log tells of.
    """
    if landing.after_load == "keep":
        return RetirementPlan(action="keep", kept={})
    kept, going = Counter[str](), list[Batch]()
    upto = [] if arrivals is None else [*accumulate((each.number for each in arrivals.found), max)]
    for batch, why in judged:
        of_batch = "the table's log does not know their batch"
        if (
            not all(why.values())
            and arrivals is not None
            and arrivals.newest >= batch.number
            and arrivals.first_version is not None
        ):
            place = bisect_left(upto, batch.number)
            arrival = arrivals.found[place] if place < len(upto) else None
            of_batch = _why_all_kept(batch, landing, arrivals, arrival, quarantined, now_ms)
        kept.update(reason for own in why.values() if (reason := own or of_batch))
        if not of_batch and (
            files := tuple(file for file in batch.files if why.get(file.name) == "")
        ):
            going.append(replace(batch, files=files))
    return RetirementPlan(
        action=landing.after_load, batches=tuple(going), kept=dict(sorted(kept.items()))
    )


def _why_all_kept(
    batch: Batch,
    landing: Landing,
    arrivals: Arrivals,
    arrival: Arrival | None,
    quarantined: Container[int],
    now_ms: int,
) -> str:
    """Why every file of a batch stays; `arrival` is the first known one of it or a later batch, which was committed no earlier."""
    is_told = arrivals.reaches(batch.number)
    since = arrival.version if arrival is not None and is_told else 0
    if arrivals.replaced_version is not None and arrivals.replaced_version >= since:
        return "somebody restored or replaced the table since: their rows may be gone"
    if not is_told and arrivals.is_partial:
        return (
            "their batch is older than the commits that were read; older ones are read once a day"
        )
    # The log has forgotten a commit that is older than all that it holds.
    committed_ms = arrivals.first_ms if arrival is None else arrival.committed_ms
    if now_ms - committed_ms < landing.keep_days * DAY_MS:
        return f"loaded less than {landing.keep_days:g} days ago"
    if any(file.modified_ms > committed_ms + _CLOCKS_APART_MS for file in batch.files):
        return "they landed after the commit that is said to have loaded them: the table's log is another one"
    if not is_told and landing.after_load == "delete":
        return "the table's log no longer tells what happened since their batch: their rows may be gone"
    if _has_refused(batch, landing, arrival) and batch.number not in quarantined:
        return "lines of them were refused, and no quarantine has them"
    return ""


def _why_kept(file: LandedFile, now: LandedFile, batch: Batch, held: Collection[str]) -> str:
    is_other = (file.size_bytes, file.modified_ms) != (
        now.size_bytes,
        now.modified_ms,
    ) or not may_be_same(file.etag, now.etag)
    if not file.digest or is_other:
        return "they are not as they were loaded, or nobody knows"
    if file.loaded_records:
        return "several batches loaded their records, as they grew"
    is_held = f"{batch.prefix}{file.name}" in held
    return "they, or lines of them, are in quarantine" if is_held else ""


def _has_refused(batch: Batch, landing: Landing, arrival: Arrival | None) -> bool:
    """Whether the commit of a batch has fewer rows than the batch has records; else what its manifest tells, which older ones do not."""
    row_count = None if arrival is None or arrival.number != batch.number else arrival.row_count
    if (
        landing.changes is not None
        or batch.record_count is None
        or batch.isolated
        or row_count is None
    ):
        return bool(batch.refused_count)
    return row_count < batch.record_count


def may_take_rows(commit: Commit) -> bool:
    """Whether a commit of somebody else may have taken out rows of batches that were not meant to go, as those of a DELETE are."""
    return may_repeat_rows(
        commit if commit.added_paths else replace(commit, added_paths=commit.removed_paths)
    )
