"""The meaning of change data, told in memory: what the engine does to tables with Spark (`lakehouse.cdc.run`) is held against it.

`written` applies a source's changes one by one, in the source's own order. `newest_state` depends on the set of changes alone: not on
their order, not on batches, not on repeats.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse.declare.change_sources import ChangeKind

type_of_key = tuple[Any, ...]
type_of_row = Mapping[str, Any]
type_of_state = dict[type_of_key, type_of_row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: `key` has the row `after` from `position` on, or none if `after` is `None`.

    A TRUNCATE has no key. `old_key` is the key that the row had before, where it changed. A position is compared part by part, `None` below
    all; between equal positions `place`, the file and line it was read from, decides. `committed_ms` is `None` where it is not known.
    """

    operation: ChangeKind
    position: tuple[Any, ...]
    key: type_of_key | None = None
    committed_ms: int | None = None
    after: type_of_row | None = None
    old_key: type_of_key | None = None
    place: tuple[str, int] = ("", 0)

    @property
    def order(self) -> tuple[Any, ...]:
        """By what the change is compared with others of its key."""
        return (*((part is not None, part) for part in self.position), self.place)


def newest_state(changes: Iterable[Change]) -> dict[type_of_key, type_of_row]:
    """The row of each key that has one, after all changes."""
    newest = {
        key: max(each, key=lambda change: change.order) for key, each in _by_key(changes).items()
    }
    return {key: change.after for key, change in newest.items() if change.after is not None}


def _by_key(changes: Iterable[Change]) -> dict[type_of_key, list[Change]]:
    """The changes of each key. One that changes a key deletes the old one; a truncation deletes every key that is ever told of."""
    found: dict[type_of_key, list[Change]] = defaultdict(list)
    truncations: list[Change] = []
    for change in changes:
        if change.key is None:
            truncations.append(change)
            continue
        found[change.key].append(change)
        if change.old_key is not None and change.old_key != change.key:
            found[change.old_key].append(
                Change(
                    operation=ChangeKind.DELETE,
                    key=change.old_key,
                    position=change.position,
                    committed_ms=change.committed_ms,
                    place=change.place,
                )
            )
    for each in found.values():
        each.extend(truncations)
    return found


def written(state: type_of_state, change: Change) -> None:
    """Applies the next change."""
    if change.operation is ChangeKind.TRUNCATE:
        state.clear()
        return
    assert change.key is not None
    if change.old_key is not None and change.old_key != change.key:
        state.pop(change.old_key, None)
    if change.after is None:
        state.pop(change.key, None)
    else:
        state[change.key] = change.after
