"""The note of a compaction to verify: `_lakehouse/unverified/<layer>/<name>.json`, of one that may have committed; gone once compared."""

import contextlib
import json
from collections.abc import Iterator
from typing import NamedTuple

from lakehouse.core.errors import Broken, LakehouseError
from lakehouse.engine.journal.records import damaged
from lakehouse.engine.lake import Lake


class Expected(NamedTuple):
    """A compaction to be verified: the `mark` in its commits, and the `version` that it found (`None`: the note does not say)."""

    mark: str
    version: int | None = None


def expect_verification(
    lake: Lake, table_key: str, mark: str, *, version: int | None = None
) -> None:
    """Note that a compaction of the table at `version` is about to commit, with `mark` in its commits."""
    lake.store.put(_name(table_key), json.dumps({"mark": mark, "version": version}).encode())


def expected(lake: Lake, table_key: str) -> Expected | None:
    """The compaction that was not verified yet, and may have made no commit; `None`: there is none; `Broken`: its note is damaged."""
    name = _name(table_key)
    try:
        told = json.loads(lake.store.read(name))
        version = told.get("version")
        return Expected(mark=str(told["mark"]), version=None if version is None else int(version))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise Broken(f"{damaged(name, error)}, or delete it") from error


@contextlib.contextmanager
def settled(lake: Lake, table_key: str, mark: str) -> Iterator[None]:
    """The compaction with this mark is expected no more once the block is through, or found what is `Broken`; else it still is.

    Storage that does not answer then leaves the note where it is, and the rows are compared twice. The note of another compaction, which
    took the table meanwhile, stays.
    """
    try:
        yield
    except Broken:
        _forget(lake, table_key, mark)
        raise
    _forget(lake, table_key, mark)


def _forget(lake: Lake, table_key: str, mark: str) -> None:
    with contextlib.suppress(
        LakehouseError
    ):  # it must neither hide what was found nor fail a compaction that stands
        note = expected(lake, table_key)
        if note is not None and note.mark == mark:
            lake.store.delete([_name(table_key)])


def _name(table_key: str) -> str:
    return f"_lakehouse/unverified/{table_key}.json"
