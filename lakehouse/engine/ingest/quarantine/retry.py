"""Returns quarantined lines and files to the landing area, where the next load reads them.

Lines:

1. Remove lines that a file in the landing area already contains from the quarantine: an earlier
   retry stopped before step 3.
2. Write the chosen lines to one new file below `<prefix>_retried/<layer>/<name>/`.
3. Remove them from the quarantine.

Whole files:

1. Write a manifest that marks them as unread, so that the next load reads them as new files.
2. Remove them from the quarantine.

**Safety properties** (tests in `test_retry.py`)
- A line is in the landing area before it is removed from the quarantine. If a retry stops in
  between, the line is in both; the next retry, or the load of the file, removes it from the
  quarantine.
- The same lines always give the same file, and a line that a landed file contains is never written
  to a second file.
- A line whose text may be truncated is kept in the quarantine.
- Nothing is retried while a batch is unfinished, since that batch may write the same entries again.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehouse.core.declaration.landing import Landing, retried_folder
from lakehouse.core.declaration.write_modes import Append
from lakehouse.core.errors import Refused
from lakehouse.core.ingest.batches import Batch, Ledger, SetAside
from lakehouse.core.ingest.inferred import pinned_table
from lakehouse.core.ingest.outcome import QuarantineReview
from lakehouse.core.ingest.records import earlier_names
from lakehouse.core.ingest.retried_lines import (
    RetriedLine,
    csv_fields_text,
    encode_lines,
    retried_file_name,
)
from lakehouse.core.text import size_text
from lakehouse.engine.ingest.parse_lines import is_of_the_declaration
from lakehouse.engine.ingest.quarantine.entries import (
    lines_landed_again,
    take_out_files,
    take_out_lines,
)
from lakehouse.engine.ingest.quarantine.review import (
    finished_ledger,
    held_entries,
    quarantine_facts,
)
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.session_confs import READ_WHOLE, session_confs
from lakehouse.engine.store import StoredFile
from lakehouse.engine.table_lock import hold

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WHY = "_why_left"


def retry(session: TableSession, files: Sequence[str], *, dry_run: bool) -> QuarantineReview:
    """Makes the next load read the entries of these landed `files`, or all entries, again.

    Raises:
        Refused: nothing was ever quarantined, a batch is unfinished, or there are too many lines.
    """
    lake = session.lake
    spark = session.spark
    table = session.table
    guard = (
        nullcontext()
        if dry_run
        else hold(lake, spark, table.key, owner=f"retry of the quarantine of {table.key}")
    )
    with translated(), guard, session_confs(spark, READ_WHOLE):
        facts = quarantine_facts(session)
        batches = PlannedBatches(lake.store, table.key, prefix=table.landing.prefix)
        ledger = finished_ledger(session, batches)
        session = replace(session, table=pinned_table(table, ledger.columns))
        if not dry_run:
            _finish_earlier_retries(session)
            facts = quarantine_facts(session)
        held = held_entries(session, facts, files)
        lines = _retry_lines(session, held.where("line IS NOT NULL"), dry_run=dry_run)
        paths = held.where("line IS NULL").groupBy("source_file").count().collect()
        counts = {row[0]: int(row[1]) for row in paths}
        again, files_left = _files_to_read_again(session, counts, ledger)
        if again and not dry_run:
            _read_again(session, again, batches, ledger)
    return QuarantineReview(
        table=table.key,
        dry_run=dry_run,
        lines=lines.count,
        files=sum(counts[file.name] for file in again),
        landed=lines.path,
        left={**files_left, **lines.left},
    )


def _finish_earlier_retries(session: TableSession) -> None:
    """Removes lines that a file in the landing area contains from the quarantine."""
    store = session.lake.store
    table = session.table
    folder = f"{table.landing.prefix}{retried_folder(table.key)}"
    lines = lines_landed_again(store, [file.name for file in store.list(folder.rstrip("/"))])
    take_out_lines(session, lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LandedAgain:
    """How many lines the file `path` has, and how many lines are kept, by reason.

    `path` is `None` if no file was written.
    """

    path: str | None = None
    count: int
    left: dict[str, int]


def _retry_lines(session: TableSession, lines: "DataFrame", *, dry_run: bool) -> _LandedAgain:
    """Writes lines into one new landed file, and removes them from the quarantine."""
    lake = session.lake
    table = session.table
    lines = lines.withColumn(_WHY, _why_left(session))
    text_bytes = F.octet_length("raw") + F.coalesce(F.octet_length("undeclared"), F.lit(0))
    counts = lines.groupBy(_WHY).agg(F.count("*"), F.sum(text_bytes)).collect()
    left = {why: count for why, count, _ in sorted(counts, key=str) if why is not None}
    line_count, size_bytes = next(
        ((count, size_bytes) for why, count, size_bytes in counts if why is None), (0, 0)
    )
    if size_bytes > table.landing.max_file_bytes:
        raise Refused(
            f"quarantine {table.key}: {line_count} lines have {size_text(size_bytes)}, and a "
            f"landed file may have {size_text(table.landing.max_file_bytes)}. Use --file to retry "
            "fewer of them, or raise Landing.max_file_bytes"
        )
    if dry_run or not line_count:
        return _LandedAgain(count=line_count, left=left)
    names = ("source_file", "line", "digest", "batch", "raw", "undeclared", "fields")
    rows = lines.where(F.col(_WHY).isNull()).select(*names).dropDuplicates([*names[:3]]).collect()
    retried = [RetriedLine(**row.asDict()) for row in rows]
    data = encode_lines(retried)
    path = f"{table.landing.prefix}{retried_file_name(table.key, retried, data)}"
    lake.store.put(path, data)
    take_out_lines(session, retried)
    return _LandedAgain(path=path, count=line_count, left=left)


def _why_left(session: TableSession) -> "Column":
    """Why a line is kept in the quarantine; null if it can be landed again."""
    table = session.table
    if not isinstance(table.write, Append):
        return F.lit("the table is not written by Append. Use a new landed file for them")
    declared = F.lit(csv_fields_text(table.landing)).cast("string")
    other_fields = F.concat(F.lit("they were read with other fields: "), F.col("fields"))
    has_declared = _present_fields(table.landing).eqNullSafe(declared)
    return F.when(~has_declared, other_fields).when(
        ~is_of_the_declaration(F.col("reason")), F.col("reason")
    )


def _present_fields(landing: Landing) -> "Column":
    """The fields of quarantined CSV records, as `present_fields_text` gives them."""
    names = earlier_names(landing)
    if not names:
        return F.col("fields")
    present = F.create_map(*[F.lit(name) for pair in names.items() for name in pair])
    delimiter = landing.csv.delimiter
    sent = F.split("fields", re.escape(delimiter))
    return F.array_join(
        F.transform(sent, lambda name: F.coalesce(F.try_element_at(present, name), name)), delimiter
    )


def _files_to_read_again(
    session: TableSession, counts: dict[str, int], ledger: Ledger
) -> tuple[list[StoredFile], dict[str, int]]:
    """The files that can be read again, and counts of the other files' entries by reason."""
    prefix = session.table.landing.prefix
    left = Counter[str]()
    again = list[StoredFile]()
    for path, count in counts.items():
        known = ledger.seen.get(path)
        file = session.lake.store.stat(path)
        if file is None or not path.startswith(prefix):
            left[f"the file is gone from {prefix}"] += count
        elif known is None or known.is_taken:
            left["some of its rows are loaded. Use a new name, and land only new rows"] += count
        else:
            again.append(file)
    return again, dict(left)


def _read_again(
    session: TableSession, files: Sequence[StoredFile], batches: PlannedBatches, ledger: Ledger
) -> None:
    prefix = session.table.landing.prefix
    newest = 0 if ledger.newest is None else ledger.newest.number
    # No file has this time, so the next load considers each of these files new.
    unread = tuple(
        SetAside(
            name=file.name.removeprefix(prefix),
            size_bytes=file.size_bytes,
            why="a person chose to read it again",
            modified_ms=-1,
        )
        for file in files
    )
    batches.plan(Batch(number=newest + 1, files=(), set_aside=unread, prefix=prefix))
    names = [file.name for file in files]
    take_out_files(session, names, upto_batch=newest)
