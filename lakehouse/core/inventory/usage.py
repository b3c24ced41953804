"""The answer of a reconciliation: what every table's folder is made of, and what belongs to no table."""

from dataclasses import dataclass

from lakehouse.core.inventory.objects import Part

# Without a log nobody knows what a table's files should be like; three quarters of 16 MB is small for every target of the policies.
SMALL_BYTES = 12 * 1024 * 1024
PAGE_KEYS = 1_000
# Objects of the inventory that are not in the lake's folder at all.
OUTSIDE = "(outside the lake)"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageShare:
    """Objects of one part and one storage class; for what belongs to no table, `part` is `None`
    and `folder` the top of its path.

    `small_count`: where no log is read, how many of them are files of data below `SMALL_BYTES`.
    """

    part: Part | None
    storage_class: str | None
    file_count: int
    size_bytes: int
    folder: str = ""
    small_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShares:
    """One table's folder, to the byte. `version` is `None` where the log cannot be read; `problem` then says why.

    `missing`: the newest version reads them, and storage does not have them. `resized`: they are there with another size than the log has.
    `unsettled_count`: not in the report, but too new for it. `outside_count`: outside the lake, where the report does not look.
    """

    table: str
    version: int | None
    retention_ms: int | None
    shares: tuple[UsageShare, ...]
    missing: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()
    unsettled_count: int = 0
    outside_count: int = 0
    problem: str = ""

    @property
    def file_count(self) -> int:
        """All objects in the table's folder, those of tables inside it left out."""
        return sum(share.file_count for share in self.shares)

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return sum(share.size_bytes for share in self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The tables, sorted by name, and what belongs to none; all of it together is the inventory."""

    tables: tuple[TableShares, ...]
    unclaimed: tuple[UsageShare, ...]

    @property
    def file_count(self) -> int:
        """All objects of the inventory."""
        return sum(table.file_count for table in self.tables) + sum(share.file_count for share in self.unclaimed)

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return sum(table.size_bytes for table in self.tables) + sum(share.size_bytes for share in self.unclaimed)

    @property
    def list_request_count(self) -> int:
        """How many LIST requests one full listing of all tables' folders takes, at 1,000 keys each. Source: AWS, ListObjectsV2."""
        return sum(-(-table.file_count // PAGE_KEYS) for table in self.tables)
