"""One lake: its settings and its store, and what lies where in it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakehouse.core.settings import Settings
from lakehouse.engine.delta_log import TableFacts, read_facts
from lakehouse.engine.store import Store, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """Settings and the store at their root; names in the store are relative to that root."""

    settings: Settings
    store: Store

    def facts(self, key: str, *, version: int | None = None) -> TableFacts | None:
        """What the log of a table says now, or said at `version`; `None` where there is no table yet."""
        return read_facts(self.store, key, uri=self.settings.table_uri(key), version=version)


def open_lake(settings: Settings, make_client: Callable[[], Any] | None = None) -> Lake:
    """The lake that the settings name; nothing is created and, on S3, nothing is asked yet. `make_client` is as for `open_store`."""
    return Lake(settings=settings, store=open_store(settings, make_client))
