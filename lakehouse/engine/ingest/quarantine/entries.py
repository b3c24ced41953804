"""The quarantine table of a landed table: records that are no rows, and files of which nothing was loaded, each with its reason.

**Safety properties**
- A batch's quarantine is one commit under the batch's number. If the table has that number already,
  only missing entries are added: a repeated batch adds nothing, and a table that is created again,
  perhaps by another declaration, may refuse other lines than before (`test_load.py`).
- A file that is taken out of its batch replaces its lines in one commit. Otherwise they would be
  loaded twice, alone and with the file (`test_poison_files.py`).
- A batch of which nothing is loaded is done when a commit names exactly its files: a quarantine
  older than the ledger knows the number (`test_poison_files.py`, `test_load.py`).
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from lakehouse.core.declaration.landing import is_retried
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import written_in
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.ingest.batches import Batch, SetAside
from lakehouse.core.ingest.records import Unreadable
from lakehouse.core.ingest.retirement import may_take_rows
from lakehouse.core.ingest.retried_lines import RetriedLine, csv_fields_text, decode_lines
from lakehouse.engine.delta_log import TableFacts, newest_first
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.parse_lines import quarantined_lines
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import table_at, temporary_view
from lakehouse.engine.spark.session_settings import USER_METADATA, session_confs
from lakehouse.engine.store import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BATCH = "batch"  # what each commit is told to carry, also under a number that the log knows
_SCHEMA = (
    "source_file STRING, line BIGINT, reason STRING, raw STRING, undeclared STRING, digest STRING"
)


def quarantine_key(table_key: str) -> str:
    """The key of a table's quarantine."""
    return f"quarantine/{table_key}"


def quarantine_arrived(lake: Lake, table_key: str, batch: Batch) -> bool:
    """Whether the files of a batch of which nothing is loaded are all in the quarantine."""
    facts = lake.facts(quarantine_key(table_key))
    return facts is not None and _of_files(table_key, batch).app_id in facts.snapshot.transactions


def quarantined_count(lake: Lake, table_key: str) -> int | None:
    """The lines and files in a table's quarantine; `None` if its log does not say how many."""
    facts = lake.facts(quarantine_key(table_key))
    return 0 if facts is None else facts.snapshot.row_count


def quarantined_batch(table_key: str, facts: TableFacts | None) -> int:
    """The last batch that the log of a table's quarantine tells of, 0 where it tells none."""
    return 0 if facts is None else facts.snapshot.transactions.get(_app_id(table_key), 0)


class QuarantinedBatches:
    """The batches of which the log of a table's quarantine tells, however far back; it is read when one is asked for.

    A batch that the log has forgotten counts as told. One before a commit of somebody else that may have taken lines out, as a RESTORE may,
    is not told any more.
    """

    def __init__(self, lake: Lake, table_key: str, facts: TableFacts | None) -> None:
        self._lake, self._table_key, self._facts = lake, table_key, facts

    def __contains__(self, number: object) -> bool:
        return number in self._told

    @cached_property
    def _told(self) -> set[int]:
        told, oldest = set[int](), 0
        for commit in (
            () if self._facts is None else newest_first(self._lake.store, self._facts.history)
        ):
            numbers = (
                commit.applications.get(_app_id(self._table_key)),
                written_in(commit).get(_BATCH),
            )
            told |= {number for number in numbers if isinstance(number, int)}
            oldest = commit.version
            if may_take_rows(commit):
                return told
        if not oldest:
            return told
        return told | {
            *range(1, min(told, default=quarantined_batch(self._table_key, self._facts) + 1))
        }


def quarantine(
    lake: Lake, spark: "SparkSession", table: Table, batch: Batch, lines: "DataFrame | None"
) -> None:
    """Writes those of `lines` that are no rows, and the files of the batch that a person should look at; a file has no line and no text.

    The caller holds the table's guard.
    """
    if lines is None and not batch.quarantined:
        return
    facts = lake.facts(quarantine_key(table.key))
    has_some = quarantined_batch(table.key, facts) >= batch.number
    later = (
        {name for names in batch.isolated for name in names} if has_some else set[str]()
    )  # `quarantine_isolated` puts them there
    aside = [each for each in batch.quarantined if each.name not in later]
    if lines is None and not aside:
        return
    files = spark.createDataFrame(
        [(_path(batch, each), None, each.why, None, None, None) for each in aside], _SCHEMA
    )
    found = files if lines is None else quarantined_lines(lines).unionByName(files)
    # Under a number that is known Delta would leave it out.
    transaction = (
        None
        if has_some
        else commit_rows.Transaction(app_id=_app_id(table.key), version=batch.number)
    )
    if not batch.files and not batch.isolated:
        transaction = _of_files(table.key, batch)
    if facts is not None and (has_some or not batch.files):
        found = missing_entries(spark, facts.snapshot, found)
        if (
            found.isEmpty()
            and transaction is None
            and batch.number in QuarantinedBatches(lake, table.key, facts)
        ):
            return
    told = {
        "batch": F.lit(batch.number).cast("bigint"),
        "quarantined_at": F.current_timestamp(),
        "fields": F.lit(csv_fields_text(table.landing)).cast("string"),
    }
    uri, metadata = (
        lake.settings.table_uri(quarantine_key(table.key)),
        json.dumps({_BATCH: batch.number}),
    )
    commit_rows.write_frame(
        found.withColumns(told),
        uri,
        mode="append",
        widen=True,
        transaction=transaction,
        user_metadata=metadata,
    )


