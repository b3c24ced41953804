"""Which of a table's live files are not in storage."""

from collections.abc import Iterator
from urllib.parse import unquote

from lakehouse.core.delta.deletion_vectors import vector_file
from lakehouse.core.delta.paths import bare_uri, is_absolute
from lakehouse.core.delta.snapshot import Layout
from lakehouse.core.errors import Refused
from lakehouse.engine.store import Store


def missing_files(store: Store, layout: Layout) -> tuple[str, ...]:
    """Live data files and deletion vectors that storage does not have: names relative to the table, not encoded, sorted.

    The table's folder is listed once, after the layout was read: a file that a commit since then removed is still
    there until a vacuum takes it.

    Raises:
        Refused: a file lies outside the lake (a shallow clone), where this store cannot look.
    """
    stored = {file.name for file in store.list(layout.table)}
    prefix = f"{layout.table}/"
    wanted = {prefix + name: name for name in _names(layout)}
    return tuple(sorted(name for stored_name, name in wanted.items() if stored_name not in stored))


def _names(layout: Layout) -> Iterator[str]:
    for file in layout.files:
        yield _relative(unquote(file.path), layout)
    for vector in {file.deletion_vector for file in layout.files if file.deletion_vector is not None}:
        name = vector_file(vector)
        if name is not None:
            yield _relative(unquote(name) if vector.startswith("p") else name, layout)


def _relative(path: str, layout: Layout) -> str:
    """`path` relative to its table; an absolute one must lie in the table's folder."""
    if not is_absolute(path):
        return path
    bare, base = bare_uri(path), f"{bare_uri(layout.uri)}/"
    if not bare.startswith(base):
        raise Refused(f"files of {layout.table}: {path} lies outside the table's folder {layout.uri}; accepted: files inside it")
    return bare.removeprefix(base)
