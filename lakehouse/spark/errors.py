"""Classifies Spark errors, finds their causes, and writes messages that say what to do.

Spark wraps an error once for each thread and task that the error passes. Over Connect, only the
outermost message reaches Python as an error, often "Exception thrown in awaitResult:". The causes
arrive as a stack trace with one "Caused by:" line for each cause.
"""

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.frozen import frozen
from lakehouse.spark.server.conf import TOKEN_VARIABLE

# Source: Spark 4.2.0, error-conditions.json
_SESSION_LOST = ("INVALID_HANDLE.", "NO_ACTIVE_SESSION", "RESPONSE_ALREADY_RECEIVED")
# A file of the table, a requested path or a version is missing.
# Source: Spark 4.2.0, error-conditions.json; Delta Lake 4.4.0, delta-error-classes.json
_MISSING = (
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "PATH_NOT_FOUND",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_NO_RECREATABLE_HISTORY_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_VERSION_NOT_FOUND",
)
_CHECKPOINT_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
# Source: Spark 4.2.0, TaskEndReason.scala, ExecutorLostFailure
_EXECUTOR_LOST = "ExecutorLostFailure"
_CONFLICT_STATE = "2D521"  # the SQL state of all of Delta's conflicts
_CAUSED_BY = re.compile(
    r"^Caused by: [\w.$]+: ((?:\[([\w.]+)\])?.*(?:\n(?!\tat |Caused by: ).*)*)", re.MULTILINE
)
# The text of a gRPC error begins with the name of a Python class. The message comes later.
_GRPC_DETAILS = re.compile(r'details = "(.+?)"\n')
# Scala's message about a failed thread ends with this, whatever the reason.
_WAITED = "awaitResult:"
# Conditions that only state where an error occurred. Source: Spark 4.2.0, error-conditions.json
_WRAPPERS = ("TASK_WRITE_FAILED", "INTERNAL_ERROR")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}")
_FILE = re.compile(r"reading file (.+?)\.(?:\s|$)")
# Messages of Spark's Parquet reader, and of Delta's check of the rows that it writes.
_REQUIRED_COLUMN = re.compile(
    r"Required column is missing in data file. Col: \[(.+?)\]"
    r"|NOT NULL constraint violated for column: (.+?)\.\s"
)
_ARCHIVED = re.compile(r"InvalidObjectState|not valid for the object's storage class")
# PySpark adds the Java class before the message, if there is no Python class for it, and the stack
# trace after the message.
_CLASS = re.compile(r"^\([\w.$]+\) ")
_TRACE = "\n\nJVM stacktrace:"
_LONGEST = 300


@frozen
class Cause:
    """One error of a chain: its error condition (may be empty) and its message."""

    condition: str
    message: str

    @property
    def is_empty(self) -> bool:
        """Whether the message only states that waiting for a thread failed."""
        return not self.message.strip() or self.message.rstrip().endswith(_WAITED)

    @property
    def line(self) -> str:
        """The message on one line, without the parts that are meant for programs."""
        text = _CLASS.sub("", self.message).removeprefix(f"[{self.condition}]")
        return " ".join(_SQLSTATE.sub("", text).split())[:_LONGEST]


@contextlib.contextmanager
def translated(table_key: str = "", *, operation: str = "") -> Iterator[None]:
    """Translates Spark errors that the block raises into errors of this program.

    A conflict with another commit, and the loss of the server, the session or stored rows, become
    `Transient`. A rejected token becomes `Refused`. With `table_key`, every other Spark error
    becomes `Broken` with its innermost cause; with only an `operation`, those whose outermost error
    has no useful message. Other errors stay unchanged.
    """
    try:
        yield
    except Exception as error:
        causes = causes_of(error)
        problem = ""
        if is_conflict(error):
            problem = "another writer changed the table first"
        elif _is_unreachable(error):
            problem = "the Spark server stopped answering in the middle of a statement"
        elif _is_session_lost(error):
            problem = "the Spark server ended this session, or was restarted"
        elif any(cause.condition == _CHECKPOINT_LOST for cause in causes):
            problem = "rows that Spark had stored for a statement were lost with their executor"
        if problem:
            raise Transient(f"{problem}: {first_line(error)}") from error
        if _grpc_code(error) == "UNAUTHENTICATED":
            raise Refused(
                f"the Spark Connect server refused the token in {TOKEN_VARIABLE}. Set the "
                "variable to the server's token"
            ) from error
        is_named = bool(table_key) or (bool(operation) and causes[0].is_empty)
        if is_named and is_of_spark(error):
            name = f"{operation} of {table_key}" if table_key else operation
            raise broken_by(causes, operation=name, table_key=table_key or "TABLE") from error
        raise


def is_conflict(error: BaseException) -> bool:
    """Whether a commit failed because it conflicts with another writer's commit."""
    if type(error).__name__ == "CommitFailedError":  # of the package deltalake
        return True
    if not is_of_spark(error):
        return False
    is_named = _condition(error).startswith("DELTA_CONCURRENT_")
    return is_named or error.getSqlState() == _CONFLICT_STATE  # type: ignore[attr-defined]


