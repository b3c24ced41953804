"""Where the URIs of logs lie in the lake: on a disk a path may lead there through links, and by several spellings."""

import os
from collections.abc import Iterable

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.paths import bare_uri, name_below
from lakehouse.engine.lake import Lake


class Places:
    """Names places by the real folder of the lake and theirs; each folder is resolved once.

    What only another machine could resolve, or the kernel (a bind mount), is outside the lake by this: `TableFiles.unplaced` is for that.
    """

    def __init__(self, lake: Lake) -> None:
        self._root, self._on_disk = lake.settings.spark_root, not lake.settings.on_s3
        self._real_root = os.path.realpath(self._root) if self._on_disk else self._root
        self._folders: dict[str, str] = {}

    def __call__(self, uri: str) -> str | None:
        """The name, relative to the lake, of what a decoded URI leads to; `None` outside of it, as far as this machine can tell."""
        bare = bare_uri(uri)
        if not self._on_disk or not bare.startswith("/") or "\0" in bare:
            return name_below(bare, self._root)
        folder, _, last = bare.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder or "/")
        path = f"{self._folders[folder]}/{last}"
        return name_below(os.path.realpath(path) if os.path.islink(path) else path, self._real_root)


def landing_places(lake: Lake, declared: Iterable[Table]) -> tuple[str, ...]:
    """The prefixes from which declared tables load, by their names, and by those of the folders to which links in them lead."""
    places = Places(lake)
    prefixes = {table.source.prefix for table in declared if table.source is not None}
    real = {f"{place}/" for prefix in prefixes if (place := places(f"{lake.settings.spark_root}/{prefix}"))}
    return tuple(sorted(prefixes | real))
