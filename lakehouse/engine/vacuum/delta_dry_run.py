"""Asks Delta, with a dry run of VACUUM, which of the planned files Delta would also delete."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lakehouse.core.errors import Broken
from lakehouse.core.vacuum.candidates import Candidate
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import temporary_view
from lakehouse.engine.spark.temporary_confs import ADAPTIVE, WHOLE_STAGE, session_confs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# Limits the paths in one dry run to a few megabytes.
_FILES_PER_DRY_RUN = 50_000
# For at most 50,000 rows, adaptive planning and code generation take longer than the query itself.
_QUICK_PLANNING = {ADAPTIVE: "false", WHOLE_STAGE: "false"}


def confirmed_by_spark(
    spark: "SparkSession", uri: str, table: str, candidates: Sequence[Candidate]
) -> set[str]:
    """The names of the candidates that Delta would also delete.

    `uri` is the table's address in SQL statements. `table` is the table's key, for messages.

    Raises:
        Broken: Delta would delete a file that is not a candidate.
    """
    with session_confs(spark, _QUICK_PLANNING):
        return _dry_runs(spark, uri, table, candidates)


def _dry_runs(
    spark: "SparkSession", uri: str, table: str, candidates: Sequence[Candidate]
) -> set[str]:
    location: str = spark.sql(statements.describe_detail(uri)).select("location").collect()[0][0]
    confirmed = set[str]()
    for start in range(0, len(candidates), _FILES_PER_DRY_RUN):
        batch = candidates[start : start + _FILES_PER_DRY_RUN]
        names = {f"{location}/{each.name}": each.name for each in batch}
        with temporary_view(spark, spark.createDataFrame(_inventory([*names], batch))) as view:
            answer: list[str] = (
                spark.sql(statements.vacuum_dry_run(uri, view)).toArrow().column("path").to_pylist()
            )
        confirmed |= confirmed_names(answer, names, location=location, table=table)
    return confirmed


def confirmed_names(
    answer: Iterable[str], names: Mapping[str, str], *, location: str, table: str
) -> set[str]:
    """The names of the files in Delta's answer, which contains full paths.

    `names` maps the full path of each file that Delta was asked about to its name in the table,
    which is at `location`.

    Raises:
        Broken: the answer contains a path that Delta was not asked about.
    """
    false_folders = {
        f"{location}/{folder}"
        for name in names.values()
        for folder in _false_folders(location, name)
    }
    if unexpected := {*answer} - names.keys() - false_folders:
        raise Broken(
            f"vacuum of {table}: Delta would delete {min(unexpected)}, a file that the plan does "
            "not contain. Nothing was deleted. Report this problem with the version of Delta"
        )
    return {names[path] for path in {*answer} - false_folders}


def _false_folders(location: str, name: str) -> set[str]:
    """Folders that a dry run wrongly returns for a candidate.

    To find the folders of a file, Delta drops as many leading parts of the file's name as the
    table's path has, even if the name does not begin with that path. Example: the path of the table
    `s3a://b/t` has four parts, so for the file `d=1/a/b/c/e/x` Delta returns the folder `e`.
    Source: delta-io/delta v4.4.0, DeltaFileOperations.getAllSubDirectories, and
    VacuumCommand.includeRespectiveDirectoriesWithFilesAndSafetyCheck and getFilesFromInventory.
    """
    parts = name.split("/")[len(location.split("/")) :]
    return {"/".join(parts[:end]) for end in range(1, len(parts))}


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
