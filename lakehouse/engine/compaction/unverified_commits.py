"""Writes and removes the note that a compaction of a table must be verified.

The note, `_lakehouse/unverified/<layer>/<name>.json`, is written before the compaction can commit.
It is removed once the rows have been compared, nothing was committed, or an error reports that the
rows cannot be compared.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import NamedTuple

from lakehouse.core.errors import Broken, LakehouseError
from lakehouse.engine.journal.records import damaged
from lakehouse.engine.lake import Lake


class Expected(NamedTuple):
    """A compaction to verify: the `mark` (a random id) in its commits, and the `version` it read.

    `version` is `None` if the note does not have it.
    """

    mark: str
    version: int | None = None


def expect_verification(
    lake: Lake, table_key: str, mark: str, *, version: int | None = None
) -> None:
    """Notes that a compaction of the table at `version` is about to commit with this `mark`."""
    lake.store.put(_name(table_key), json.dumps({"mark": mark, "version": version}).encode())


def expected(lake: Lake, table_key: str) -> Expected | None:
    """The compaction to verify, which may not have committed; `None` if there is no note.

    Raises:
        Broken: the note is damaged.
    """
    name = _name(table_key)
    try:
        document = json.loads(lake.store.read(name))
        version = document.get("version")
        if version is not None:
            version = int(version)
        return Expected(mark=str(document["mark"]), version=version)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise Broken(f"{damaged(name, error)}, or delete it") from error


@contextlib.contextmanager
def settled(lake: Lake, table_key: str, mark: str) -> Iterator[None]:
    """Removes the note of this compaction after the block, or if the block raises `Broken`.

    After any other error the note is kept, and the next compaction, archive run, restore or TTL run
    verifies the rows (`verify_left`). If the note cannot be removed, that operation verifies rows
    that were already compared. A note of another compaction is kept.
    """
    try:
        yield
    except Broken:
        _forget(lake, table_key, mark)
        raise
    _forget(lake, table_key, mark)


def _forget(lake: Lake, table_key: str, mark: str) -> None:
    # An error here must neither hide the result of the comparison nor fail a correct compaction.
    with contextlib.suppress(LakehouseError):
        note = expected(lake, table_key)
        if note is not None and note.mark == mark:
            lake.store.delete([_name(table_key)])


def _name(table_key: str) -> str:
    return f"_lakehouse/unverified/{table_key}.json"
