"""Which code made the rows of a derived table, according to the table's own commits.

Each commit that derives rows records the hash of the transform (`CODE`). If the table keeps rows
that other code made, it also records the newest version that holds such rows (`EARLIER_CODE`). So
the newest of these commits is enough, however long the log is. A commit that computes all rows
again records the hash alone. Commits without either record, such as compactions, are passed over.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lakehouse.core.delta.commits import CONSUME, INPUTS, Commit, written_in

# In a commit's userMetadata: the hash of the transform that made its rows.
CODE = "code"
# In a commit's userMetadata: the newest version whose rows were made by another transform.
EARLIER_CODE = "earlier_code"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCode:
    """What the newest commit that derived rows records of its code.

    `code` is `None` if it records no hash. `earlier` is the newest version with rows of other code;
    `None` if there are no such rows, or if that is unknown.
    """

    version: int
    code: str | None
    earlier: int | None


def recorded_code(commits: Iterable[Commit]) -> RecordedCode | None:
    """The newest record among a table's commits, which come newest first; `None`: unknown."""
    for commit in commits:
        written = written_in(commit)
        is_increment = any(app_id.startswith(CONSUME) for app_id in commit.applications)
        if not (is_increment or INPUTS in written or CODE in written):
            continue
        code = written.get(CODE)
        earlier = written.get(EARLIER_CODE)
        return RecordedCode(
            version=commit.version,
            code=code if isinstance(code, str) else None,
            earlier=earlier if isinstance(earlier, int) else None,
        )
    return None


def code_changed_since(recorded: RecordedCode | None, code: str | None) -> int | None:
    """The newest version with rows of other code than `code`; `None` if none are known.

    Unknown code (`None`, or recorded by a release that hashed in another way) is no change.
    """
    if recorded is None:
        return None
    if code is None or recorded.code is None or _kind(code) != _kind(recorded.code):
        return recorded.earlier
    return recorded.earlier if code == recorded.code else recorded.version


def code_record(code: str | None, earlier: int | None = None) -> dict[str, Any]:
    """The members of userMetadata for a commit whose rows `code` made.

    `earlier` is `code_changed_since` of the rows that the table keeps. A commit that computes all
    rows again leaves it out.
    """
    record = {CODE: code, EARLIER_CODE: earlier}
    return {name: value for name, value in record.items() if value is not None}


def changed_code_sentence(table_key: str, since: int) -> str:
    """Says that rows of earlier code remain since a version, and what to do."""
    return (
        f"its code has changed since version {since}, and existing rows were made by the earlier "
        f"code. Use lakehouse rebuild {table_key} to compute them again"
    )


def _kind(code: str) -> str:
    """How a hash was made: the part before its colon."""
    return code.partition(":")[0]
