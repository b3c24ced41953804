"""What is asked again before each batch goes: the plan is older than the deletion, and others write meanwhile."""

from collections.abc import Sequence
from dataclasses import replace

from lakehouse.core.errors import Broken
from lakehouse.core.inventory import keep_books
from lakehouse.core.vacuum import Doomed, LaterFacts, VacuumPlan, written_once
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory import Places
from lakehouse.engine.lake import Lake
from lakehouse.engine.vacuum.facts import Gathered
from lakehouse.engine.vacuum.known import newer_version, read_log
from lakehouse.engine.vacuum.last_look import in_new_tables, stored, written_again

# Asking all neighbours takes a request for each table of the lake; so many batches of a thousand go in half a minute.
NEIGHBOURS_EVERY = 100


class Recheck:
    """The last look at one plan's files; what it keeps goes into `spared` with the reason."""

    def __init__(self, lake: Lake, known: Gathered, planned: VacuumPlan, spared: dict[str, str]) -> None:
        self._lake, self._planned, self._spared = lake, planned, spared
        self._facts, self._log, self._neighbours = known.facts, known.log, known.neighbours
        self._later: LaterFacts | None = None
        self._batches = 0

    def still_going(self, batch: Sequence[Doomed]) -> list[Doomed]:
        """Those of the batch that may go now; what is gone already is left out, too, and is not spared.

        The log is asked last: a file that a writer makes again after storage was asked for it, and commits, is found there.

        Raises:
            Broken: the log is gone, or was put back to an older state.
            Refused: a neighbour's log cannot be read.
        """
        store, table = self._lake.store, self._planned.table
        going = self._without(batch, in_new_tables(store, self._facts.books, batch), "a table was made in its folder since it was listed")
        # On S3 a request for each file would be as many as Delta takes, and nobody else writes a name that was made for one try.
        asked = [each for each in going if not self._facts.on_s3 or not written_once(each.name)]
        found = stored(store, table, asked)
        gone = {each.name for each in asked} - found.keys()
        again = written_again(self._planned, asked, found)
        going = self._without([each for each in going if each.name not in gone], again, "it was written again since it was listed")
        self._look_at_neighbours()
        self._look_at_log()
        return self._allowed(going)

    def _without(self, doomed: Sequence[Doomed], names: set[str], why: str) -> list[Doomed]:
        """The files but for these, each of which keeps Hadoop's checksum of it."""
        self._spared |= {each.name: why for each in doomed if each.name in names}
        return [each for each in doomed if (each.goes_with or each.name) not in names]

    def _allowed(self, going: Sequence[Doomed]) -> list[Doomed]:
        if self._later is None:
            self._later = LaterFacts(self._facts, horizon_ms=self._planned.horizon_ms, now_ms=now_ms())
        allowed = self._later.allow(going)
        names = {each.name for each in allowed}
        for each in going:
            if each.name not in names:
                is_lent = f"{self._planned.table}/{each.name}" in self._facts.lent
                self._spared[each.name] = "another table reads it" if is_lent else f"version {self._facts.books.version} needs it again"
        return allowed

    def _look_at_neighbours(self) -> None:
        if self._batches % NEIGHBOURS_EVERY == 0:
            books = self._neighbours.read_changed().values()
            lent = self._facts.lent.union(*(each.borrowed for each in books))
            unplaced = self._facts.unplaced.union(*(each.unplaced for each in books))
            self._facts, self._later = replace(self._facts, lent=lent, unplaced=unplaced), None
        self._batches += 1

    def _look_at_log(self) -> None:
        """The table's own log is read again where it has a newer version; by that the retention, too, is the one of then."""
        if newer_version(self._lake, self._log) == self._log.facts.layout.version:
            return
        table = self._planned.table
        log = read_log(self._lake, table)
        if log is None:
            raise Broken(f"vacuum of {table}: its log is gone since the vacuum began; the rest was left alone")
        layout = log.facts.layout
        books = keep_books(layout, place=Places(self._lake))
        known = {"features": layout.features, "properties": layout.properties}
        self._facts, self._later = replace(self._facts, books=books, history=log.facts.history, **known), None
        self._log = log
