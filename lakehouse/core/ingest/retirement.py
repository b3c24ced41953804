"""Decides which loaded files leave the landing area, and why the others stay.

**Safety properties** (tests in `test_retire.py`)
- A file is deleted only if the table's log records the batch that loaded the file, and the commit
  of this batch is older than the landing's `keep_days`.
- A file is deleted only if it is the file that was loaded: size, time and etag (if known) match the
  manifest, and the manifest has the digest.
- If a file of a batch landed over a day after the batch's commit, all files of the batch stay,
  because the log then belongs to another table that was created under the same key.
- A file stays while the file or one of its lines is in quarantine.
- A file stays if a RESTORE or overwrite by another program may have removed the file's rows.
- A file stays if one of its lines was refused and may be missing in the quarantine.
- A file stays if the log does not show all commits since the file's batch.
- A file stays if its digest, or the commit time of its batch, is unknown.
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
from lakehouse.core.text import count_of, size_text
from lakehouse.core.units import DAY_MS

# The largest expected difference between the clocks of a machine that lands files and a machine
# that commits batches.
_CLOCKS_APART_MS = DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RetirementPlan:
    """The files to delete, grouped by batch, and the number of files that stay, by reason."""

    action: str
    batches: tuple[Batch, ...] = ()
    kept: Mapping[str, int]

    @property
    def files(self) -> tuple[LandedFile, ...]:
        """The files to delete."""
        return tuple(file for batch in self.batches for file in batch.files)

    @property
    def sentence(self) -> str:
        """How many files are deleted, and why others stay."""
        total_bytes = sum(file.size_bytes for file in self.files)
        loaded = f"{count_of(len(self.files), 'loaded file')} ({size_text(total_bytes)})"
        kept = "".join(f"; {count} kept: {why}" for why, count in self.kept.items())
        if self.action != "delete":
            return f"{loaded} deleted, since after_load is {self.action}{kept}"
        verb = "is" if len(self.files) == 1 else "are"
        return f"{loaded} {verb} deleted{kept}"


class JudgedBatch(NamedTuple):
    """A batch, and the reason why each of its files in the landing area stays, by file name.

    The reasons do not depend on the table's log. If a reason is empty, the log decides.
    """

    batch: Batch
    why: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A commit that loaded a batch.

    `row_count` is `None` unless the commit is an append that records its row count.
    """

    number: int
    version: int
    committed_ms: int
    row_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """The commits that loaded a table's batches, oldest first, as far back as the log was read.

    - `newest`: the number of the last loaded batch, or 0.
    - `first_version`: the version of the oldest commit that was read; `None` if none was read.
    - `replaced_version`: the newest commit that was read and may have removed loaded rows.
    - `is_partial`: older commits exist, but were not read.
    """

    newest: int
    commits: tuple[Arrival, ...]
    first_version: int | None
    replaced_version: int | None
    is_partial: bool = False

    def records(self, number: int) -> bool:
        """Whether the table's log records that batch `number` was loaded."""
        return self.newest >= number and self.first_version is not None

    def reaches(self, number: int) -> bool:
        """Whether all commits were read, back to the commit that loaded batch `number`."""
        return self.first_version == 0 or bool(self.commits and self.commits[0].number <= number)

    def settles(self, number: int) -> bool:
        """Whether unread older commits cannot change the decision for batch `number` or later."""
        return self.replaced_version is not None or self.reaches(number)


def read_arrivals(facts: TableFacts, commits: Iterable[Commit], *, oldest: int) -> Arrivals:
    """Finds the arrivals in `commits`, which are ordered newest first.

    Reads only as many commits as batch `oldest` and later batches need.
    """
    app_id = ingest_app_id(facts.snapshot.table)
    newest = facts.snapshot.transactions.get(app_id, 0)
    arrivals = list[Arrival]()
    oldest_commit: Commit | None = None
    replaced_version: int | None = None
    for commit in commits:
        oldest_commit = commit
        number = commit.applications.get(app_id)
        if number is not None:
            is_append = commit.parameters.get("mode") == "Append"
            rows = commit.metrics.get("numOutputRows") if is_append else None
            arrivals.append(
                Arrival(
                    number=number,
                    version=commit.version,
                    committed_ms=commit.committed_ms,
                    row_count=None if rows is None else int(rows),
                )
            )
        if may_take_rows(commit):
            replaced_version = commit.version
            break  # the files of all earlier batches stay, so older commits are not needed
        if number is not None and number <= oldest:
            break
    return Arrivals(
        newest=newest,
        commits=tuple(reversed(arrivals)),
        first_version=None if oldest_commit is None else oldest_commit.version,
        replaced_version=replaced_version,
    )


