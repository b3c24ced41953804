"""The files that a table's newest version names, held against storage."""

from collections.abc import Iterator
from urllib.parse import unquote

from lakehouse.core.delta.deletion_vectors import vector_path
from lakehouse.core.delta.paths import is_absolute, name_below, name_in_table
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Refused
from lakehouse.engine.store import Store


def missing_files(store: Store, snapshot: Snapshot) -> tuple[str, ...]:
    """Live data files and deletion vectors that storage does not have: names relative to the table, not encoded, sorted.

    The table's folder is listed once, after the layout was read: a file that a commit since then removed is still
    there until a vacuum takes it.

    Raises:
        Refused: a file lies outside the lake (a shallow clone), where this store cannot look.
    """
    stored = {file.name for file in store.list(snapshot.table)}
    return tuple(
        sorted(name for name in set(_names(snapshot)) if f"{snapshot.table}/{name}" not in stored)
    )


def _names(snapshot: Snapshot) -> Iterator[str]:
    vectors = {file.deletion_vector for file in snapshot.files if file.deletion_vector is not None}
    for path in (*(file.path for file in snapshot.files), *filter(None, map(vector_path, vectors))):
        uri = unquote(path) if is_absolute(path) else f"{snapshot.uri}/{unquote(path)}"
        name = name_in_table(path) or name_below(uri, snapshot.uri)
        if name is None:
            raise Refused(
                f"files of {snapshot.table}: {path} lies outside the table's folder {snapshot.uri}; accepted: files inside it"
            )
        yield name
