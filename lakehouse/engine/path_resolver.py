"""Maps the URIs in Delta logs to names in the lake, following symbolic links."""

import os
from collections.abc import Iterable

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.paths import bare_uri
from lakehouse.engine.lake import Lake


class PathResolver:
    """Maps a decoded URI to the name of its object, relative to the lake.

    Each folder is resolved once. A path that only another machine, or the kernel (a bind mount),
    could resolve counts as outside the lake; `TableFiles.unplaced` covers such paths.
    """

    def __init__(self, lake: Lake) -> None:
        roots = {"": lake.settings.spark_root, **lake.elsewhere}
        self._names = {
            bare_uri(os.path.realpath(root) if root.startswith("/") else root): name
            for name, root in roots.items()
        }
        self._real_folders: dict[str, str] = {}

    def __call__(self, uri: str) -> str | None:
        """The object's name in the lake; `None` if the object seems to be outside the lake.

        For a table outside the lake's root, names begin with the table's key, as in the lake's
        store.
        """
        bare = bare_uri(uri)
        if not bare.startswith("/") or "\0" in bare:
            return self._name_of(bare)
        folder, _, last = bare.rpartition("/")
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder or "/")
        path = f"{self._real_folders[folder]}/{last}"
        return self._name_of(os.path.realpath(path) if os.path.islink(path) else path)

    def _name_of(self, address: str) -> str | None:
        """The name relative to the deepest known root, because roots may be nested."""
        bare = root = bare_uri(address)
        while root not in self._names:
            root, slash, _ = root.rpartition("/")
            if not slash:
                return None
        below = bare[len(root) + 1 :]
        return "/".join(part for part in (self._names[root], below) if part) or None


def landing_prefixes(lake: Lake, declared: Iterable[Table]) -> tuple[str, ...]:
    """The landing prefixes of declared tables, both as declared and with resolved links."""
    resolve = PathResolver(lake)
    prefixes = {table.source.prefix for table in declared if table.source is not None}
    resolved = {
        f"{name}/"
        for prefix in prefixes
        if (name := resolve(f"{lake.settings.spark_root}/{prefix}"))
    }
    return tuple(sorted(prefixes | resolved))