def judge_files(
    batches: Iterable[Batch],
    landing: Landing,
    present: Mapping[str, LandedFile],
    *,
    held: Collection[str],
) -> list[JudgedBatch]:
    """The batches that still have a file in the landing area.

    A file counts only in the newest batch that loaded a file of its name. `present` are the files
    in the landing area, by name. `held` are the paths of files that are in quarantine, or have
    lines in it.
    """
    ours = [batch for batch in batches if batch.prefix == landing.prefix]
    last_batch = {file.name: batch.number for batch in ours for file in batch.files}
    judged = list[JudgedBatch]()
    for batch in ours:
        files = [
            file
            for file in batch.files
            if file.name in present and last_batch[file.name] == batch.number
        ]
        if files:
            why = {file.name: _why_kept(file, present[file.name], batch, held) for file in files}
            judged.append(JudgedBatch(batch, why))
    return judged


def plan_retirement(
    judged: Iterable[JudgedBatch],
    landing: Landing,
    arrivals: Arrivals | None,
    *,
    quarantined: Container[int],
    now_ms: int,
) -> RetirementPlan:
    """Plans which loaded files are deleted.

    `arrivals` is `None` if there is no table. `quarantined` are the numbers of the batches that the
    quarantine's log records.
    """
    if landing.after_load == "keep":
        return RetirementPlan(action="keep", kept={})
    kept = Counter[str]()
    to_delete = list[Batch]()
    # The greatest batch number up to each arrival: ascending, so that it can be searched.
    greatest = list[int]()
    if arrivals is not None:
        greatest = [*accumulate((each.number for each in arrivals.commits), max)]
    for batch, why in judged:
        why_all = "the table's log has no record of their batch"
        if arrivals is not None and arrivals.records(batch.number):
            index = bisect_left(greatest, batch.number)
            arrival = arrivals.commits[index] if index < len(greatest) else None
            why_all = _why_all_kept(batch, landing, arrivals, arrival, now_ms)
            if not why_all and arrival is not None and batch.number not in quarantined:
                why_all = _why_refused(batch, landing, arrival)
        reasons = [why_file or why_all for why_file in why.values()]
        kept.update(reason for reason in reasons if reason)
        files = tuple(file for file in batch.files if why.get(file.name) == "")
        if files and not why_all:
            to_delete.append(replace(batch, files=files))
    return RetirementPlan(
        action=landing.after_load, batches=tuple(to_delete), kept=dict(sorted(kept.items()))
    )


def _why_all_kept(
    batch: Batch,
    landing: Landing,
    arrivals: Arrivals,
    arrival: Arrival | None,
    now_ms: int,
) -> str:
    """Why all files of a batch stay; empty if they need not stay.

    `arrival` is the arrival of the batch, or, if that is unknown, of the first later batch, which
    was committed no earlier.
    """
    is_known = arrivals.reaches(batch.number)
    loaded_version = arrival.version if arrival is not None and is_known else 0
    if arrivals.replaced_version is not None and arrivals.replaced_version >= loaded_version:
        return "the table was restored or replaced after their load, so their rows may be gone"
    if not is_known and arrivals.is_partial:
        return (
            "their batch is older than the commits that were read; older commits are read once a"
            " day"
        )
    if arrival is None or not is_known:
        return "the table's log no longer has all commits since their load: their rows may be gone"
    if now_ms - arrival.committed_ms < landing.keep_days * DAY_MS:
        return f"loaded less than {landing.keep_days:g} days ago"
    if any(file.modified_ms > arrival.committed_ms + _CLOCKS_APART_MS for file in batch.files):
        return "they landed after the commit of their batch, so the log belongs to another table"
    return ""


def _why_kept(file: LandedFile, present: LandedFile, batch: Batch, held: Collection[str]) -> str:
    """Why a file stays, regardless of the table's log; empty if it need not stay."""
    is_same = (
        file.size_bytes == present.size_bytes
        and file.modified_ms == present.modified_ms
        and may_be_same(file.etag, present.etag)
    )
    if not file.digest or not is_same:
        return "it is unknown whether they have changed since their load"
    if file.loaded_records:
        return "they grew, and several batches loaded their records"
    is_held = f"{batch.prefix}{file.name}" in held
    return "they, or lines of them, are in quarantine" if is_held else ""


def _why_refused(batch: Batch, landing: Landing, arrival: Arrival) -> str:
    """Why the files stay if records were refused but not quarantined; empty if no record was.

    Records were refused if fewer rows than records were committed. Where these numbers cannot be
    compared (change data, `isolated` files, unknown numbers), the batch's `refused_count` decides.
    """
    row_count = arrival.row_count if arrival.number == batch.number else None
    if (
        landing.changes is not None
        or batch.record_count is None
        or batch.isolated
        or row_count is None
    ):
        has_refused = bool(batch.refused_count)
    else:
        has_refused = row_count < batch.record_count
    return "some of their lines were refused and are not in quarantine" if has_refused else ""


def may_take_rows(commit: Commit) -> bool:
    """Whether a commit may have taken loaded rows: a RESTORE or overwrite by others, or a rebuild.

    False for a DELETE, and for commits of this lake other than rebuilds that change rows.
    """
    # A commit that only removes files is judged as if it replaced them.
    if not commit.added_paths:
        commit = replace(commit, added_paths=commit.removed_paths)
    return may_repeat_rows(commit)
