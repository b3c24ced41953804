"""A temporary lake with its own Spark Connect server, and its tables."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lakehouse import Append, Landing, Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.spark.server import server
from lakehouse.spark.session import connect
from lakehouse_tests.conftest import own_settings


@contextmanager
def own_lake(**values: str) -> Iterator[tuple[Lake, Any]]:
    """A lake and a Spark session; `values` are more environment variables."""
    with tempfile.TemporaryDirectory() as folder:
        settings = own_settings(Path(folder, "home"), **values)
        with server.supervised(settings):
            spark = connect(settings)
            yield open_lake(settings), spark
            spark.stop()


def lake_below(lake: Lake, name: str) -> Lake:
    """Another lake on the same server, in a folder of the first one."""
    return open_lake(replace(lake.settings, root=f"{lake.settings.root}/{name}"))


def landed_table(key: str, schema: str = "id BIGINT", **words: Any) -> Table:
    """A table whose files land below its own name; `words` are arguments of `Table`."""
    source = Landing(prefix=f"landing/{key.partition('/')[2]}/", format="json", schema=schema)
    return Table(key=key, source=source, **{"write": Append(), **words})
