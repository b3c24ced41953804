"""The facts for planning a vacuum: a table's files, its log, the inventory, earlier vacuums."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakehouse.base.stored_objects import Inventory
from lakehouse.declare.journal_records import VacuumRecord
from lakehouse.declare.vacuum import VacuumMode
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.snapshot import TableFacts
from lakehouse.vacuum.inventory.plan.reconcile import OtherUses
from lakehouse.vacuum.inventory.plan.table_files import TableFiles

# Assumed duration of one page of a listing on S3.
SECONDS_PER_PAGE = 0.15
# The number of small requests in flight: as many as the client has connections. If each request
# takes at least 10 ms, the rate stays below the 5,500 per second that S3 answers below one prefix.
ASKED_AT_ONCE = 32
# Names with a UUID that is generated for each attempt to write, so that no name is used twice.
# Source: delta-io/delta v4.4.0, DelayedCommitProtocol.getFileName, DeletionVectorStore;
# delta-rs, PartitionWriter.
_WRITTEN_ONCE = re.compile(
    r"(?:.*/)?(?:part-\d{5,}-|cdc-\d{5,}-|deletion_vector_)"
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumFacts:
    """The facts that are known before storage is listed.

    A table borrows a file if it reads the file from another table's folder, as shallow clones do.

    - `borrowed`: all borrowed files of the lake, by names relative to the lake.
    - `unplaced`: base names of files that tables read at paths that may or may not lead into the
      lake.
    - `landed`: prefixes that declared tables load from.
    - `tables`: all tables of the lake, which is at `lake_prefix` in its bucket.
    - `records`: past vacuums, oldest first.
    - `inventory_problem`: why there is no usable `inventory`.
    - `needed_since_ms`: files that were removed at this time or later are still needed.
      `needed_because` is the sentence that explains this.
    - `older_commits`: a function that returns the commits of a history, and then all older ones,
      newest first. `None` if the history in `log` has all commits.
    - `adopted`: other programs write the table, which may be outside the lake.
    - `log_only`: only files that the log names may be deleted, because others may belong to other
      programs.
    - `kept_for_versions`: files that a version in `Vacuum.keep_versions` needs, relative to the
      table.
    """

    table_files: TableFiles
    log: TableFacts
    borrowed: frozenset[str] = frozenset()
    unplaced: frozenset[str] = frozenset()
    landed: tuple[str, ...] = ()
    inventory: Inventory | None = None
    inventory_problem: str = ""
    records: tuple[VacuumRecord, ...] = ()
    needed_since_ms: int | None = None
    needed_because: str = ""
    on_s3: bool = False
    tables: frozenset[str] = frozenset()
    lake_prefix: str = ""
    older_commits: Callable[[Commits], Iterable[Commit]] | None = None
    adopted: bool = False
    log_only: bool = False
    kept_for_versions: frozenset[str] = frozenset()

    @property
    def table(self) -> str:
        """The table's key, for example `bronze/flight_events`."""
        return self.table_files.table

    @property
    def other_uses(self) -> OtherUses:
        """What other tables use in this table's folder."""
        return OtherUses(borrowed=self.borrowed, unplaced=self.unplaced, landed=self.landed)

    @property
    def last(self) -> VacuumRecord | None:
        """The newest recorded vacuum, even if it is not complete."""
        return self.records[-1] if self.records else None

    @property
    def last_complete(self) -> VacuumRecord | None:
        """The newest complete vacuum."""
        return next((each for each in reversed(self.records) if each.is_complete), None)

    @property
    def last_sweep(self) -> VacuumRecord | None:
        """The newest complete vacuum that searched storage for orphans."""
        sweeps = (each for each in reversed(self.records) if each.mode != "LITE")
        return next((each for each in sweeps if each.is_complete), None)


def written_once(name: str) -> bool:
    """Whether no writer uses the name twice, so that the file cannot have been replaced."""
    return _WRITTEN_ONCE.fullmatch(name) is not None


def folders_above(name: str) -> list[str]:
    """The folders between a table and a file in it. Each may have become a table of its own."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def folders_to_ask(facts: VacuumFacts, mode: VacuumMode, names: Iterable[str]) -> dict[str, bool]:
    """The folders above these files, and whether a HEAD request suffices to find a table there.

    A HEAD request for the first commit finds a new table, and costs a twelfth of a LIST request.
    It suffices for partition folders, of which there may be many. In all other folders, a LIST
    request searches for a log. In LITE mode, partition folders of an adopted table need a LIST
    request, too: no listing of the lake covers an adopted table, so a folder may contain an old
    table whose first commits are gone.
    """
    needs_list = mode == "LITE" and facts.adopted
    columns = () if needs_list else facts.table_files.partition_columns
    partition_starts = tuple(f"{column}=" for column in columns)
    folders = {folder for name in names for folder in folders_above(name)}
    return {
        folder: folder.rpartition("/")[2].startswith(partition_starts) for folder in sorted(folders)
    }
