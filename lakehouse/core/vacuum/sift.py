"""Which of the objects in a table's folder go, told apart one by one as they are listed."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lakehouse.core.errors import Refused
from lakehouse.core.inventory import RECLAIMABLE, Classifier, Owners, Part, StoredObject, table_roots
from lakehouse.core.vacuum.facts import VacuumFacts, removed_since

_HOUR_MS = 3_600_000
# Two zones are half an hour apart, at least.
_ZONE_MS = 1_800_000
_UNIFORM = "delta.universalFormat.enabledFormats"
# Names that one of the two who are asked cannot be told, and that would stop the vacuum of all others.
# Source: Hadoop, Path(String): a colon before the first slash ends a scheme; W3C, XML 1.0, Char, since DeleteObjects is XML.
_ODD = re.compile(r"[^/]*:|.*[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """A file that goes: its name relative to the table, its bytes (0 where only the log is known, and does not tell), and what it is.

    `goes_with` is the file of which it is Hadoop's checksum, empty for files that go for a reason of their own.
    """

    name: str
    size_bytes: int
    modified_ms: int
    part: Part
    goes_with: str = ""


class Sifted:
    """The objects of one table, those that may go kept aside; one inside a nested table's folder is not this one's."""

    def __init__(self, facts: VacuumFacts, classifier: Classifier) -> None:
        self._facts, self._classifier, self._prefix = facts, classifier, facts.lake_prefix
        self._owners = Owners({facts.books.table, *facts.tables})
        self._uniform = bool(facts.properties.get(_UNIFORM))
        self._late = removed_since(facts, classifier.horizon_ms)
        self._going: dict[str, Doomed] = {}
        self._odd: set[str] = set()
        self._hidden: dict[str, StoredObject] = {}
        self._nested: set[str] = set()
        self._lead_ms: int | None = None
        self.seen: set[str] = set()

    def take(self, objects: Iterable[StoredObject]) -> None:
        """Tell these apart."""
        table, horizon_ms = self._facts.books.table, self._classifier.horizon_ms
        folder = f"{self._prefix}{table}/"
        for each in objects:
            name = each.key.removeprefix(self._prefix)
            if not each.key.startswith(folder) or self._owners.table_of(name) != table:
                continue
            own, part = self._classifier.own_name(name), self._classifier.part_of(name, each)
            if part in (Part.LIVE, Part.VECTORS_LIVE):
                self.seen.add(own)
                self._compare_times(own, each)
                continue
            self._nested |= table_roots([own])
            if part is Part.HIDDEN:
                self._hidden[own] = each
            elif part not in RECLAIMABLE or own in self._late or not self._is_a_file(own):
                continue
            elif each.modified_ms is not None and each.modified_ms < horizon_ms:
                if _ODD.match(own):
                    self._odd.add(own)
                    continue
                self._going[own] = Doomed(name=own, size_bytes=each.size_bytes, modified_ms=each.modified_ms, part=part)

    def doomed(self) -> tuple[Doomed, ...]:
        """By name, each followed by Hadoop's checksum of it; nothing of a table inside that was made since the tables were counted."""
        found: list[Doomed] = []
        for name in self._own(self._going):
            each = self._going[name]
            found.append(each)
            checksum = checksum_name(name)
            if beside := self._hidden.get(checksum):
                ms = beside.modified_ms or each.modified_ms
                found.append(Doomed(name=checksum, size_bytes=beside.size_bytes, modified_ms=ms, part=Part.HIDDEN, goes_with=name))
        return tuple(found)

    def odd(self) -> tuple[str, ...]:
        """The names of those that would go, if their names could be told to Delta and to S3."""
        return tuple(self._own(self._odd))

    def _own(self, names: Iterable[str]) -> Iterable[str]:
        """By name, without those of a table inside."""
        nested = Owners(self._nested)
        return (name for name in sorted(names) if not nested.table_of(name))

    def _compare_times(self, own: str, each: StoredObject) -> None:
        written = self._facts.books.live.get(own)
        if each.modified_ms is not None and written is not None and written.written_ms is not None:
            lead_ms = each.modified_ms - written.written_ms
            self._lead_ms = lead_ms if self._lead_ms is None else max(lead_ms, self._lead_ms)

    def refuse_local_times(self, report: str) -> None:
        """Nothing, if at least one live file is as young by the report as by the log; earlier times make files look past their retention.

        Raises:
            Refused: all of them are earlier, by what two zones differ at least.
        """
        if self._lead_ms is not None and self._lead_ms <= -_ZONE_MS:
            raise Refused(
                f"vacuum of {self._facts.books.table} by mode INVENTORY: by the report {report} every live file is older than by the log, "
                f"{-self._lead_ms / _HOUR_MS:.1f} h or more: local time for UTC? accepted: a report in UTC, or mode FULL"
            )

    def _is_a_file(self, own: str) -> bool:
        """A name that a file below the table can have; what UniForm writes for other readers is left alone."""
        return {"", ".", ".."}.isdisjoint(own.split("/")) and not (self._uniform and own.startswith("metadata/"))


def checksum_name(name: str) -> str:
    """Where Hadoop keeps the checksum of a local file. Source: Hadoop, ChecksumFileSystem.getChecksumFile."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.crc"