def is_missing(error: BaseException) -> bool:
    """Whether a file or a version is missing, so that a retry cannot help."""
    return any(cause.condition.startswith(_MISSING) for cause in causes_of(error))


def is_lost(error: BaseException) -> bool:
    """Whether an error, translated or not, shows that the server, or our session on it, is gone."""
    errors = (error, error.__cause__)
    return any(
        each is not None and (_is_unreachable(each) or _is_session_lost(each)) for each in errors
    )


def ended_spark(error: BaseException) -> bool:
    """Whether a statement failed because the Spark server, or an executor, has ended."""
    return is_lost(error) or _EXECUTOR_LOST in str(error)


def first_line(error: BaseException) -> str:
    """The first line of an error, or of its innermost cause if the error has no useful message."""
    causes = causes_of(error)
    if causes[0].is_empty:
        return innermost_cause(causes).line
    details = _GRPC_DETAILS.search(str(error))
    if details:
        return details[1][:_LONGEST]
    lines = str(error).splitlines()
    return (lines[0] if lines else type(error).__name__)[:_LONGEST]


def causes_of(error: BaseException) -> tuple[Cause, ...]:
    """An error and its causes on the server, outermost first."""
    # The first attribute exists over Connect, the second with a driver in this process.
    trace = getattr(error, "_stacktrace", None) or getattr(error, "_stackTrace", None) or ""
    return causes_in(str(error), _condition(error), trace)


def causes_in(message: str, condition: str, trace: str) -> tuple[Cause, ...]:
    """The errors of a chain, outermost first, from the outermost message and the stack trace."""
    inner = [
        Cause(condition=match[2] or "", message=match[1]) for match in _CAUSED_BY.finditer(trace)
    ]
    return (Cause(condition=condition, message=message.partition(_TRACE)[0]), *inner)


def innermost_cause(causes: Sequence[Cause]) -> Cause:
    """The innermost error with a specific condition, or else the innermost error with a message."""
    specific = [
        cause for cause in causes if cause.condition and not cause.condition.startswith(_WRAPPERS)
    ]
    if specific:
        return specific[-1]
    with_message = [cause for cause in causes if not cause.is_empty]
    return with_message[-1] if with_message else causes[0]


def broken_by(causes: Sequence[Cause], *, operation: str, table_key: str) -> Broken:
    """A `Broken` with the innermost cause; if it names a file or column, with what to do."""
    cause = innermost_cause(causes)
    all_messages = "\n".join(each.message for each in causes)
    file = _FILE.search(all_messages)
    column = _REQUIRED_COLUMN.search(all_messages)
    restore = (
        "put the file back from a backup or an older object version, or RESTORE the table to a"
        " version that does not need it"
    )
    if column:
        name = column[1] or column[2]
        where = f" (data file {file[1]} lacks the column)" if file else ""
        return Broken(
            f"{operation}: column {name} is NOT NULL, and rows of the table have no value in it"
            f"{where}. Either allow nulls"
            f" (ALTER TABLE … ALTER COLUMN `{name}` DROP NOT NULL), or rewrite these rows with a"
            " value"
        )
    if file is None or not cause.condition.startswith("FAILED_READ_FILE"):
        condition = f" ({cause.condition})" if cause.condition else ""
        return Broken(f"{operation}: Spark failed: {cause.line}{condition}")
    if cause.condition == "FAILED_READ_FILE.FILE_NOT_EXIST":
        return Broken(
            f"{operation}: data file {file[1]} is in the table's log but not in storage. Run"
            f" lakehouse inventory load and lakehouse inventory report {table_key} to find every"
            f" missing file. Then either {restore}"
        )
    if _ARCHIVED.search(all_messages):
        return Broken(
            f"{operation}: data file {file[1]} is archived, and its storage class does not allow a"
            " read. Restore the object (aws s3api restore-object), and end the lifecycle rule that"
            " archives files of this table"
        )
    # Even if it comes from a library without conditions.
    innermost_line = next(cause.line for cause in reversed(causes) if cause.line)
    return Broken(
        f"{operation}: data file {file[1]} cannot be read: {innermost_line}. Either {restore}"
    )


def _condition(error: BaseException) -> str:
    return (error.getCondition() or "") if is_of_spark(error) else ""  # type: ignore[attr-defined]


def is_of_spark(error: BaseException) -> bool:
    """Whether this is a PySparkException or a subclass of it. Does not import PySpark."""
    errors = sys.modules.get("pyspark.errors")
    return errors is not None and isinstance(error, errors.PySparkException)


def _is_unreachable(error: BaseException) -> bool:
    return _grpc_code(error) == "UNAVAILABLE" or type(error).__name__ == "Py4JNetworkError"


def _is_session_lost(error: BaseException) -> bool:
    is_other_server = "incorrect server side session identifier" in str(error)
    return is_other_server or _condition(error).startswith(_SESSION_LOST)


def _grpc_code(error: BaseException) -> str | None:
    if not is_of_spark(error):
        return None
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    return error.getGrpcStatusCode().name if isinstance(error, SparkConnectGrpcException) else None
