"""Asks a second reader of the log, deltalake or Delta on Spark, to confirm the planned deletions.

1. deltalake reads the table's log and returns the files of the newest version. Its dry run of
   VACUUM lists removed files. The dry run is made twice, without a retention and with the table's
   retention. The difference is the removed files that the retention keeps.
2. If deltalake cannot answer, Delta on Spark is asked instead, by a dry run of VACUUM. deltalake
   cannot answer if it cannot read the table's newest version, if it omits a file that the table
   needs according to our own reading of the log, if the log has absolute paths, or if the plan has
   files that may be deletion vectors.

**Safety properties** (tests in `test_second_opinion.py`)
- A file that deltalake keeps is not confirmed, even if our plan contains it.
- deltalake only reads the log. It does not list the storage, because it would mistake live
  deletion vectors for orphans, and it does not delete files.

Source: delta-io/delta-rs python-v1.6.6, crates/core/src/operations/vacuum.rs: `create_vacuum_plan`
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken
from lakehouse.base.paths import is_absolute, name_in_table
from lakehouse.base.text import HOUR_MS, count_of
from lakehouse.lake.deltalake_tables import open_with_deltalake, storage_errors
from lakehouse.lake.lake import Lake
from lakehouse.vacuum.inventory.plan.reconcile import is_data_file
from lakehouse.vacuum.plan.candidates import Candidate, VacuumFacts

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession


_VECTORS = "deletionVectors"


def confirmed_by_delta(
    lake: Lake,
    open_spark: "Callable[[], SparkSession]",
    facts: VacuumFacts,
    candidates: Sequence[Candidate],
) -> list[Candidate]:
    """The candidates that the second reader would also delete.

    Raises:
        Broken: the second reader would delete no candidate, or a file that is not a candidate.
        Transient: the storage does not answer.
    """
    if not candidates:
        return []
    kept_names = kept_by_deltalake(lake, facts, candidates)
    if kept_names is None:
        uri = lake.table_uri(facts.table)
        confirmed = confirmed_by_spark(open_spark(), uri, facts.table, candidates)
    else:
        confirmed = {each.name for each in candidates} - kept_names
    if not confirmed:
        raise Broken(
            f"vacuum of {facts.table}: Delta would keep the whole plan "
            f"({count_of(len(candidates), 'file')}, for example {candidates[0].name}). Nothing was "
            f"deleted. Run lakehouse vacuum {facts.table} --dry-run, and compare its files with "
            f"{facts.table}/_delta_log"
        )
    return [each for each in candidates if each.name in confirmed]


def kept_by_deltalake(
    lake: Lake, facts: VacuumFacts, candidates: Iterable[Candidate]
) -> set[str] | None:
    """The files that the table still needs according to deltalake; `None` if it cannot answer.

    These are the files of the newest version, and the removed files within the retention.

    Raises:
        Transient: the storage does not answer.
    """
    from deltalake.exceptions import DeltaError

    try:
        with storage_errors(f"vacuum of {facts.table}"):
            delta_table = open_with_deltalake(lake, facts.table)
            snapshot = facts.log.snapshot
            is_older = delta_table.version() < snapshot.version
            if is_older or delta_table.metadata().id != snapshot.table_id:
                return None
            if _may_be_vectors(delta_table, candidates):
                return None
            live: Any = delta_table.get_add_actions().column("path")
            kept_names = _recently_removed(delta_table, facts.table_files.retention_ms)
            kept_names |= {name_in_table(path) or path for path in live.to_pylist()}
    except (DeltaError, Broken):
        return None
    has_absolute_paths = any(is_absolute(name) for name in kept_names)
    if has_absolute_paths or not kept_names >= _needed(facts):
        return None
    return kept_names


def _may_be_vectors(delta_table: "DeltaTable", candidates: Iterable[Candidate]) -> bool:
    """Whether a candidate may be a deletion vector. deltalake does not name live vectors."""
    has_vectors = _VECTORS in (delta_table.protocol().reader_features or ())
    return has_vectors and not all(each.name.endswith(".parquet") for each in candidates)


def _recently_removed(delta_table: "DeltaTable", retention_ms: int | None) -> set[str]:
    """The files that were removed within the retention, according to deltalake.

    deltalake does not understand every interval in the table's properties, so a retention of whole
    hours is passed as a number. For any other retention, deltalake reads the properties. A file
    that was removed twice is listed twice, and counts as expired only if both removals are past the
    retention.
    """
    whole_hours, rest_ms = divmod(retention_ms or 0, HOUR_MS)
    expired = delta_table.vacuum(
        retention_hours=None if rest_ms else whole_hours,
        dry_run=True,
        enforce_retention_duration=False,
    )
    removed = delta_table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    return {*(Counter(removed) - Counter(expired))}


def _needed(facts: VacuumFacts) -> set[str]:
    """The files that the table needs according to our own reading of its log."""
    files = facts.table_files
    since_ms = now_ms() - (files.retention_ms or 0)
    recently_removed = (name for name, ms in files.removed.items() if (ms or 0) >= since_ms)
    return {*filter(is_data_file, chain(files.live, recently_removed))}


# Limits the paths in one dry run to a few megabytes.
_FILES_PER_DRY_RUN = 50_000


def confirmed_by_spark(
    spark: "SparkSession", uri: str, table: str, candidates: Sequence[Candidate]
) -> set[str]:
    """The names of the candidates that Delta would also delete.

    `uri` is the table's address in SQL statements. `table` is the table's key, for messages.

    Raises:
        Broken: Delta would delete a file that is not a candidate.
    """
    from lakehouse.spark import statements
    from lakehouse.spark.frames import temporary_view
    from lakehouse.spark.temporary_confs import ADAPTIVE, WHOLE_STAGE, session_confs

    # For so few rows, adaptive planning and code generation take longer than the query itself.
    quick_planning = {ADAPTIVE: "false", WHOLE_STAGE: "false"}
    location: str = spark.sql(statements.describe_detail(uri)).select("location").collect()[0][0]
    confirmed = set[str]()
    with session_confs(spark, quick_planning):
        for start in range(0, len(candidates), _FILES_PER_DRY_RUN):
            batch = candidates[start : start + _FILES_PER_DRY_RUN]
            names = {f"{location}/{each.name}": each.name for each in batch}
            with temporary_view(spark, spark.createDataFrame(_inventory([*names], batch))) as view:
                answer: list[str] = (
                    spark.sql(statements.vacuum_dry_run(uri, view))
                    .toArrow()
                    .column("path")
                    .to_pylist()
                )
            confirmed |= confirmed_names(answer, names, table=table)
    return confirmed


def confirmed_names(answer: Iterable[str], names: Mapping[str, str], *, table: str) -> set[str]:
    """The names of the files in Delta's answer, which contains full paths.

    `names` maps the full path of each file that Delta was asked about to its name in the table.
    (For a file more folders deep than the table's own path has parts, Delta also answers a folder
    that it was not asked about. The vacuum then stops.)

    Raises:
        Broken: the answer contains a path that Delta was not asked about.
    """
    confirmed = {*answer}
    if unexpected := confirmed - names.keys():
        raise Broken(
            f"vacuum of {table}: Delta would delete {min(unexpected)}, a file that the plan does "
            "not contain. Nothing was deleted. Report this problem with the version of Delta"
        )
    return {names[path] for path in confirmed}


def _inventory(paths: Sequence[str], candidates: Sequence[Candidate]) -> "pa.Table":
    """The files as an inventory for VACUUM, with Delta's column order and types, all nullable.

    `paths` must begin with the table's `location` as Delta spells it: Delta ignores other paths.
    Source: delta-io/delta v4.4.0, VacuumCommand.getFilesFromInventory
    """
    import pyarrow as pa

    types = [
        ("path", pa.string()),
        ("length", pa.int64()),
        ("isDir", pa.bool_()),
        ("modificationTime", pa.int64()),
    ]
    columns = [
        paths,
        [each.size_bytes for each in candidates],
        [False] * len(candidates),
        [each.modified_ms for each in candidates],
    ]
    return pa.table(columns, schema=pa.schema(types))
