"""What is still to be verified: `_lakehouse/unverified/<layer>/<name>.json`, a compaction that may have committed; gone once compared."""

import contextlib
import json
from collections.abc import Iterator

from lakehouse.core.errors import Broken, LakehouseError
from lakehouse.engine.lake import Lake
from lakehouse.engine.manifest import damaged


def expect_verification(lake: Lake, table_key: str, mark: str) -> None:
    """Note that a compaction is about to commit, with `mark` in its commits."""
    lake.store.put(_name(table_key), json.dumps({"mark": mark}).encode())


def unverified(lake: Lake, table_key: str) -> str | None:
    """The mark of the compaction that was to be verified and was not, which may have made no commit; `None` if there is none.

    Raises:
        Broken: the record is damaged.
    """
    name = _name(table_key)
    try:
        return json.loads(lake.store.read(name))["mark"]
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, LookupError) as error:
        raise Broken(f"{damaged(name, error)}, or delete it") from error


@contextlib.contextmanager
def settled(lake: Lake, table_key: str) -> Iterator[None]:
    """Nothing is expected any more once the block is through, or found what is `Broken`; whatever else ends it, it still is.

    Storage that does not answer then leaves the note where it is, and the rows are compared twice.
    """
    try:
        yield
    except Broken:
        _forget(lake, table_key)
        raise
    _forget(lake, table_key)


def _forget(lake: Lake, table_key: str) -> None:
    with contextlib.suppress(LakehouseError):  # it must neither hide what was found nor fail a compaction that stands
        lake.store.delete([_name(table_key)])


def _name(table_key: str) -> str:
    return f"_lakehouse/unverified/{table_key}.json"
