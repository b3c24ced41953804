"""The cause behind an error of Spark, and what to do about it.

Spark wraps an error once for each thread and task that it passes. Over Connect only the outermost message reaches Python by itself, often
"Exception thrown in awaitResult:"; the chain below it comes as a stack trace, with a line "Caused by:" for each error.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.errors import Broken

_CAUSED_BY = re.compile(
    r"^Caused by: [\w.$]+: ((?:\[([\w.]+)\])?.*(?:\n(?!\tat |Caused by: ).*)*)", re.MULTILINE
)
# The end of what Scala says of a thread that it waited for, whatever went wrong there.
_WAITED = "awaitResult:"
# Conditions that only say where an error was met. Source: Spark 4.2.0, error-conditions.json
_WRAPPERS = ("TASK_WRITE_FAILED", "INTERNAL_ERROR")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}")
_FILE = re.compile(r"reading file (.+?)\.(?:\s|$)")
# Of Spark's reader of Parquet, and of Delta's check of written rows.
_REQUIRED_COLUMN = re.compile(
    r"Required column is missing in data file. Col: \[(.+?)\]"
    r"|NOT NULL constraint violated for column: (.+?)\.\s"
)
_ARCHIVED = re.compile(r"InvalidObjectState|not valid for the object's storage class")
# What PySpark puts around a message: the class of an error that it does not know, the condition, the trace.
_CLASS = re.compile(r"^\([\w.$]+\) ")
_TRACE = "\n\nJVM stacktrace:"
_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One error of a chain: its message without its trace, and its error condition, "" where it has none."""

    condition: str
    message: str

    @property
    def is_empty(self) -> bool:
        """Whether the message says no more than that a thread was waited for."""
        return not self.message.strip() or self.message.rstrip().endswith(_WAITED)

    @property
    def line(self) -> str:
        """The message on one line, without what only programs read."""
        text = _CLASS.sub("", self.message).removeprefix(f"[{self.condition}]")
        return " ".join(_SQLSTATE.sub("", text).split())[:_LONGEST]


def causes_in(message: str, condition: str, trace: str) -> tuple[Cause, ...]:
    """The errors of a chain, outermost first, out of the outermost message and the stack trace of all."""
    inner = [
        Cause(condition=match[2] or "", message=match[1]) for match in _CAUSED_BY.finditer(trace)
    ]
    return (Cause(condition=condition, message=message.partition(_TRACE)[0]), *inner)


def innermost_cause(causes: Sequence[Cause]) -> Cause:
    """The error that set off all others: the innermost one that has a condition of its own, or else the innermost that says anything."""
    named = [
        cause for cause in causes if cause.condition and not cause.condition.startswith(_WRAPPERS)
    ]
    if named:
        return named[-1]
    telling = [cause for cause in causes if not cause.is_empty]
    return telling[-1] if telling else causes[0]


def broken_by(causes: Sequence[Cause], *, asked: str, table_key: str = "TABLE") -> Broken:
    """The error for a person: what was asked for, the innermost cause, the file or column that it names, and what to do."""
    cause = innermost_cause(causes)
    everything = "\n".join(each.message for each in causes)
    file = _FILE.search(everything)
    column = _REQUIRED_COLUMN.search(everything)
    restore = (
        "put the file back from a backup or an older object version, or RESTORE the table to a"
        " version that does not need it"
    )
    if column:
        name = column[1] or column[2]
        return Broken(
            f"{asked}: column {name} is NOT NULL, and rows of the table have no value in it"
            f"{f' (data file {file[1]} lacks the column)' if file else ''}. Either allow nulls"
            f" (ALTER TABLE … ALTER COLUMN `{name}` DROP NOT NULL), or rewrite these rows with a"
            " value"
        )
    if file is None or not cause.condition.startswith("FAILED_READ_FILE"):
        condition = f" ({cause.condition})" if cause.condition else ""
        return Broken(f"{asked}: Spark failed: {cause.line}{condition}")
    if cause.condition == "FAILED_READ_FILE.FILE_NOT_EXIST":
        return Broken(
            f"{asked}: data file {file[1]} is in the table's log and not in storage. Run lakehouse"
            f" inventory scan and lakehouse inventory report {table_key} to find every missing"
            f" file. Then either {restore}"
        )
    if _ARCHIVED.search(everything):
        return Broken(
            f"{asked}: data file {file[1]} is archived, and its storage class does not allow a"
            " read. Restore the object (aws s3api restore-object), and end the lifecycle rule that"
            " archives files of this table"
        )
    return Broken(
        f"{asked}: data file {file[1]} cannot be read: {_innermost_line(causes)}. Either {restore}"
    )


def _innermost_line(causes: Sequence[Cause]) -> str:
    """The words of the last error of the chain, be it of a library without error conditions."""
    return next(cause.line for cause in reversed(causes) if cause.line)
