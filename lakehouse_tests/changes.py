"""The oracle of change data: a dictionary to which a source's changes are applied one by one, in the source's own order."""

from collections.abc import Mapping
from typing import Any

from lakehouse.core.changes.change import Change, Operation

type_of_state = dict[tuple[Any, ...], Mapping[str, Any]]


def written(state: type_of_state, change: Change) -> None:
    """Applies the next change."""
    if change.operation is Operation.TRUNCATE:
        state.clear()
        return
    assert change.key is not None
    if change.old_key is not None and change.old_key != change.key:
        state.pop(change.old_key, None)
    if change.after is None:
        state.pop(change.key, None)
    else:
        state[change.key] = change.after
