"""Selects the objects in a table's folder that may be deleted, while the folder is listed.

What an object is to its table (live, removed within or before the retention, an orphan) is decided
in `vacuum/inventory/plan/reconcile.py`. Files that a kept version reads are kept here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lakehouse.base.errors import Refused
from lakehouse.base.stored_objects import RECLAIMABLE, Part, StoredObject, plausible_ms
from lakehouse.base.units import HOUR_MS
from lakehouse.delta.protocol import unknown_features
from lakehouse.vacuum.inventory.plan.reconcile import ObjectClassifier
from lakehouse.vacuum.inventory.plan.table_files import Owners, table_roots
from lakehouse.vacuum.plan.facts import VacuumFacts
from lakehouse.vacuum.plan.logged_files import AddedByLog, RemovedSince

# A vacuum collects at most this many candidates. Each takes about 300 bytes of memory, so a million
# takes 300 MB.
MOST_FILES = 1_000_000
# An inventory whose times are all at least this much too early may have local times instead of UTC,
# because time zones are at least half an hour apart.
_ZONE_MS = 1_800_000
# Names that Delta or S3 rejects in a request. A single such name would make the whole vacuum fail.
# Source: Hadoop, Path(String): a colon before the first slash ends a scheme; W3C, XML 1.0, Char,
# because a DeleteObjects request is XML.
_UNSUPPORTED_NAME = re.compile(
    r"[^/]*:|.*[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A file to delete, with its name relative to the table.

    `size_bytes` is 0 if only the log names the file, and the log lacks the size. For a Hadoop
    checksum, `goes_with` is the name of the data file; for all other files, `goes_with` is empty.
    """

    name: str
    size_bytes: int
    modified_ms: int
    part: Part
    goes_with: str = ""


