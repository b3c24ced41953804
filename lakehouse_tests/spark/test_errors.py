"""The cause behind an error of Spark, out of what Connect gives; the chains are those of Spark 4.2.0 and Delta 4.4.0."""

import pytest

from lakehouse.spark.errors import broken_by, causes_in, innermost_cause

FILE = "s3a://lake/bronze/t/d=1/part-00000-cc2e.c000.snappy.parquet"
WAITED = "Exception thrown in awaitResult: "
TO = "s3a://lake/bronze/t"
WRITING = f"[TASK_WRITE_FAILED] Task failed while writing rows to {TO}. SQLSTATE: 58030"


def reading(hint: str, words: str) -> str:
    return f"[FAILED_READ_FILE.{hint}] Encountered error while reading file {FILE}. {words} SQLSTATE: KD001"


# what was thrown, outermost first, each with its condition -> the condition of the innermost cause, and words of the error for a person
INVARIANT = "(org.apache.spark.sql.delta.schema.DeltaInvariantViolationException)"
NULL = "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: must.\n"
SMALL = "CHECK constraint small (id < 10) violated by row with values:"
CHECKED = "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
STATE = "The operation is not valid for the object's storage class"
ARCHIVED = f"is in invalid state, failed with: {STATE}"
UNREAD = [WAITED, WRITING, reading("NO_HINT", "")]
LOST = reading("FILE_NOT_EXIST", "File does not exist. It is possible\nYou can invalidate")
IN_LOG = "is in the table's log but not in storage"
CHAINS = {
    "a data file is missing": (
        [WAITED, WRITING, LOST, f"No such file or directory: {FILE}"],
        "FAILED_READ_FILE.FILE_NOT_EXIST",
        [IN_LOG, "lakehouse inventory report bronze/t", "RESTORE", FILE],
    ),
    "a data file is missing, told by the outermost error": (
        [reading("FILE_NOT_EXIST", "File does not exist."), f"File {FILE} does not exist"],
        "FAILED_READ_FILE.FILE_NOT_EXIST",
        [IN_LOG, FILE],
    ),
    "a data file is archived": (
        [*UNREAD, f"Object {FILE} {ARCHIVED} (Service: S3, Status Code: 403)"],
        "FAILED_READ_FILE.NO_HINT",
        ["is archived", "restore-object", "lifecycle rule", FILE],
    ),
    "older files lack a NOT NULL column": (
        [*UNREAD, "Required column is missing in data file. Col: [must have]"],
        "FAILED_READ_FILE.NO_HINT",
        ["column must have is NOT NULL", "ALTER COLUMN `must have` DROP NOT NULL", FILE],
    ),
    "a row without a value": (
        [f"{INVARIANT} {NULL}"],
        "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
        ["column must is NOT NULL", "rows of the table have no value in it"],
    ),
    "a damaged file": (
        [*UNREAD, "corrupted file: the footer index is not within the file: -54"],
        "FAILED_READ_FILE.NO_HINT",
        ["cannot be read: corrupted file: the footer index", "RESTORE", FILE],
    ),
    "a constraint": (
        [f"{INVARIANT} [{CHECKED}] {SMALL}\n - id : 12"],
        CHECKED,
        [f"Spark failed: {SMALL} - id : 12 ({CHECKED})"],
    ),
    "a library's own error": ([WAITED, "Java heap space"], "", ["Spark failed: Java heap space"]),
    "nothing but a wait": ([WAITED], "", ["Spark failed: Exception thrown in awaitResult:"]),
}


def chain(thrown: list[str]) -> tuple[str, str, str]:
    """Message, condition and trace as PySpark's client has them of these errors."""
    name, at = "org.apache.spark.SparkException", "\n\tat a.b(C.scala:1)"
    inner = "\n".join(f"Caused by: {name}: {message}{at}" for message in thrown[1:])
    trace = f"{name}{at}\n{inner}"
    condition = thrown[0].partition("[")[2].partition("]")[0] if "[" in thrown[0] else ""
    return f"{thrown[0]}\n\nJVM stacktrace:\n{trace}", condition, trace


@pytest.mark.parametrize(("thrown", "condition", "words"), CHAINS.values(), ids=CHAINS)
def test_the_innermost_cause_is_reported_with_what_to_do(
    thrown: list[str], condition: str, words: list[str]
) -> None:
    causes = causes_in(*chain(thrown))
    assert innermost_cause(causes).condition == condition
    said = str(broken_by(causes, operation="compaction of bronze/t", table_key="bronze/t"))
    assert said.startswith("compaction of bronze/t: ")
    assert [word for word in words if word not in said] == []
    assert "SQLSTATE" not in said and "stacktrace" not in said and "\n" not in said
