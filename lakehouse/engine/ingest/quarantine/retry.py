"""Returns quarantined lines and files to the landing area, where the next load reads them.

Lines:

1. Remove from the quarantine the lines that a file of retried lines already contains. There are
   such lines if an earlier retry stopped before step 3.
2. Write the chosen lines to one new file below `<prefix>_retried/<layer>/<name>/`.
3. Remove these lines from the quarantine.

Whole files:

1. Write a manifest that marks the files as unread, so that the next load reads them as new files.
2. Remove their entries from the quarantine.

**Safety properties** (tests in `test_retry.py`)
- A line is written to the landing area before it is removed from the quarantine. If a retry stops
  in between, the line is in both places. The next retry, or the load of the new file, then removes
  the line from the quarantine.
- The same lines always give the same file. A line in a file of retried lines that is still in the
  landing area is never written to a second such file.
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
from lakehouse.core.ingest.outcome import QuarantineReview
from lakehouse.core.ingest.records import earlier_names, with_renamed_fields
from lakehouse.core.ingest.retried_lines import (
    RetriedLine,
    csv_fields_text,
    encode_lines,
    retried_file_name,
)
from lakehouse.core.text import count_of, size_text
from lakehouse.engine.ingest.parse_lines import depends_on_declaration
from lakehouse.engine.ingest.quarantine.entries import (
    lines_landed_again,
    take_out_files,
    take_out_lines,
)
from lakehouse.engine.ingest.quarantine.review import (
    finished_ledger,
    quarantine_facts,
    selected_entries,
)
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.temporary_confs import READ_WHOLE, session_confs
from lakehouse.engine.store import StoredFile
from lakehouse.engine.table_lock import hold

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WHY = "_lakehouse_why_kept"


def retry(session: TableSession, files: Sequence[str], *, dry_run: bool) -> QuarantineReview:
    """Makes the next load read quarantined lines and files again. With `dry_run`, only counts them.

    `files` are paths of landed files; only their entries are retried. If it is empty, all are.

    Raises:
        Refused: nothing was ever quarantined, a batch is unfinished, or the lines are too large
            for one landed file.
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
        session = replace(session, table=with_renamed_fields(table))
        if not dry_run:
            _finish_earlier_retries(session)
            facts = quarantine_facts(session)  # there may be a new version
        entries = selected_entries(session, facts, files)
        lines = _retry_lines(session, entries.where("line IS NOT NULL"), dry_run=dry_run)
        paths = entries.where("line IS NULL").groupBy("source_file").count().collect()
        counts = {row[0]: int(row[1]) for row in paths}
        retried_files, kept_files = _files_to_retry(session, counts, ledger)
        if retried_files and not dry_run:
            _retry_files(session, retried_files, batches, ledger)
    return QuarantineReview(
        table=table.key,
        dry_run=dry_run,
        lines=lines.count,
        files=sum(counts[file.name] for file in retried_files),
        landed=lines.path,
        left={**kept_files, **lines.kept_counts},
    )


