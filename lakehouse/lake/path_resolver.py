"""Maps the URIs in Delta logs to names in the lake, following symbolic links."""

import os
from collections.abc import Iterable

from lakehouse.base.paths import bare_uri
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake


class PathResolver:
    """Maps a decoded URI to the name of its object, relative to the lake.

    Each folder is resolved once. A path counts as outside the lake if only another machine or the
    kernel (a bind mount) could resolve it. `TableFiles.unplaced` covers such paths.
    """

    def __init__(self, lake: Lake) -> None:
        self._names = dict[str, str]()
        for name, root in {"": lake.settings.spark_root, **lake.elsewhere}.items():
            real_root = os.path.realpath(root) if root.startswith("/") else root
            self._names[bare_uri(real_root)] = name
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
        if os.path.islink(path):
            path = os.path.realpath(path)
        return self._name_of(path)

    def _name_of(self, address: str) -> str | None:
        """The name relative to the deepest root above the address, because roots may be nested."""
        bare = bare_uri(address)
        root = bare
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
    names = [resolve(f"{lake.settings.spark_root}/{prefix}") for prefix in prefixes]
    resolved = {f"{name}/" for name in names if name}
    return tuple(sorted(prefixes | resolved))
