"""Undoes a rebuild that replaced rows of another writer without having read them.

An overwrite replaces all rows of the newest version. Rows that were committed after the version
that the rebuild read are in no newer version then. The log shows it, so no other note is needed.
"""

from collections.abc import Callable
from dataclasses import replace

from lakehouse.core.delta.commits import is_news
from lakehouse.core.errors import Broken, Transient
from lakehouse.core.ingest import increments
from lakehouse.engine.compaction.verify import Fault, undo
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.lake import TableSession


def without_lost_rows(session: TableSession, version: int, mark: str) -> TableFacts:
    """The facts after the rebuild with this mark, which started from `version`.

    Raises:
        Transient: it replaced rows of another writer unread, and is undone.
        Broken: it could not be undone, or the log does not show it.
    """
    lake = session.lake
    key = session.key
    after = lake.facts(key)
    assert after is not None
    after = replace(after, history=history_since(lake.store, after.history, version))
    if not after.history.marked(mark):
        raise Broken(
            f"rebuild of {key}: its rows were written, but no version after {version} is this "
            f"rebuild. Look at {key}/_delta_log"
        )
    if increments.lost_by_rebuild(after.history):
        sentence = _undone(session, after)
        raise Transient(f"{sentence}; another writer was faster. Try again")
    return after


def undo_killed(session: TableSession, tell: Callable[[str], None]) -> None:
    """Undoes a rebuild that replaced rows of another writer and was killed before it saw that."""
    lake = session.lake
    key = session.key
    facts = lake.facts(key)
    if facts is not None and (lost := increments.lost_by_rebuild(facts.history)):
        *versions, rebuilt = lost
        newer = [each for each in facts.history.commits if each.version > rebuilt and is_news(each)]
        if newer:
            tell(
                f"{key}: the rows of version(s) {', '.join(map(str, versions))}, which version "
                f"{rebuilt} replaced unread, are in no newer version. Add what is missing"
            )
        else:
            tell(_undone(session, facts))


def _undone(session: TableSession, facts: TableFacts) -> str:
    """Restores the version before the newest rebuild, which replaced foreign rows unread.

    Compactions since then are undone, too.

    Raises:
        Broken: it could not be restored, or not without other rows.
    """
    lake = session.lake
    key = session.key
    *versions, rebuilt = increments.lost_by_rebuild(facts.history)
    commits = [
        each
        for each in facts.history.commits
        if each.version == rebuilt or (each.version > rebuilt and not is_news(each))
    ]
    before = lake.facts(key, version=rebuilt - 1)
    assert before is not None
    why = f"it lacks the rows of version(s) {', '.join(map(str, versions))}"
    fault = Fault(commit=commits[0], why=why, operation="rebuild")
    sentence = undo(lake, session.spark, before.snapshot, commits, fault)
    now = lake.facts(key)
    is_undone = now is not None and rebuilt in now.history.undone()
    # Another writer may have committed between the check and the RESTORE.
    if now is None or not is_undone or now.history.missing_after(facts.snapshot.version):
        raise Broken(f"{sentence}. Either restore that version by hand, or add the missing rows")
    return sentence