def _finish_earlier_retries(session: TableSession) -> None:
    """Removes from the quarantine the lines that a file of retried lines already contains."""
    store = session.lake.store
    table = session.table
    folder = f"{table.landing.prefix}{retried_folder(table.key)}"
    lines = lines_landed_again(store, [file.name for file in store.list(folder.rstrip("/"))])
    take_out_lines(session, lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LandedAgain:
    """The number of lines to retry, and the number of lines that stay in quarantine, by reason.

    `path` is the new landed file with the retried lines, or `None` if no file was written.
    """

    path: str | None = None
    count: int
    kept_counts: dict[str, int]


def _retry_lines(session: TableSession, lines: "DataFrame", *, dry_run: bool) -> _LandedAgain:
    """Writes lines into one new landed file, and removes them from the quarantine.

    Lines that must stay in the quarantine (`_why_kept`) are only counted. With `dry_run`, all lines
    are only counted.
    """
    lake = session.lake
    table = session.table
    lines = lines.withColumn(_WHY, _why_kept(session))
    text_bytes = F.octet_length("raw") + F.coalesce(F.octet_length("undeclared"), F.lit(0))
    groups = lines.groupBy(_WHY).agg(F.count("*"), F.sum(text_bytes)).collect()
    kept_counts = dict[str, int]()
    line_count = 0
    size_bytes = 0
    for why, count, group_bytes in sorted(groups, key=str):
        if why is None:
            line_count = count
            size_bytes = group_bytes
        else:
            kept_counts[why] = count
    if size_bytes > table.landing.max_file_bytes:
        raise Refused(
            f"quarantine {table.key}: the size of {count_of(line_count, 'line')} is "
            f"{size_text(size_bytes)}, and the limit for a landed file is "
            f"{size_text(table.landing.max_file_bytes)}. Use --file to retry fewer lines, or raise "
            "Landing.max_file_bytes"
        )
    if dry_run or not line_count:
        return _LandedAgain(count=line_count, kept_counts=kept_counts)
    names = ("source_file", "line", "digest", "batch", "raw", "undeclared", "fields")
    rows = lines.where(F.col(_WHY).isNull()).select(*names).dropDuplicates([*names[:3]]).collect()
    retried = [RetriedLine(**row.asDict()) for row in rows]
    data = encode_lines(retried)
    path = f"{table.landing.prefix}{retried_file_name(table.key, retried, data)}"
    lake.store.put(path, data)
    take_out_lines(session, retried)
    return _LandedAgain(path=path, count=line_count, kept_counts=kept_counts)


def _why_kept(session: TableSession) -> "Column":
    """Why a line is kept in the quarantine; null if it can be landed again."""
    table = session.table
    if not isinstance(table.write, Append):
        return F.lit("the table is not written by Append. Land these lines in a new file")
    declared = F.lit(csv_fields_text(table.landing)).cast("string")
    other_fields = F.concat(F.lit("the lines were read with other fields: "), F.col("fields"))
    has_declared = _present_fields(table.landing).eqNullSafe(declared)
    return F.when(~has_declared, other_fields).when(
        ~depends_on_declaration(F.col("reason")), F.col("reason")
    )


def _present_fields(landing: Landing) -> "Column":
    """The fields of quarantined CSV records, under the present names of renamed fields."""
    names = earlier_names(landing)
    if not names:
        return F.col("fields")
    # `create_map` takes keys and values alternately.
    present = F.create_map(*[F.lit(name) for pair in names.items() for name in pair])
    delimiter = landing.csv.delimiter
    recorded = F.split("fields", re.escape(delimiter))
    renamed = F.transform(recorded, lambda name: F.coalesce(F.try_element_at(present, name), name))
    return F.array_join(renamed, delimiter)


def _files_to_retry(
    session: TableSession, counts: dict[str, int], ledger: Ledger
) -> tuple[list[StoredFile], dict[str, int]]:
    """The files that can be read again, and the number of other files' entries, by reason.

    `counts` has the number of entries for each whole file, by its path.
    """
    prefix = session.table.landing.prefix
    kept_counts = Counter[str]()
    retried_files = list[StoredFile]()
    for path, count in counts.items():
        known = ledger.seen.get(path)
        file = session.lake.store.stat(path)
        if file is None or not path.startswith(prefix):
            kept_counts[f"the file is gone from {prefix}"] += count
        elif known is None or known.is_taken:
            why = "rows of the file are loaded. Land only the new rows, in a file with a new name"
            kept_counts[why] += count
        else:
            retried_files.append(file)
    return retried_files, dict(kept_counts)


def _retry_files(
    session: TableSession, files: Sequence[StoredFile], batches: PlannedBatches, ledger: Ledger
) -> None:
    """Plans a batch that only marks these files as unread, and removes their entries."""
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
