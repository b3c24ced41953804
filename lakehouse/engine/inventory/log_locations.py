"""The place of each log's URI in the lake: on a disk a path may lead there through links, and by several spellings."""

import os
from collections.abc import Iterable

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.paths import bare_uri
from lakehouse.engine.lake import Lake


class Places:
    """Names places by the real folder of the lake and theirs; each folder is resolved once.

    What only another machine could resolve, or the kernel (a bind mount), is outside the lake by this: `TableFiles.unplaced` is for that.
    """

    def __init__(self, lake: Lake) -> None:
        roots = {"": lake.settings.spark_root, **lake.elsewhere}
        self._roots = {
            bare_uri(os.path.realpath(root) if root.startswith("/") else root): name
            for name, root in roots.items()
        }
        self._folders: dict[str, str] = {}

    def __call__(self, uri: str) -> str | None:
        """The name, relative to the lake, of what a decoded URI leads to; `None` outside of it, as far as this machine can tell.

        A table that lies elsewhere has its key for a name, as it has in the lake's store.
        """
        bare = bare_uri(uri)
        if not bare.startswith("/") or "\0" in bare:
            return self._below(bare)
        folder, _, last = bare.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder or "/")
        path = f"{self._folders[folder]}/{last}"
        return self._below(os.path.realpath(path) if os.path.islink(path) else path)

    def _below(self, place: str) -> str | None:
        """The name by the deepest root that holds the place: a table may lie inside another folder that is known."""
        bare = root = bare_uri(place)
        while root not in self._roots:
            root, slash, _ = root.rpartition("/")
            if not slash:
                return None
        return "/".join(part for part in (self._roots[root], bare[len(root) + 1 :]) if part) or None


def landing_places(lake: Lake, declared: Iterable[Table]) -> tuple[str, ...]:
    """The prefixes from which declared tables load, by their names, and by those of the folders to which links in them lead."""
    places = Places(lake)
    prefixes = {table.source.prefix for table in declared if table.source is not None}
    real = {
        f"{place}/"
        for prefix in prefixes
        if (place := places(f"{lake.settings.spark_root}/{prefix}"))
    }
    return tuple(sorted(prefixes | real))
