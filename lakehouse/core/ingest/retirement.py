"""Decides which loaded files leave the landing area, and why the others stay.

**Safety properties** (tests in `test_retire.py`)
- A file goes only if the table's log records the batch that loaded it, and that batch's commit
  is older than the landing's `keep_days`.
- A file goes only if it is the one that was loaded: size, time and etag match the manifest, and the
  manifest has its digest. A file that landed after the commit of its batch stays, because the
  log then belongs to another incarnation of the table.
- A file stays while it, or a line of it, is in quarantine.
- A file stays if a RESTORE or overwrite by another program may have removed its rows, or if the
  quarantine may not have a line of it that was refused.
- A file stays if the log does not show everything that happened to the table since its batch.
- A file stays if its digest, or the commit time of its batch, is unknown.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.delta.commits import Commit, may_repeat_rows, moved_from
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.ingest.batches import Batch, LandedFile, ingest_app_id, may_be_same
from lakehouse.core.text import size_text
from lakehouse.core.units import DAY_MS

# Largest expected difference between the clocks of the landing and the committing machine.
_CLOCKS_APART_MS = DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RetirementPlan:
    """The files to remove, grouped by batch, and the number of files that stay, by reason."""

    action: str
    batches: tuple[Batch, ...] = ()
    kept: Mapping[str, int]

    @property
    def files(self) -> tuple[LandedFile, ...]:
        """The files that go."""
        return tuple(file for batch in self.batches for file in batch.files)

    @property
    def sentence(self) -> str:
        """How many files go, and why others stay."""
        verb = "are deleted" if self.action == "delete" else "stay"
        total = sum(file.size_bytes for file in self.files)
        stay = "".join(f"; {count} stay: {why}" for why, count in self.kept.items())
        return f"{len(self.files)} loaded files ({size_text(total)}) {verb}{stay}"


class JudgedBatch(NamedTuple):
    """A batch, and why each of its present files stays, whatever the table's log says.

    An empty reason means that the file may be deleted.
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

    `newest` is the last loaded batch. `first_version` is the version of the oldest commit that was
    read. `replaced_version` is the version of the newest foreign commit that may have removed
    loaded rows. With `is_partial`, older commits exist and were not read.
    """

    newest: int
    found: tuple[Arrival, ...]
    first_version: int | None
    replaced_version: int | None
    is_partial: bool = False

    def reaches(self, number: int) -> bool:
        """Whether all commits since the one that loaded batch `number` were read."""
        return self.first_version == 0 or bool(self.found and self.found[0].number <= number)

    def settles(self, number: int) -> bool:
        """Whether older commits cannot change the decision for batch `number` or later ones."""
        return self.replaced_version is not None or self.reaches(number)


def read_arrivals(facts: TableFacts, commits: Iterable[Commit], *, oldest: int) -> Arrivals:
    """Finds the arrivals in `commits` (newest first).

    Reads no more commits than needed for batch `oldest` and later ones. The commit that records a
    move of the table is not an arrival; older commits carry the earlier key.
    """
    app_id = ingest_app_id(facts.snapshot.table)
    newest = facts.snapshot.transactions.get(app_id, 0)
    arrivals = list[Arrival]()
    first: Commit | None = None
    replaced_version: int | None = None
    for commit in commits:
        first = commit
        earlier_key = moved_from(commit)
        if earlier_key is not None:
            app_id = ingest_app_id(earlier_key)
            continue
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
            break  # the files of all earlier batches stay
        if number is not None and number <= oldest:
            break
    return Arrivals(
        newest=newest,
        found=tuple(reversed(arrivals)),
        first_version=None if first is None else first.version,
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

    `present` is keyed by file name. `held` lists the paths in quarantine.
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
    """Plans which loaded files are removed.

    `arrivals` is `None` without a table. `quarantined` holds the batches that the quarantine's log
    records.
    """
    if landing.after_load == "keep":
        return RetirementPlan(action="keep", kept={})
    kept = Counter[str]()
    going = list[Batch]()
    upto = [] if arrivals is None else [*accumulate((each.number for each in arrivals.found), max)]
    for batch, why in judged:
        of_batch = "the table's log has no record of their batch"
        if (
            not all(why.values())
            and arrivals is not None
            and arrivals.newest >= batch.number
            and arrivals.first_version is not None
        ):
            place = bisect_left(upto, batch.number)
            arrival = arrivals.found[place] if place < len(upto) else None
            of_batch = _why_all_kept(batch, landing, arrivals, arrival, now_ms)
            if not of_batch and arrival is not None and batch.number not in quarantined:
                of_batch = _why_refused(batch, landing, arrival)
        kept.update(reason for own in why.values() if (reason := own or of_batch))
        files = tuple(file for file in batch.files if why.get(file.name) == "")
        if files and not of_batch:
            going.append(replace(batch, files=files))
    return RetirementPlan(
        action=landing.after_load, batches=tuple(going), kept=dict(sorted(kept.items()))
    )


def _why_all_kept(
    batch: Batch,
    landing: Landing,
    arrivals: Arrivals,
    arrival: Arrival | None,
    now_ms: int,
) -> str:
    """Why all files of a batch stay, or an empty text.

    `arrival` is the arrival of the batch or, if unknown, of the first later batch, which was
    committed no earlier.
    """
    is_known = arrivals.reaches(batch.number)
    since = arrival.version if arrival is not None and is_known else 0
    if arrivals.replaced_version is not None and arrivals.replaced_version >= since:
        return "the table was restored or replaced since: their rows may be gone"
    if not is_known and arrivals.is_partial:
        return (
            "their batch is older than the commits that were read; older ones are read once a day"
        )
    if arrival is None or not is_known:
        return "the table's log no longer shows what happened since: their rows may be gone"
    if now_ms - arrival.committed_ms < landing.keep_days * DAY_MS:
        return f"loaded less than {landing.keep_days:g} days ago"
    if any(file.modified_ms > arrival.committed_ms + _CLOCKS_APART_MS for file in batch.files):
        return "they landed after the commit that loaded them, so the log is of another table"
    return ""


def _why_kept(file: LandedFile, now: LandedFile, batch: Batch, held: Collection[str]) -> str:
    is_same = (
        file.size_bytes == now.size_bytes
        and file.modified_ms == now.modified_ms
        and may_be_same(file.etag, now.etag)
    )
    if not file.digest or not is_same:
        return "it is unknown whether they have changed since their load"
    if file.loaded_records:
        return "several batches loaded their records as they grew"
    is_held = f"{batch.prefix}{file.name}" in held
    return "they, or lines of them, are in quarantine" if is_held else ""


def _why_refused(batch: Batch, landing: Landing, arrival: Arrival) -> str:
    """Why the files stay if records were refused but not quarantined; empty if none were refused.

    Refused records show as fewer committed rows than records, or as a count in the manifest.
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
    return "some of their lines were refused and are in no quarantine" if has_refused else ""


def may_take_rows(commit: Commit) -> bool:
    """Whether a foreign RESTORE or overwrite may have removed loaded rows; false for a DELETE."""
    return may_repeat_rows(
        commit if commit.added_paths else replace(commit, added_paths=commit.removed_paths)
    )
