"""Undoes a rebuild that replaced rows of another writer without having read them.

A rebuild reads the rows of one version, and its overwrite replaces all rows of the newest version.
If another writer committed rows between the two, no newer version has these rows. The log shows
this, so the next rebuild or write notices it even after a crash.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from lakehouse.core.delta.commits import Commit, is_news
from lakehouse.core.errors import Broken, Transient
from lakehouse.core.ingest import derived_increments
from lakehouse.engine.compaction.verify import Fault, undo
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.lake import TableSession


def without_lost_rows(session: TableSession, version: int, mark: str) -> TableFacts:
    """The facts after a rebuild that read the rows of `version`; their history begins after it.

    `mark` is the text in the commit's metadata by which the rebuild's commit is found.

    Raises:
        Transient: the rebuild replaced unread rows of another writer, and was undone.
        Broken: the rebuild could not be undone, or the log has no commit of it.
    """
    lake = session.lake
    key = session.key
    after = lake.facts(key)
    assert after is not None
    after = replace(after, history=history_since(lake.store, after.history, version))
    if not after.history.marked(mark):
        raise Broken(
            f"rebuild of {key}: its rows were written, but no commit after version {version} is "
            f"from this rebuild. Look at the newest commits in {key}/_delta_log"
        )
    if derived_increments.lost_by_rebuild(after.history):
        sentence = _undo_rebuild(session, after)
        raise Transient(f"{sentence}; another writer committed during the rebuild. Try again")
    return after


def undo_killed(session: TableSession, tell: Callable[[str], None]) -> None:
    """Undoes an earlier rebuild that replaced unread rows and was killed before its last check.

    It cannot be undone if rows were committed after it. In this case, nothing changes, and `tell`
    names the versions that have the missing rows.
    """
    key = session.key
    facts = session.lake.facts(key)
    if facts is None:
        return
    lost_versions = derived_increments.lost_by_rebuild(facts.history)
    if not lost_versions:
        return
    *versions, rebuilt = lost_versions  # the last version is the rebuild's own
    newer = [each for each in facts.history.commits if each.version > rebuilt and is_news(each)]
    if newer:
        tell(
            f"{key}: version {rebuilt}, a rebuild, replaced the rows of "
            f"{_versions_text(versions)} without reading them. It cannot be undone, since rows "
            f"were committed after it. Add the missing rows from version {rebuilt - 1}"
        )
    else:
        tell(_undo_rebuild(session, facts))


def _undo_rebuild(session: TableSession, facts: TableFacts) -> str:
    """Restores the version before the newest rebuild, which replaced unread rows.

    Compactions after the rebuild are undone, too. Returns a sentence about the restored version.

    Raises:
        Broken: the version could not be restored, or another writer committed meanwhile.
    """
    lake = session.lake
    key = session.key
    *versions, rebuilt = derived_increments.lost_by_rebuild(facts.history)
    commits = list[Commit]()
    for each in facts.history.commits:
        is_later_compaction = each.version > rebuilt and not is_news(each)
        if each.version == rebuilt or is_later_compaction:
            commits.append(each)
    before = lake.facts(key, version=rebuilt - 1)
    assert before is not None
    reason = f"it lacks the rows of {_versions_text(versions)}"
    fault = Fault(commit=commits[0], why=reason, operation="rebuild")
    sentence = undo(lake, session.spark, before.snapshot, commits, fault)
    after = lake.facts(key)
    is_undone = after is not None and rebuilt in after.history.undone()
    # Another writer may have committed between the check and the RESTORE.
    if after is None or not is_undone or after.history.missing_after(facts.snapshot.version):
        raise Broken(
            f"{sentence}. Either restore version {rebuilt - 1} by hand, or add the missing rows"
        )
    return sentence


def _versions_text(versions: Sequence[int]) -> str:
    noun = "version" if len(versions) == 1 else "versions"
    return f"{noun} {', '.join(map(str, versions))}"
