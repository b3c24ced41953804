"""Which code computed the rows of a derived table, according to the table's commits.

Each commit that derives rows records the hash of the transform (`CODE`). If the table keeps rows of
other code, the commit also records the newest version with such rows (`EARLIER_CODE`). A commit
that computes all rows again records only the hash. Therefore, it is enough to find the newest
commit that derived rows. Commits that derive no rows, such as compactions, are skipped.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lakehouse.delta.commits import CONSUME, INPUTS, Commit, written_in

# In a commit's userMetadata: the hash of the transform that computed the commit's rows.
CODE = "code"
# In a commit's userMetadata: the newest version with rows of another transform.
EARLIER_CODE = "earlier_code"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCode:
    """The code record of the newest commit that derived rows.

    `version` is the commit's version. `code` is `None` if the commit records no hash. `earlier` is
    the newest version with rows of other code than `code`; `None` if there are no such rows, or if
    that is unknown.
    """

    version: int
    code: str | None
    earlier: int | None


def recorded_code(commits: Iterable[Commit]) -> RecordedCode | None:
    """The newest record in `commits` (newest first), or `None` if no commit derived rows."""
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
    """The newest version with rows of other code than `code`; `None` if no such rows are known.

    Unknown code (`None`, or hashed in another way by another release) does not count as a change.
    """
    if recorded is None:
        return None
    if code is None or recorded.code is None or _kind(code) != _kind(recorded.code):
        return recorded.earlier
    return recorded.earlier if code == recorded.code else recorded.version


def code_record(code: str | None, earlier: int | None = None) -> dict[str, Any]:
    """The members of userMetadata for a commit whose rows `code` computed.

    `earlier` is the result of `code_changed_since` for the rows that the table keeps. It is omitted
    for a commit that computes all rows again.
    """
    record = {CODE: code, EARLIER_CODE: earlier}
    return {name: value for name, value in record.items() if value is not None}


def changed_code_sentence(table_key: str, since: int) -> str:
    """States that rows of earlier code exist, and how to compute them again."""
    return (
        f"its code has changed since version {since}, and existing rows were made by the earlier "
        f"code. Use lakehouse rebuild {table_key} to compute them again"
    )


def _kind(code: str) -> str:
    """The method by which a hash was computed: the part of the hash before the colon."""
    return code.partition(":")[0]
