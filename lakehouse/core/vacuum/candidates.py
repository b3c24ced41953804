"""The objects in a table's folder that go, told apart one by one as they are listed."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.classify import Classifier
from lakehouse.core.inventory.objects import RECLAIMABLE, Part, StoredObject, plausible_ms
from lakehouse.core.inventory.table_files import Owners, table_roots
from lakehouse.core.units import HOUR_MS
from lakehouse.core.vacuum.facts import AddedByLog, RemovedSince, VacuumFacts

# A candidate takes about 300 bytes of memory, so a million takes 300 MB.
MOST_FILES = 1_000_000
# Two zones are half an hour apart, at least.
_ZONE_MS = 1_800_000
# Names that one of the two who are asked cannot be told, and that would stop the vacuum of all others.
# Source: Hadoop, Path(String): a colon before the first slash ends a scheme; W3C, XML 1.0, Char, since DeleteObjects is XML.
_ODD = re.compile(r"[^/]*:|.*[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A file that goes: its name relative to the table, its bytes (0 where only the log is known, and does not tell), and what it is.

    `goes_with` is the file of which it is Hadoop's checksum, empty for files that go for a reason of their own.
    """

    name: str
    size_bytes: int
    modified_ms: int
    part: Part
    goes_with: str = ""


class Selection:
    """The objects of one table, those that may go kept aside; one inside a nested table's folder is not this one's.

    At most `MOST_FILES` of them are kept, so that memory is bounded whatever storage holds; `left_count` counts the others. Which ones is
    drawn anew after each vacuum: the first of a listing may be files that Delta never gives up, and no vacuum would come past them.
    """

    def __init__(self, facts: VacuumFacts, classifier: Classifier) -> None:
        self._facts, self._classifier, self._prefix = facts, classifier, facts.lake_prefix
        self._owners = Owners({facts.table_files.table, *facts.tables})
        self._late = RemovedSince(facts, classifier.horizon_ms)
        self._added = AddedByLog(facts)
        self._going: dict[str, Candidate] = {}
        self._names: list[str] = []  # of those in `_going`, each at the place that was drawn for it
        self._chance = Random(facts.last.ended_ms if facts.last else 0)
        self._odd: set[str] = set()
        self._checksums: dict[str, tuple[int, int | None]] = {}
        self._nested: set[str] = set()
        self._lead_ms: int | None = None
        self.stray_counts: Counter[str] = Counter()
        self.landed_counts: Counter[str] = Counter()
        self.left_count = 0
        self.lent: set[str] = set()
        self.unseen: set[str] = {*facts.table_files.live, *facts.table_files.vectors}

    def take(self, objects: Iterable[StoredObject]) -> None:
        """Tell these apart. What the newest version reads is there, in whatever folder; anything else of another table's folder stays."""
        table, folder = (
            self._facts.table_files.table,
            f"{self._prefix}{self._facts.table_files.table}/",
        )
        for each in objects:
            if not each.key.startswith(folder):
                continue
            name, own = each.key.removeprefix(self._prefix), each.key.removeprefix(folder)
            part = self._classifier.part_of(own, each)
            if part in (Part.LIVE, Part.VECTORS_LIVE):
                self.unseen.discard(own)
                self._compare_times(own, each)
            elif (owner := self._owners.table_of(name)) != table:
                if (
                    owner is not None
                    and owner in self._facts.strays
                    and self._may_go(own, each, part)
                ):
                    self.stray_counts[owner] += 1
            else:
                self._nested |= table_roots([own])
                self._keep_aside(own, each, part)

    def _keep_aside(self, own: str, each: StoredObject, part: Part) -> None:
        if part is Part.LANDED:
            place = self._facts.table_files.place_of(own)
            self.landed_counts[
                next(prefix for prefix in self._facts.landed if place.startswith(prefix))
            ] += 1
        elif part is Part.LENT and self._facts.log_only:
            self.lent.add(own)
        elif part is Part.HIDDEN and own.endswith(".crc"):
            self._checksums[own] = (each.size_bytes, each.modified_ms)
        elif not self._may_go(own, each, part):
            return
        elif _ODD.match(own):
            self._odd.add(own)
        else:
            self._draw(
                Candidate(
                    name=own,
                    size_bytes=each.size_bytes,
                    modified_ms=each.modified_ms or 0,
                    part=part,
                )
            )

    def _draw(self, candidate: Candidate) -> None:
        """Keep it, in place of another where there are too many: of all that came, each is kept with the same chance."""
        if len(self._going) >= MOST_FILES and candidate.name not in self._going:
            self.left_count += 1
            place = self._chance.randrange(MOST_FILES + self.left_count)
            if place >= MOST_FILES:
                return
            del self._going[self._names[place]]
            self._names[place] = candidate.name
        elif candidate.name not in self._going:
            self._names.append(candidate.name)
        self._going[candidate.name] = candidate

    def candidates(self) -> tuple[Candidate, ...]:
        """By name, each followed by Hadoop's checksum of it; nothing of a table inside that was made since the tables were counted."""
        found: list[Candidate] = []
        for name in self._own(self._going):
            each = self._going[name]
            found.append(each)
            checksum = checksum_name(name)
            if beside := self._checksums.get(checksum):
                size_bytes, modified_ms = beside
                ms = modified_ms or each.modified_ms
                found.append(
                    Candidate(
                        name=checksum,
                        size_bytes=size_bytes,
                        modified_ms=ms,
                        part=Part.HIDDEN,
                        goes_with=name,
                    )
                )
        return tuple(found)

    def odd(self) -> tuple[str, ...]:
        """The names of those that would go, if their names could be told to Delta and to S3."""
        return tuple(self._own(self._odd))

    def _own(self, names: Iterable[str]) -> Iterable[str]:
        """By name, without those of a table inside."""
        nested = Owners(self._nested)
        return (name for name in sorted(names) if not nested.table_of(name))

    def _compare_times(self, own: str, each: StoredObject) -> None:
        written = self._facts.table_files.live.get(own)
        if each.modified_ms is not None and written is not None and written.written_ms is not None:
            lead_ms = each.modified_ms - written.written_ms
            self._lead_ms = lead_ms if self._lead_ms is None else max(lead_ms, self._lead_ms)

    def refuse_local_times(self, report: str) -> None:
        """Refuses a report by which all live files are older than by the log: its times make files look past their retention."""
        if self._lead_ms is not None and self._lead_ms <= -_ZONE_MS:
            raise Refused(
                f"vacuum of {self._facts.table_files.table} by mode INVENTORY: by the report {report} every live file is older than by "
                f"the log, {-self._lead_ms / HOUR_MS:.1f} h or more: local time for UTC? accepted: a report in UTC, or mode FULL"
            )

    def _may_go(self, own: str, each: StoredObject, part: Part) -> bool:
        """Whether it is reclaimable, was modified before the horizon, and has a name that a file below the table can have.

        A file of a time that cannot be is of unknown age, and stays, as does one that a version within the retention reads, and one that
        a commit still in the log added and none removed.

        Raises:
            Broken: the log contradicts itself on the file.
        """
        horizon_ms = self._classifier.horizon_ms
        modified_ms = plausible_ms(each.modified_ms, now_ms=horizon_ms)
        if (
            part not in RECLAIMABLE
            or modified_ms is None
            or modified_ms >= horizon_ms
            or self._late.holds(own)
        ):
            return False
        return {"", ".", ".."}.isdisjoint(own.split("/")) and not self._added.must_stay(own)


def checksum_name(name: str) -> str:
    """The name under which Hadoop keeps the checksum of a local file. Source: Hadoop, ChecksumFileSystem.getChecksumFile."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.crc"
