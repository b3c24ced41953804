"""Which of a table's live files are not in storage."""

from collections.abc import Iterator
from urllib.parse import unquote

from lakehouse.core.delta.deletion_vectors import vector_file
from lakehouse.core.delta.paths import bare_uri, is_absolute
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
    prefix = f"{snapshot.table}/"
    wanted = {prefix + name: name for name in _names(snapshot)}
    return tuple(sorted(name for stored_name, name in wanted.items() if stored_name not in stored))


def _names(snapshot: Snapshot) -> Iterator[str]:
    for file in snapshot.files:
        yield _relative(unquote(file.path), snapshot)
    for vector in {file.deletion_vector for file in snapshot.files if file.deletion_vector is not None}:
        name = vector_file(vector)
        if name is not None:
            yield _relative(unquote(name) if vector.startswith("p") else name, snapshot)


def _relative(path: str, snapshot: Snapshot) -> str:
    """`path` relative to its table; an absolute one must lie in the table's folder."""
    if not is_absolute(path):
        return path
    bare, base = bare_uri(path), f"{bare_uri(snapshot.uri)}/"
    if not bare.startswith(base):
        raise Refused(f"files of {snapshot.table}: {path} lies outside the table's folder {snapshot.uri}; accepted: files inside it")
    return bare.removeprefix(base)