def quarantine_isolated(lake: Lake, spark: "SparkSession", table_key: str, batch: Batch) -> None:
    """Writes the files that were taken out of a batch last in the place of their lines; `quarantine` of the batch was called before."""
    facts = lake.facts(quarantine_key(table_key))
    assert facts is not None
    aside = [
        (_path(batch, each), each.why)
        for each in batch.quarantined
        if each.name in batch.isolated[-1]
    ]
    statement = partial(
        statements.replace_lines,
        facts.snapshot.uri,
        batch=batch.number,
        source_files=[name for name, _ in aside],
    )
    source = spark.createDataFrame(aside, "source_file STRING, reason STRING")
    commit_rows.run_merge(spark, source, facts.snapshot, _of_files(table_key, batch), statement)


def take_out_files(
    lake: Lake, spark: "SparkSession", table_key: str, files: Sequence[str], *, upto_batch: int
) -> None:
    """Takes whole files out of a table's quarantine, of batches up to this one: they are loaded, or read again."""
    facts = lake.facts(quarantine_key(table_key))
    if facts is None:
        return
    statement = statements.delete_lines(
        facts.snapshot.uri, upto_batch=upto_batch, source_files=files, whole_files=True
    )
    with session_confs(spark, {USER_METADATA: json.dumps({"retried": len(files)})}):
        spark.sql(statement)


def take_out_landed_again(lake: Lake, spark: "SparkSession", table_key: str, batch: Batch) -> None:
    """Removes the lines from a table's quarantine that the retried files of a batch hold."""
    retried = [f"{batch.prefix}{file.name}" for file in batch.files if is_retried(file.name)]
    take_out_lines(lake, spark, table_key, lines_landed_again(lake.store, retried))


def take_out_lines(
    lake: Lake, spark: "SparkSession", table_key: str, lines: Sequence[RetriedLine]
) -> None:
    """Removes these lines from a table's quarantine; the landing area holds them."""
    if not lines or (facts := lake.facts(quarantine_key(table_key))) is None:
        return
    places = sorted({(each.source_file, each.line, each.digest) for each in lines})
    named = spark.createDataFrame(places, "source_file STRING, line BIGINT, digest STRING")
    found = table_at(spark, facts.snapshot).join(named, named.columns, "left_semi").count()
    if not found:
        return
    with (
        temporary_view(spark, named) as view,
        session_confs(spark, {USER_METADATA: json.dumps({"retried": found})}),
    ):
        spark.sql(statements.delete_landed_again(facts.snapshot.uri, view))


def lines_landed_again(store: Store, paths: Sequence[str]) -> list[RetriedLine]:
    """The lines in files of retried lines; a file that is gone, or was changed, holds none."""
    lines = list[RetriedLine]()
    for path in paths:
        with suppress(FileNotFoundError, Unreadable):
            lines += decode_lines(store.read(path))
    return lines


def missing_entries(spark: "SparkSession", snapshot: Snapshot, found: "DataFrame") -> "DataFrame":
    """The lines and files of `found` that are not in the quarantine, of whatever batch: one that stands there twice could be loaded twice.

    A file for another reason than it stands there for is another one.
    """
    there = table_at(spark, snapshot).alias("there")

    def is_same(name: str) -> "Column":
        return F.col(f"found.{name}").eqNullSafe(F.col(f"there.{name}"))

    # The text of a line is another one where the declaration is.
    is_same_entry = F.when(F.col("found.line").isNull(), is_same("reason")).otherwise(
        is_same("digest")
    )
    return found.alias("found").join(
        there, is_same("source_file") & is_same("line") & is_same_entry, "left_anti"
    )


def _of_files(table_key: str, batch: Batch) -> commit_rows.Transaction:
    """The transaction of a batch's refused files. It tells these very files: in a ledger made anew the number has others."""
    files = repr(
        [(each.name, each.size_bytes, each.modified_ms, each.digest) for each in batch.quarantined]
    )
    mark = blake2b(files.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return commit_rows.Transaction(app_id=f"{_app_id(table_key)}/{batch.number}-{mark}", version=1)


def _path(batch: Batch, file: SetAside) -> str:
    """The path of a file; bytes of its name that are no UTF-8 are escaped."""
    return f"{batch.prefix}{file.name}".encode("utf-8", "backslashreplace").decode()


def _app_id(table_key: str) -> str:
    return f"lakehouse/quarantine/{table_key}"
