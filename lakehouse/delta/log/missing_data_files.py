"""Compares the files of a table's version with storage."""

from dataclasses import dataclass
from urllib.parse import unquote

from lakehouse.base.errors import Refused
from lakehouse.base.paths import is_absolute, name_below, name_in_table, vector_path
from lakehouse.base.stored_objects import MUST_BE_RESTORED
from lakehouse.delta.snapshot import Snapshot
from lakehouse.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableFiles:
    """Live files that cannot be read: decoded names relative to the table, sorted.

    `archived` are the files whose storage class is an archive. An archived file may have been
    restored, which the listing does not show.
    """

    missing: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()


def unreadable_files(store: Store, snapshot: Snapshot) -> UnreadableFiles:
    """The live files that are missing in storage, or have an archive storage class.

    The table's folder is listed once, after the log was read. A file that a commit removes between
    the two is not missing, since it stays in storage until a vacuum after the retention.

    Raises:
        Refused: a file lies outside the table's folder, as in a shallow clone.
    """
    stored = {file.name: file.storage_class for file in store.list(snapshot.table)}
    names = sorted(live_sizes(snapshot))
    return UnreadableFiles(
        missing=tuple(name for name in names if f"{snapshot.table}/{name}" not in stored),
        archived=tuple(
            name for name in names if stored.get(f"{snapshot.table}/{name}") in MUST_BE_RESTORED
        ),
    )


def live_sizes(snapshot: Snapshot) -> dict[str, int | None]:
    """The files that a version needs: decoded names in the table's folder, with their sizes.

    The size of a deletion vector's file is unknown (`None`).

    Raises:
        Refused: a file lies outside the table's folder, as in a shallow clone.
    """
    paths = dict[str, int | None]()
    vectors = {file.deletion_vector for file in snapshot.files if file.deletion_vector is not None}
    for vector in vectors:
        path = vector_path(vector)
        if path:  # an inline deletion vector has no file
            paths[path] = None
    paths |= {file.path: file.size_bytes for file in snapshot.files}
    sizes = dict[str, int | None]()
    for path, size_bytes in paths.items():
        uri = unquote(path) if is_absolute(path) else f"{snapshot.uri}/{unquote(path)}"
        name = name_in_table(path) or name_below(uri, snapshot.uri)
        if name is None:
            raise Refused(
                f"files of {snapshot.table}: {path} lies outside the table's folder "
                f"{snapshot.uri}. Use a table whose files are all in its folder"
            )
        sizes[name] = size_bytes
    return sizes