class Selection:
    """Collects the objects of one table that may be deleted. Objects of nested tables are kept.

    The first `MOST_FILES` objects are collected, which bounds memory; `over_limit_count` counts the
    remaining objects, which wait for the next vacuum.
    """

    def __init__(self, facts: VacuumFacts, classifier: ObjectClassifier) -> None:
        self._facts = facts
        self._classifier = classifier
        self._owners = Owners({facts.table, *facts.tables})
        self._removed_since = RemovedSince(facts, classifier.horizon_ms)
        self._added = AddedByLog(facts)
        self._collected: dict[str, Candidate] = {}
        self._checksums: dict[str, StoredObject] = {}
        self._nested: set[str] = set()  # the folders of tables that the listing itself shows
        self._lead_ms: int | None = None  # see `_compare_times`
        self.over_limit_count = 0
        self.borrowed: set[str] = set()
        self.kept: set[str] = set()  # the files that only a kept version needs
        # The files of the newest version that no listed object has shown so far.
        self.unseen: set[str] = {*facts.table_files.live, *facts.table_files.vectors}

    def take(self, objects: Iterable[StoredObject]) -> None:
        """Examines listed objects, and collects the objects that may be deleted.

        Live files of this table count as seen, even in another table's folder. All other files in
        another table's folder are kept.
        """
        lake_prefix = self._facts.lake_prefix
        folder = f"{lake_prefix}{self._facts.table}/"
        for stored in objects:
            if not stored.key.startswith(folder):
                continue
            name = stored.key.removeprefix(folder)
            part = self._classifier.part_of(name, stored)
            if part in (Part.LIVE, Part.VECTORS_LIVE):
                self.unseen.discard(name)
                self._compare_times(name, stored)
                continue
            owner = self._owners.table_of(stored.key.removeprefix(lake_prefix))
            if owner == self._facts.table:
                self._nested |= table_roots([name])
                self._take_own(name, stored, part)

    def _take_own(self, name: str, stored: StoredObject, part: Part) -> None:
        """Collects an object of the table if it may be deleted; notes some of the others."""
        if part is Part.LENT and self._facts.log_only:
            self.borrowed.add(name)
        elif part is Part.HIDDEN and name.endswith(".crc"):
            self._checksums[name] = stored
        elif not self._may_be_deleted(name, stored, part):
            return
        elif name in self._facts.kept_for_versions:
            self.kept.add(name)
        elif name not in self._collected and len(self._collected) >= MOST_FILES:
            self.over_limit_count += 1
        else:
            self._collected[name] = Candidate(
                name=name,
                size_bytes=stored.size_bytes,
                modified_ms=stored.modified_ms or 0,
                part=part,
            )

    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates, sorted by name, each followed by its Hadoop checksum.

        Files of nested tables are excluded, even if a nested table was created after the lake's
        tables were listed.
        """
        candidates: list[Candidate] = []
        for name in self._without_nested(self._collected):
            candidate = self._collected[name]
            candidates.append(candidate)
            stored = self._checksums.get(checksum_name(name))
            if stored is not None:
                candidates.append(
                    Candidate(
                        name=checksum_name(name),
                        size_bytes=stored.size_bytes,
                        modified_ms=stored.modified_ms or candidate.modified_ms,
                        part=Part.HIDDEN,
                        goes_with=name,
                    )
                )
        return tuple(candidates)

    def _without_nested(self, names: Iterable[str]) -> Iterable[str]:
        nested = Owners(self._nested)
        return (name for name in sorted(names) if not nested.table_of(name))

    def _compare_times(self, name: str, stored: StoredObject) -> None:
        """Keeps the largest difference (listed minus logged) between the times of a live file."""
        live = self._facts.table_files.live.get(name)
        if stored.modified_ms is not None and live is not None and live.written_ms is not None:
            lead_ms = stored.modified_ms - live.written_ms
            self._lead_ms = lead_ms if self._lead_ms is None else max(lead_ms, self._lead_ms)

    def refuse_local_times(self, inventory: str) -> None:
        """Refuses an inventory in which all live files are half an hour older than in the log.

        With such times, files would count as older than the retention too early.
        """
        if self._lead_ms is not None and self._lead_ms <= -_ZONE_MS:
            raise Refused(
                f"vacuum of {self._facts.table} by mode INVENTORY: in inventory {inventory}, every "
                f"live file is at least {-self._lead_ms / HOUR_MS:.1f} h older than in the log. "
                "It may have local times instead of UTC. Use a report in UTC, or mode FULL"
            )

    def _may_be_deleted(self, name: str, stored: StoredObject, part: Part) -> bool:
        """Whether the object is reclaimable, older than the horizon, and validly named.

        An object is kept if its age is unknown, if a version within the retention reads it, or if a
        commit in the log added it, and only a missing commit may have removed it.

        Raises:
            Broken: a commit added the object, none removed it, and no commit is missing.
        """
        horizon_ms = self._classifier.horizon_ms
        modified_ms = plausible_ms(stored.modified_ms, now_ms=horizon_ms)
        if part not in RECLAIMABLE or modified_ms is None or modified_ms >= horizon_ms:
            return False
        if self._removed_since.holds(name):
            return False
        has_plain_parts = {"", ".", ".."}.isdisjoint(name.split("/"))
        is_valid_name = has_plain_parts and not _UNSUPPORTED_NAME.match(name)
        return is_valid_name and not self._added.must_stay(name)


class LastCheck:
    """Re-checks the candidates of a plan against fresh facts, right before deletion.

    `horizon_ms` is the plan's horizon, and `now_ms` is the time of this check.
    """

    def __init__(self, facts: VacuumFacts, *, horizon_ms: int, now_ms: int) -> None:
        self._classifier = classifier_of(facts, now_ms=now_ms, horizon_ms=horizon_ms)
        self._removed_since = RemovedSince(facts, self._classifier.horizon_ms)
        self._kept_for_versions = facts.kept_for_versions
        is_known = not unknown_features(facts.log.snapshot.features)
        self._allows_any = facts.table_files.retention_ms is not None and is_known

    def allow(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The files that may still be deleted: none if the retention or a feature is unknown.

        A Hadoop checksum may be deleted only if its data file may.
        """
        if not self._allows_any:
            return []
        return [each for each in candidates if self._allows(each)]

    def _allows(self, candidate: Candidate) -> bool:
        name = candidate.goes_with or candidate.name
        stored = StoredObject(
            bucket="",
            key="",
            size_bytes=candidate.size_bytes,
            modified_ms=candidate.modified_ms,
        )
        is_reclaimable = self._classifier.part_of(name, stored) in RECLAIMABLE
        is_needed = name in self._kept_for_versions or self._removed_since.holds(name)
        return is_reclaimable and not is_needed


def classifier_of(facts: VacuumFacts, *, now_ms: int, horizon_ms: int | None) -> ObjectClassifier:
    """The classifier for the objects in the table's folder."""
    return ObjectClassifier(
        facts.table_files, facts.other_uses, now_ms=now_ms, horizon_ms=horizon_ms
    )


def checksum_name(name: str) -> str:
    """The name of a local file's Hadoop checksum.

    Source: Hadoop, ChecksumFileSystem.getChecksumFile.
    """
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.crc"
