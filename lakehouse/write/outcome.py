"""The outcome of a table's write."""

from typing import TYPE_CHECKING

from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import Explained
from lakehouse.delta.snapshot import TableFacts

if TYPE_CHECKING:
    from lakehouse.land.plan.batches import SetAside


@frozen
class WriteOutcome(Explained):
    """The outcome of one write of a table. `facts` describes the table afterwards, if it exists.

    - `rows_superseded`: changes without effect: repeated or older changes, and tombstones.
    - `rows_rescued`: rows with fields in `_rescued`.
    - `code_changed_since`: the newest version with rows that earlier code of the transform
      computed; `None` if there are no such rows, or if this is unknown.
    """

    table: str
    rows_written: int = 0
    rows_quarantined: int = 0
    rows_superseded: int = 0
    rows_rescued: int = 0
    columns_added: tuple[str, ...] = ()
    files_read: int = 0
    set_aside: "tuple[SetAside, ...]" = ()
    seconds: float = 0.0
    code_changed_since: int | None = None
    facts: TableFacts | None = None
