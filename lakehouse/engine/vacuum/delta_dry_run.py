"""Asks Delta, by a dry run, which of the planned files it would also delete."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lakehouse.core.errors import Broken
from lakehouse.core.vacuum.candidates import Candidate
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import temporary_view
from lakehouse.engine.spark.session_confs import ADAPTIVE, WHOLE_STAGE, session_confs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# The most paths in one question, a few megabytes.
_ASKED_AT_ONCE = 50_000
_QUICKLY_PLANNED = {ADAPTIVE: "false", WHOLE_STAGE: "false"}


def confirmed_by_delta(
    spark: "SparkSession", uri: str, table: str, candidates: Sequence[Candidate]
) -> list[Candidate]:
    """The candidates that Delta would also delete. A Hadoop checksum follows its file.

    `uri` is the table's address in statements.

    Raises:
        Broken: Delta would delete none of them, or a file that it was not asked about.
    """
    own = [each for each in candidates if not each.goes_with]
    with session_confs(spark, _QUICKLY_PLANNED):
        names = _ask(spark, uri, table, own) if own else set[str]()
    if own and not names:
        raise Broken(
            f"vacuum of {table}: Delta would delete none of the {len(own)} file(s) that the plan "
            f"names by its reading of the log, like {own[0].name}. Nothing was deleted. Compare "
            f"{table}/_delta_log with lakehouse vacuum {table} --dry-run"
        )
    return [each for each in candidates if (each.goes_with or each.name) in names]


def _ask(spark: "SparkSession", uri: str, table: str, asked: Sequence[Candidate]) -> set[str]:
    location: str = spark.sql(statements.describe_detail(uri)).select("location").collect()[0][0]
    names = set[str]()
    for start in range(0, len(asked), _ASKED_AT_ONCE):
        portion = asked[start : start + _ASKED_AT_ONCE]
        of_path = {f"{location}/{each.name}": each.name for each in portion}
        with temporary_view(spark, spark.createDataFrame(_inventory([*of_path], portion))) as view:
            answer: list[str] = (
                spark.sql(statements.vacuum_dry_run(uri, view)).toArrow().column("path").to_pylist()
            )
        names |= confirmed_names(answer, of_path, location=location, table=table)
    return names


def confirmed_names(
    answer: Iterable[str], names: Mapping[str, str], *, location: str, table: str
) -> set[str]:
    """The names of the files in Delta's answer; `names` maps paths below `location` to names.

    Raises:
        Broken: the answer has another path.
    """
    false = {
        f"{location}/{folder}"
        for name in names.values()
        for folder in _false_folders(location, name)
    }
    if strangers := {*answer} - names.keys() - false:
        raise Broken(
            f"vacuum of {table}: Delta would delete {min(strangers)}, which it was not asked "
            "about. Nothing was deleted. Report this with the version of Delta"
        )
    return {names[path] for path in {*answer} - false}


def _false_folders(location: str, name: str) -> set[str]:
    """Paths that a dry run returns because Delta mistakes them for folders of a candidate.

    Delta drops as many leading parts of a name as the table's path has, even if the name does not
    begin with that path: the file `d=1/a/b/c/e/x` of the table `s3a://b/t` has the false folder
    `e`.
    Source: delta-io/delta v4.4.0, DeltaFileOperations.getAllSubDirectories, and
    VacuumCommand.includeRespectiveDirectoriesWithFilesAndSafetyCheck and getFilesFromInventory.
    """
    parts = name.split("/")[len(location.split("/")) :]
    return {"/".join(parts[:end]) for end in range(1, len(parts))}


def _inventory(paths: Sequence[str], asked: Sequence[Candidate]) -> "pa.Table":
    """The files in the form of an inventory for VACUUM.

    A path counts only if it begins with the table's `location` exactly as Delta spells it.
    Source: delta-io/delta v4.4.0, VacuumCommand.getFilesFromInventory: this order, these types, all
    nullable.
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
        [each.size_bytes for each in asked],
        [False] * len(asked),
        [each.modified_ms for each in asked],
    ]
    return pa.table(columns, schema=pa.schema(types))
